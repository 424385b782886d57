-- Entries of the order log that can't become an order as they are. An entry is acknowledged only when
-- it is a row in `orders` or a row here.

CREATE TABLE dead_letters (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane        integer     NOT NULL,
    entry_id    text        NOT NULL,
    -- The entry as it stood in the log: name, value, name, value ... Bytes, because it may be anything.
    payload     bytea[]     NOT NULL,
    reason      text        NOT NULL CHECK (reason IN
        ('undecodable', 'invalid', 'conflict', 'oversold', 'deleted_from_log')),
    detail      text        NOT NULL,
    -- What could be read from the payload; all three or none.
    coupon_id   bigint,
    user_id     bigint,
    order_id    bigint,
    -- Set when an operator has dealt with it. Open ones hold their buyer's place.
    resolved_at timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT dead_letters_entry UNIQUE (lane, entry_id),
    CONSTRAINT dead_letters_decoded CHECK (
        (coupon_id IS NULL) = (order_id IS NULL) AND (user_id IS NULL) = (order_id IS NULL))
);
CREATE INDEX dead_letters_of_order ON dead_letters (order_id) WHERE order_id IS NOT NULL;
CREATE INDEX dead_letters_of_coupon ON dead_letters (coupon_id) WHERE coupon_id IS NOT NULL;
