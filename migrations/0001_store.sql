-- Facts about the whole installation, in one row that every process reads.
CREATE TABLE settings (
    only_row     boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Lanes that new coupons are spread over. Only grows; a coupon never changes its lane. An order id has six bits for
    -- the lane, and 63 stands for regular coupons.
    lanes        integer     NOT NULL DEFAULT 1 CHECK (lanes BETWEEN 1 AND 63),
    -- Epoch at which new lanes begin.
    epoch        bigint      NOT NULL DEFAULT 1 CHECK (epoch >= 1),
    -- Made once, here, and carried by the hash of each lane in Redis: so the two stores know each other. A copy of the
    -- database carries it along.
    installation uuid        NOT NULL DEFAULT gen_random_uuid(),
    -- What Redis has and Postgres lacks: all lanes are closed until an operator says which of the two is right. NULL
    -- while the stores belong together.
    apart        text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
);
INSERT INTO settings DEFAULT VALUES;

-- Changes when the cluster is restored, when a standby is promoted, and when the database is made anew. NULL where a
-- managed service doesn't let us look.
CREATE FUNCTION postgres_run() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system())
        || ':' || (SELECT timeline_id FROM pg_control_checkpoint())
        || ':' || (SELECT oid FROM pg_database WHERE datname = current_database());
EXCEPTION
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN RETURN NULL;
END $$;

-- Rows that other tables name without a foreign key.
CREATE FUNCTION refuse_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never deleted: orders name them', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;
