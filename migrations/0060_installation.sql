-- Redis and Postgres know each other by these: the installation's id, which the hash of each lane in Redis carries, and
-- the life of Postgres, which tells a restored cluster, a promoted standby and a database made anew from the one before.

ALTER TABLE settings
    -- Made once, here. A copy of the database carries it along.
    ADD COLUMN installation uuid NOT NULL DEFAULT gen_random_uuid();

-- NULL where a managed service doesn't let us look.
CREATE FUNCTION life_of_postgres() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system())
        || ':' || (SELECT timeline_id FROM pg_control_checkpoint())
        || ':' || (SELECT oid FROM pg_database WHERE datname = current_database());
EXCEPTION
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN RETURN NULL;
END $$;
