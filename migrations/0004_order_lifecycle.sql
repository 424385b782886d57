-- The life of an order after it has been written: what was paid for it, and what comes back.

-- Unpaid orders by age, for the pass that expires them.
CREATE INDEX orders_unpaid ON orders (created_at) WHERE status = 'unpaid';

ALTER TABLE orders ADD CONSTRAINT orders_pay_method_known
    CHECK (pay_method IN ('balance', 'alipay', 'wechat'));

-- Money received: one row for each payment that a gateway has confirmed. What an order could not take
-- (it had expired, it was paid already) is a row too, and goes back.
CREATE TABLE payments (
    id                 bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id           bigint      NOT NULL,
    -- Who has the money, and gives it back: the service itself, or a gateway elsewhere.
    gateway            text        NOT NULL CHECK (gateway IN ('in_process', 'external')),
    -- The gateway's id of this payment. A confirmation that comes again is the same payment.
    gateway_payment_id text        NOT NULL,
    method             text        NOT NULL CHECK (method IN ('balance', 'alipay', 'wechat')),
    amount_cents       bigint      NOT NULL CHECK (amount_cents >= 0),
    status             text        NOT NULL DEFAULT 'accepted',
    -- Why it goes back.
    refund_reason      text CHECK (refund_reason IN
        ('asked_for', 'too_late', 'paid_twice', 'wrong_amount')),
    -- When the gateway was last asked to give it back.
    refund_asked_at    timestamptz,
    refunded_at        timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT payments_order FOREIGN KEY (order_id) REFERENCES orders (id),
    CONSTRAINT payments_once UNIQUE (gateway, gateway_payment_id),
    CONSTRAINT payments_status CHECK (status IN ('accepted', 'refunding', 'refunded')),
    -- A status, its reason and its time imply each other.
    CONSTRAINT payments_refund_reason CHECK ((refund_reason IS NULL) = (status = 'accepted')),
    CONSTRAINT payments_refunded_at CHECK ((refunded_at IS NOT NULL) = (status = 'refunded'))
);
-- One payment pays an order, and only that one is given back because its buyer asks for it.
CREATE UNIQUE INDEX payments_one_for_order ON payments (order_id)
    WHERE refund_reason IS NULL OR refund_reason = 'asked_for';
CREATE INDEX payments_refunding ON payments (refund_asked_at NULLS FIRST, id) WHERE status = 'refunding';

-- Outbox: what Redis still has to be told about orders that have been closed here. A row is written in
-- the transaction that closes the order, so neither can be without the other.
CREATE TABLE stock_returns (
    order_id   bigint      NOT NULL,
    -- 'unit': a unit comes back, and with it the buyer's place among unpaid orders.
    -- 'place': only that place, because the order was paid.
    what       text        NOT NULL DEFAULT 'unit' CHECK (what IN ('unit', 'place')),
    coupon_id  bigint      NOT NULL,
    user_id    bigint      NOT NULL,
    done_at    timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Also moved by a try that didn't get through, so that the others come first.
    updated_at timestamptz NOT NULL DEFAULT now(),
    -- An order gives back one unit in its life.
    CONSTRAINT stock_returns_once PRIMARY KEY (order_id, what),
    CONSTRAINT stock_returns_order FOREIGN KEY (order_id) REFERENCES orders (id)
);
CREATE INDEX stock_returns_open ON stock_returns (updated_at) WHERE done_at IS NULL;
