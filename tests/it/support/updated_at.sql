-- In test databases: each UPDATE by the service says when it happened.

CREATE FUNCTION updated_at_was_left() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') = 'flash-sale calls' THEN
        RAISE EXCEPTION 'an UPDATE of % leaves updated_at as it was', TG_TABLE_NAME;
    END IF;
    RETURN NEW;
END
$$;

DO $$
DECLARE
    name text;
BEGIN
    FOR name IN
        SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND NOT relispartition
          AND attname = 'updated_at' AND NOT attisdropped
    LOOP
        EXECUTE format(
            'CREATE TRIGGER updated_at_was_left BEFORE UPDATE ON %I FOR EACH ROW'
            ' WHEN (NEW.updated_at IS DISTINCT FROM now()) EXECUTE FUNCTION updated_at_was_left()',
            name
        );
    END LOOP;
END
$$;
