-- Money received: one row for each payment that a gateway has confirmed. What an order could not take (it had expired,
-- it was paid already, it isn't known) is a row too, and goes back or waits for an administrator.
CREATE TABLE payments (
    id                 bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- An order that isn't there, if the payment is held.
    order_id           bigint,
    -- Who has the money, and gives it back: the service itself, or a gateway elsewhere.
    gateway            text        NOT NULL CHECK (gateway IN ('in_process', 'external')),
    -- The gateway's id of this payment. A confirmation that comes again is the same payment. If the gateway has used an
    -- id twice, ' for ORDER' stands behind it, because ids have no spaces.
    gateway_payment_id text        NOT NULL,
    method             text        CHECK (method IN ('balance', 'alipay', 'wechat')),
    amount_cents       bigint      CHECK (amount_cents >= 0),
    -- ISO 4217. NULL if the gateway named none, and no order is known: then the order's holds.
    currency           text,
    -- The raw body of a signed notice that this version can't understand, and that may be about money: a held payment,
    -- in which it stands for order, method and amount.
    notice             bytea,
    status             text        NOT NULL DEFAULT 'accepted',
    -- Why it goes back, or is held.
    refund_reason      text,
    -- Time at which it began to go back.
    refunding_at       timestamptz,
    -- When the gateway was last asked to give it back.
    refund_asked_at    timestamptz NOT NULL DEFAULT '-infinity',
    refunded_at        timestamptz,
    -- Time of the next check of a held payment; 'infinity': an administrator decides.
    next_check_at       timestamptz,
    -- Words of the administrator who closed it, and the time of that.
    note               text,
    closed_at          timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT payments_once UNIQUE (gateway, gateway_payment_id),
    CONSTRAINT payments_status CHECK (status IN ('accepted', 'refunding', 'refunded', 'held', 'closed')),
    CONSTRAINT payments_refund_reason_known CHECK (refund_reason IN
        ('asked_for', 'too_late', 'paid_twice', 'wrong_amount', 'unknown_order', 'id_used_twice', 'charged_back',
         'not_understood')),
    CONSTRAINT payments_notice CHECK ((notice IS NOT NULL) = (refund_reason IS NOT DISTINCT FROM 'not_understood')
        AND (notice IS NOT NULL) = (order_id IS NULL) AND (order_id IS NULL) = (method IS NULL)
        AND (order_id IS NULL) = (amount_cents IS NULL)),
    -- A status, its reason and its time imply each other.
    CONSTRAINT payments_refund_reason CHECK ((refund_reason IS NULL) = (status = 'accepted')),
    CONSTRAINT payments_next_check_at CHECK ((next_check_at IS NOT NULL) = (status = 'held')),
    CONSTRAINT payments_refunded_at CHECK ((refunded_at IS NOT NULL) = (status = 'refunded')),
    CONSTRAINT payments_closed CHECK
        ((closed_at IS NOT NULL) = (status = 'closed') AND (note IS NOT NULL) = (status = 'closed'))
);
-- One payment pays an order, and only that one is given back because its buyer asks for it.
CREATE UNIQUE INDEX payments_one_for_order ON payments (order_id)
    WHERE refund_reason IS NULL OR refund_reason = 'asked_for';
CREATE INDEX payments_of_order ON payments (order_id);
-- What the job over refunds looks for.
CREATE INDEX payments_refunding ON payments (refund_asked_at, id) WHERE status = 'refunding';
CREATE INDEX payments_refunding_here ON payments (id) WHERE status = 'refunding' AND gateway = 'in_process';
CREATE INDEX payments_to_check ON payments (next_check_at) WHERE status = 'held';
-- What waits for the staff.
CREATE INDEX payments_owed ON payments (status, id) WHERE status IN ('held', 'refunding');

-- Payments that were begun at a gateway: the payer may pay, and the gateway's word about that may get lost.
CREATE TABLE opened_payments (
    id                 bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id           bigint      NOT NULL,
    method             text        NOT NULL CHECK (method IN ('balance', 'alipay', 'wechat')),
    -- Number of this payment among those of its order and method: if the gateway has closed a payment, another one is
    -- opened for a payer who comes back. The row names the payment that is open, or that will be.
    number             integer     NOT NULL DEFAULT 1,
    amount_cents       bigint      NOT NULL CHECK (amount_cents >= 0),
    currency           text        NOT NULL,
    -- Both are the gateway's, once it has answered.
    gateway_payment_id text,
    pay_url            text,
    next_check_at       timestamptz NOT NULL,
    checks              integer     NOT NULL DEFAULT 0,
    -- Nothing is left to ask about.
    closed_at          timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT opened_payments_once UNIQUE (order_id, method),
    CONSTRAINT opened_payments_answered CHECK ((gateway_payment_id IS NULL) = (pay_url IS NULL))
);
CREATE INDEX opened_payments_next ON opened_payments (next_check_at) WHERE closed_at IS NULL;
