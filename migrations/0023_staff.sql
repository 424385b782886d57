-- A code of 16 characters of Crockford's base 32: 80 random bits. Of the 16 bytes of a random UUID, the bytes 7 to 15
-- have five random bits at their low end; byte 6 has the version.
CREATE FUNCTION new_redemption_code() RETURNS text LANGUAGE sql VOLATILE
    AS $$
        SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (get_byte(bytes, at) & 31) + 1, 1), '')
        FROM (SELECT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) AS bytes) AS random,
             unnest('{7,8,9,10,11,12,13,14,15,23,24,25,26,27,28,29}'::integer[]) AS at
    $$;

-- Redemption codes of paid orders, and the request that redeemed each. A row is made when its order is paid; for an
-- order that an older version made paid, when the code is first shown. The time stands in `orders.redeemed_at`.
CREATE TABLE redemptions (
    order_id bigint PRIMARY KEY REFERENCES orders (id),
    code     text   NOT NULL DEFAULT new_redemption_code() CHECK (code ~ '^[0-9A-HJKMNP-TV-Z]{16,32}$'),
    -- Null until a version that notes it has redeemed the order.
    clerk    bigint CHECK (clerk > 0),
    -- Idempotency-Key of the clerk's request, if it had one.
    key      text CHECK (octet_length(key) BETWEEN 1 AND 255),
    CONSTRAINT redemptions_code UNIQUE (code),
    CONSTRAINT redemptions_key CHECK (key IS NULL OR clerk IS NOT NULL)
);

-- Changes that the staff has made: clerks, operators and administrators over HTTP, and commands. Users' own moves and
-- passes of the workers are not here.
CREATE TABLE audit (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    -- Subject of the token; null for a command.
    actor      bigint CHECK (actor > 0),
    -- Scope of the token: the `role` in it, or `command_line`.
    scope      text        NOT NULL,
    request_id text,
    action     text        NOT NULL,
    -- Id of the coupon, order, dead letter, payment, postponed item or comparison; the action says which.
    subject_id bigint,
    before     jsonb,
    after      jsonb,
    CONSTRAINT audit_command CHECK ((actor IS NULL) = (scope = 'command_line'))
);
CREATE INDEX audit_at ON audit (at, id);
CREATE INDEX audit_of_actor ON audit (actor, at, id);
CREATE INDEX audit_of_action ON audit (action, at, id);
CREATE INDEX audit_of_subject ON audit (subject_id, at, id);
