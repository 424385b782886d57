-- Money that a gateway has taken is a row, always: also if no order can take it.
--
-- A held payment (status 'held') names an order that isn't known, or an id that the gateway has used before. Of the
-- second kind the id has the text ' for ORDER' behind it, because ids of payments are unique and have no spaces.

-- A held payment may name an order that isn't there.
ALTER TABLE payments DROP CONSTRAINT payments_order;
ALTER TABLE payments
    -- Time at which it began to go back; rows of older versions have none.
    ADD COLUMN refunding_at timestamptz,
    -- Words of the administrator who closed it, and the time of that.
    ADD COLUMN note         text,
    ADD COLUMN closed_at    timestamptz;

-- Rows that are there satisfy the wider conditions; the next migration has Postgres look, without a lock that writers
-- would wait for.
ALTER TABLE payments
    DROP CONSTRAINT payments_status,
    ADD CONSTRAINT payments_status CHECK (status IN ('accepted', 'refunding', 'refunded', 'held', 'closed')) NOT VALID,
    DROP CONSTRAINT payments_refund_reason_check,
    ADD CONSTRAINT payments_refund_reason_check CHECK (refund_reason IN
        ('asked_for', 'too_late', 'paid_twice', 'wrong_amount', 'unknown_order', 'id_used_twice', 'charged_back')) NOT VALID,
    ADD CONSTRAINT payments_closed CHECK
        ((closed_at IS NOT NULL) = (status = 'closed') AND (note IS NOT NULL) = (status = 'closed')) NOT VALID;

-- The held payments, and when each is looked at again. A table of its own, so that no index on the payments has to be
-- built.
CREATE TABLE held_payments (
    payment_id   bigint      PRIMARY KEY,
    -- 'infinity': an administrator decides.
    next_look_at timestamptz NOT NULL,
    CONSTRAINT held_payments_payment FOREIGN KEY (payment_id) REFERENCES payments (id)
);
CREATE INDEX held_payments_next ON held_payments (next_look_at);
