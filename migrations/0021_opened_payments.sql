-- Payments that were begun at a gateway: the payer may pay, and the gateway's word about that may get lost.
CREATE TABLE opened_payments (
    id                 bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id           bigint      NOT NULL,
    method             text        NOT NULL CHECK (method IN ('balance', 'alipay', 'wechat')),
    amount_cents       bigint      NOT NULL CHECK (amount_cents >= 0),
    currency           text        NOT NULL,
    -- Both are the gateway's, once it has answered.
    gateway_payment_id text,
    pay_url            text,
    next_look_at       timestamptz NOT NULL,
    looks              integer     NOT NULL DEFAULT 0,
    -- Nothing is left to ask about.
    closed_at          timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT opened_payments_once UNIQUE (order_id, method),
    CONSTRAINT opened_payments_answered CHECK ((gateway_payment_id IS NULL) = (pay_url IS NULL))
);
CREATE INDEX opened_payments_next ON opened_payments (next_look_at) WHERE closed_at IS NULL;
