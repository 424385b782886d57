-- Claims of the order log that can't become orders as they are. A claim is acknowledged only when it is a row in `orders`
-- or a row here. An entry of the log is a call with many claims.
CREATE TABLE dead_letters (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane        integer     NOT NULL,
    -- Epoch of the sale at the claim; 0 where no entry tells it.
    epoch       bigint      NOT NULL DEFAULT 0,
    entry_id    text        NOT NULL,
    -- Number of claims before this one in the entry.
    position    integer     NOT NULL DEFAULT 0,
    -- The entry as it stood in the log: name, value, name, value ... Bytes, because it may be anything.
    payload     bytea[]     NOT NULL,
    -- Its digest, by the trigger below.
    digest      text        NOT NULL DEFAULT '',
    -- `archived`: the claim's sale is archived, so its order may have been deleted.
    reason      text        NOT NULL CHECK (reason IN
        ('undecodable', 'invalid', 'conflict', 'oversold', 'deleted_from_log', 'archived')),
    detail      text        NOT NULL,
    -- What could be read from the payload; all three or none.
    coupon_id   bigint,
    user_id     bigint,
    order_id    bigint,
    -- Set when an operator has dealt with it. Open ones hold their buyer's place.
    resolved_at timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    -- A Redis that went back in time may give the id of an entry to another one: that has another payload.
    CONSTRAINT dead_letters_entry UNIQUE (lane, epoch, entry_id, position, digest),
    CONSTRAINT dead_letters_decoded CHECK (
        (coupon_id IS NULL) = (order_id IS NULL) AND (user_id IS NULL) = (order_id IS NULL))
);
CREATE INDEX dead_letters_of_order ON dead_letters (order_id) WHERE order_id IS NOT NULL;
CREATE INDEX dead_letters_of_coupon ON dead_letters (coupon_id, id) WHERE coupon_id IS NOT NULL;
-- Open ones, which are few among all that there ever were.
CREATE INDEX dead_letters_open ON dead_letters (id) WHERE resolved_at IS NULL;
CREATE INDEX dead_letters_open_of_coupon ON dead_letters (coupon_id, order_id) WHERE resolved_at IS NULL;

CREATE FUNCTION digest_dead_letter() RETURNS trigger LANGUAGE plpgsql SET bytea_output = 'hex' AS $$
BEGIN
    NEW.digest := md5(NEW.payload::text);
    RETURN NEW;
END $$;
CREATE TRIGGER dead_letters_digest BEFORE INSERT OR UPDATE OF payload ON dead_letters
    FOR EACH ROW EXECUTE FUNCTION digest_dead_letter();
