-- Price and deadline of an order are those of its claim.

ALTER TABLE coupons
    -- ISO 4217; never changes.
    ADD COLUMN currency text NOT NULL DEFAULT 'CNY' CHECK (currency ~ '^[A-Z]{3}$');

-- Each price that a coupon ever had. A claim names the revision that Redis went by: its price is that of the newest row
-- up to that revision. Written by triggers, so that changes by processes of the version before are here, too.
CREATE TABLE coupon_prices (
    coupon_id bigint      NOT NULL,
    -- The first revision with this price; 0 for the price that stood when this table was made.
    revision  bigint      NOT NULL CHECK (revision >= 0),
    pay_cents bigint      NOT NULL CHECK (pay_cents >= 0),
    currency  text        NOT NULL,
    -- Time of the change, for orders whose claim names no revision.
    since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT coupon_prices_once PRIMARY KEY (coupon_id, revision)
);
INSERT INTO coupon_prices SELECT id, 0, pay_cents, currency, '-infinity' FROM coupons;

CREATE FUNCTION note_price() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO coupon_prices (coupon_id, revision, pay_cents, currency)
        VALUES (NEW.id, NEW.revision, NEW.pay_cents, NEW.currency);
    RETURN NULL;
END $$;
CREATE TRIGGER coupons_first_price AFTER INSERT ON coupons
    FOR EACH ROW EXECUTE FUNCTION note_price();
CREATE TRIGGER coupons_next_price AFTER UPDATE ON coupons
    FOR EACH ROW WHEN (NEW.pay_cents <> OLD.pay_cents) EXECUTE FUNCTION note_price();

ALTER TABLE orders
    -- Price at the claim, in minor units, and its currency. None in rows of older versions: see below.
    ADD COLUMN pay_cents bigint,
    ADD COLUMN currency  text,
    -- Time until which the order may be paid. None in rows of older versions: their time counts from `created_at`.
    ADD COLUMN pay_by    timestamptz;

-- The price of an order that an older version wrote: the amount that paid it, or the price at the time of its claim.
CREATE FUNCTION older_order_price(order_id bigint, coupon bigint, claimed_at timestamptz) RETURNS bigint
    LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT amount_cents FROM payments
         WHERE payments.order_id = $1 AND (refund_reason IS NULL OR refund_reason = 'asked_for')),
        (SELECT pay_cents FROM coupon_prices WHERE coupon_id = $2 AND since <= $3 ORDER BY since DESC LIMIT 1),
        -- By a clock that was behind at the claim.
        (SELECT pay_cents FROM coupon_prices WHERE coupon_id = $2 ORDER BY since LIMIT 1),
        -- An order that was written by hand, of no coupon.
        0)
$$;
