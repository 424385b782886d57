-- Keys under which coupons were created (the header Idempotency-Key), for a day: a repeat gets the same coupon.
CREATE TABLE creation_keys (
    administrator bigint      NOT NULL,
    key           text        NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    -- SHA-256 of the body.
    fingerprint   bytea       NOT NULL,
    coupon_id     bigint      NOT NULL REFERENCES coupons (id),
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (administrator, key)
);
CREATE INDEX creation_keys_created_at ON creation_keys (created_at);
