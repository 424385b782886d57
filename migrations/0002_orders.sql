-- Orders: what an accepted claim becomes. Rows are never deleted, so that an order log which is
-- read again from its start inserts nothing twice.

CREATE TABLE orders (
    id           bigint      PRIMARY KEY CHECK (id > 0),
    coupon_id    bigint      NOT NULL,
    -- Repeats the coupon's kind, so that the partial unique indexes below can name it.
    kind         text        NOT NULL,
    user_id      bigint      NOT NULL CHECK (user_id > 0),
    status       text        NOT NULL DEFAULT 'unpaid',
    pay_method   text,
    claimed_at   timestamptz NOT NULL,
    paid_at      timestamptz,
    redeemed_at  timestamptz,
    cancelled_at timestamptz,
    expired_at   timestamptz,
    refunding_at timestamptz,
    refunded_at  timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT orders_coupon FOREIGN KEY (coupon_id, kind) REFERENCES coupons (id, kind),
    CONSTRAINT orders_status CHECK (status IN
        ('unpaid', 'paid', 'redeemed', 'cancelled', 'expired', 'refunding', 'refunded')),
    -- A status and its time imply each other.
    CONSTRAINT orders_paid_at CHECK
        ((paid_at IS NOT NULL) = (status IN ('paid', 'redeemed', 'refunding', 'refunded'))),
    CONSTRAINT orders_pay_method CHECK ((pay_method IS NOT NULL) = (paid_at IS NOT NULL)),
    CONSTRAINT orders_redeemed_at CHECK ((redeemed_at IS NOT NULL) = (status = 'redeemed')),
    CONSTRAINT orders_cancelled_at CHECK ((cancelled_at IS NOT NULL) = (status = 'cancelled')),
    CONSTRAINT orders_expired_at CHECK ((expired_at IS NOT NULL) = (status = 'expired')),
    CONSTRAINT orders_refunding_at CHECK
        ((refunding_at IS NOT NULL) = (status IN ('refunding', 'refunded'))),
    CONSTRAINT orders_refunded_at CHECK ((refunded_at IS NOT NULL) = (status = 'refunded'))
);

-- One live order for each buyer of a flash coupon ...
CREATE UNIQUE INDEX orders_flash_one_live ON orders (coupon_id, user_id)
    WHERE kind = 'flash' AND status IN ('unpaid', 'paid', 'redeemed', 'refunding');
-- ... and one unpaid order for each buyer of a regular one.
CREATE UNIQUE INDEX orders_regular_one_unpaid ON orders (coupon_id, user_id)
    WHERE kind = 'regular' AND status = 'unpaid';
-- "My orders", newest first: ids grow with time.
CREATE INDEX orders_of_user ON orders (user_id, id);
