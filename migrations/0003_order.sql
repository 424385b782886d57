-- Orders: what an accepted claim becomes, and what comes back when it is over.

-- The lowest 26 bits of the id of a regular coupon's order. The claim script makes those of flash coupons.
CREATE SEQUENCE regular_orders MINVALUE 0 MAXVALUE 67108863 CYCLE;

-- Which orders are live, said once. A live order holds its buyer's place and a unit of the sale. The planner puts the body
-- in place of the call, so that queries find the partial indexes below.
CREATE FUNCTION is_live(status text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT status IN ('unpaid', 'paid', 'redeemed', 'refunding') $$;

CREATE TABLE orders (
    -- Carries the second of the claim, which makes the orders of a day a range.
    id            bigint      PRIMARY KEY CHECK (id > 0),
    coupon_id     bigint      NOT NULL,
    -- Repeats the coupon's kind, so that the partial unique indexes below can name it.
    kind          text        NOT NULL,
    user_id       bigint      NOT NULL CHECK (user_id > 0),
    status        text        NOT NULL DEFAULT 'unpaid',
    -- Price at the claim, in minor units, and its currency.
    pay_cents     bigint      NOT NULL CHECK (pay_cents >= 0),
    currency      text        NOT NULL,
    pay_method    text,
    -- Time until which the order may be paid.
    pay_by        timestamptz NOT NULL,
    claimed_at    timestamptz NOT NULL,
    paid_at       timestamptz,
    redeemed_at   timestamptz,
    cancelled_at  timestamptz,
    -- Reason for which the staff has ended the time to pay.
    cancel_reason text,
    expired_at    timestamptz,
    refunding_at  timestamptz,
    refunded_at   timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT orders_status CHECK (status IN
        ('unpaid', 'paid', 'redeemed', 'cancelled', 'expired', 'refunding', 'refunded')),
    -- A status and its time imply each other.
    CONSTRAINT orders_paid_at CHECK
        ((paid_at IS NOT NULL) = (status IN ('paid', 'redeemed', 'refunding', 'refunded'))),
    CONSTRAINT orders_pay_method CHECK ((pay_method IS NOT NULL) = (paid_at IS NOT NULL)),
    CONSTRAINT orders_pay_method_known CHECK (pay_method IN ('balance', 'alipay', 'wechat')),
    CONSTRAINT orders_redeemed_at CHECK ((redeemed_at IS NOT NULL) = (status = 'redeemed')),
    CONSTRAINT orders_cancelled_at CHECK ((cancelled_at IS NOT NULL) = (status = 'cancelled')),
    CONSTRAINT orders_expired_at CHECK ((expired_at IS NOT NULL) = (status = 'expired')),
    CONSTRAINT orders_refunding_at CHECK ((refunding_at IS NOT NULL) = (status IN ('refunding', 'refunded'))),
    CONSTRAINT orders_refunded_at CHECK ((refunded_at IS NOT NULL) = (status = 'refunded'))
);
-- One live order for each buyer of a flash coupon ...
CREATE UNIQUE INDEX orders_flash_one_live ON orders (coupon_id, user_id)
    WHERE kind = 'flash' AND status IN ('unpaid', 'paid', 'redeemed', 'refunding');
-- ... one unpaid order for each buyer of a regular one ...
CREATE UNIQUE INDEX orders_regular_one_unpaid ON orders (coupon_id, user_id)
    WHERE kind = 'regular' AND status = 'unpaid';
-- ... and, of a regular one that costs nothing, one that isn't redeemed: a repeated claim must not take another.
CREATE UNIQUE INDEX orders_regular_one_free ON orders (coupon_id, user_id)
    WHERE kind = 'regular' AND status = 'paid' AND pay_cents = 0;
-- "My orders", newest first.
CREATE INDEX orders_of_user ON orders (user_id, id);
-- What the expiry looks for.
CREATE INDEX orders_due ON orders (pay_by) WHERE status = 'unpaid';
-- What the staff searches.
CREATE INDEX orders_of_coupon ON orders (coupon_id, status, id);
CREATE INDEX orders_of_status ON orders (status, id);

-- Whether a user has at least `most` closed orders of a coupon with ids greater than `behind`. A transaction that asks
-- this makes others wait that ask for the same user and coupon, until it ends. So each sees the orders of those before
-- it, because a query of a volatile function has a snapshot of its own.
CREATE FUNCTION has_closed_orders(of_user bigint, of_coupon bigint, behind bigint, most bigint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(of_user::text, of_coupon));
    RETURN EXISTS (
        SELECT FROM orders
        WHERE user_id = of_user AND id > behind AND coupon_id = of_coupon AND NOT is_live(status)
        OFFSET most - 1);
END $$;

-- A code of 16 characters of Crockford's base 32: 80 random bits. Of the 16 bytes of a random UUID, the bytes 7 to 15
-- have five random bits at their low end; byte 6 has the version.
CREATE FUNCTION new_redemption_code() RETURNS text LANGUAGE sql VOLATILE
    AS $$
        SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (get_byte(bytes, at) & 31) + 1, 1), '')
        FROM (SELECT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) AS bytes) AS random,
             unnest('{7,8,9,10,11,12,13,14,15,23,24,25,26,27,28,29}'::integer[]) AS at
    $$;
-- Redemption codes of paid orders, and the request that redeemed each. A row is made when its order is paid. The time
-- stands in `orders.redeemed_at`.
CREATE TABLE redemptions (
    order_id bigint PRIMARY KEY REFERENCES orders (id),
    code     text   NOT NULL DEFAULT new_redemption_code() CHECK (code ~ '^[0-9A-HJKMNP-TV-Z]{16,32}$'),
    -- None until it is redeemed.
    clerk    bigint CHECK (clerk > 0),
    -- Idempotency-Key of the clerk's request, if it had one.
    key      text CHECK (octet_length(key) BETWEEN 1 AND 255),
    CONSTRAINT redemptions_code UNIQUE (code),
    CONSTRAINT redemptions_key CHECK (key IS NULL OR clerk IS NOT NULL)
);

-- Outbox: what Redis still has to be told about orders that have been closed here. A row is written in the transaction that
-- closes the order, so neither can be without the other.
CREATE TABLE stock_returns (
    order_id   bigint      NOT NULL,
    -- 'unit': a unit comes back, and the order leaves its user's list of unpaid ones.
    -- 'place': the order only leaves that list, because it was paid.
    what       text        NOT NULL DEFAULT 'unit' CHECK (what IN ('unit', 'place')),
    coupon_id  bigint      NOT NULL,
    user_id    bigint      NOT NULL,
    done_at    timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    -- An order returns one unit in its life.
    CONSTRAINT stock_returns_once PRIMARY KEY (order_id, what),
    CONSTRAINT stock_returns_order FOREIGN KEY (order_id) REFERENCES orders (id)
);
-- From coupon to coupon, and in each the rows that have waited longest.
CREATE INDEX stock_returns_waiting ON stock_returns (coupon_id, updated_at) WHERE done_at IS NULL;
