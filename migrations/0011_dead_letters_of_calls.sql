-- An entry of the order log is a call with many claims, and each of them may become a dead letter.
--
-- A letter is there already only if its payload is the same: a Redis that went back in time may give the id of an
-- entry to another one. The constraint keeps its name, which processes of the version before name; their entries have
-- one claim, at position 0.

ALTER TABLE dead_letters
    -- Epoch of the sale at the claim; 0 where no entry tells it.
    ADD COLUMN epoch    bigint  NOT NULL DEFAULT 0,
    -- Number of claims before this one in the entry.
    ADD COLUMN position integer NOT NULL DEFAULT 0,
    -- Digest of the payload, by the trigger below.
    ADD COLUMN digest   text    NOT NULL DEFAULT '';

CREATE FUNCTION digest_dead_letter() RETURNS trigger LANGUAGE plpgsql SET bytea_output = 'hex' AS $$
BEGIN
    NEW.digest := md5(NEW.payload::text);
    RETURN NEW;
END $$;

CREATE TRIGGER dead_letters_digest BEFORE INSERT OR UPDATE OF payload ON dead_letters
    FOR EACH ROW EXECUTE PROCEDURE digest_dead_letter();

UPDATE dead_letters SET payload = payload;

ALTER TABLE dead_letters DROP CONSTRAINT dead_letters_entry;
ALTER TABLE dead_letters
    ADD CONSTRAINT dead_letters_entry UNIQUE (lane, epoch, entry_id, position, digest);
