-- Events: what other systems are told. Rows are written only by sessions with `--events`, which set `flash_sale.events`.

CREATE TABLE events (
    -- The transaction that wrote the row. Readers take rows in the order (xid, id), and only those of transactions that are
    -- older than each one under way: nothing can come in before them any more. By id alone, a reader would pass by the
    -- row of a transaction that commits late.
    xid        xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id         bigint      GENERATED ALWAYS AS IDENTITY,
    type       text        NOT NULL,
    -- Path of the order or coupon below /v1/; none for a batch of claims, and for matters of the service itself.
    subject    text,
    data       jsonb,
    -- A batch of claims: order, coupon, user and price of each, one behind the other. The writer is spared the JSON.
    claims     bigint[],
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT events_in_order PRIMARY KEY (xid, id),
    CONSTRAINT events_told CHECK ((claims IS NOT NULL) = (type = 'order.claimed') AND (data IS NULL) = (claims IS NOT NULL))
);
-- Numbers that gain little by compression, which would be a third of the cost of the row.
ALTER TABLE events ALTER claims SET STORAGE EXTERNAL;

-- Triggers, because the row is the event: no function that moves an order, now or later, can forget it. The writer of claims
-- is the exception: it notes a batch, and the sales that it has sold out, in one statement (`events/mod.rs`). So no trigger
-- stands at what it writes.

-- `move` grows along each way of an order, so a reader can drop events that come late. An order that costs nothing is
-- paid in the transaction of its claim. That payment has no event: the price in the claim's event tells of it.
CREATE FUNCTION note_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status <> OLD.status AND OLD.created_at <> now() THEN
        INSERT INTO events (type, subject, data)
        VALUES ('order.' || NEW.status, 'orders/' || NEW.id, jsonb_build_object(
            'order_id', NEW.id::text, 'coupon_id', NEW.coupon_id::text, 'user_id', NEW.user_id::text,
            'pay_cents', NEW.pay_cents, 'currency', NEW.currency, 'move', CASE
                WHEN NEW.status IN ('paid', 'cancelled', 'expired') THEN 2 WHEN NEW.status = 'refunded' THEN 4 ELSE 3 END));
    END IF;
    RETURN NULL;
END $$;
-- Only one condition: Postgres prepares each condition for each statement, which takes 5 microseconds.
CREATE TRIGGER orders_note AFTER UPDATE OF status ON orders FOR EACH ROW
    WHEN (current_setting('flash_sale.events', true) = 'on') EXECUTE FUNCTION note_order();

CREATE FUNCTION note_coupon() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (type, subject, data)
    VALUES (CASE WHEN TG_OP = 'INSERT' THEN 'coupon.created' WHEN NEW.state = 'active' THEN 'coupon.resumed'
                 ELSE 'coupon.' || NEW.state END,
            'coupons/' || NEW.id,
            jsonb_build_object('coupon_id', NEW.id::text, 'kind', NEW.kind, 'revision', NEW.revision));
    RETURN NULL;
END $$;
CREATE TRIGGER coupons_note_created AFTER INSERT ON coupons FOR EACH ROW
    WHEN (current_setting('flash_sale.events', true) = 'on') EXECUTE FUNCTION note_coupon();
CREATE TRIGGER coupons_note_state AFTER UPDATE OF state ON coupons FOR EACH ROW
    WHEN (NEW.state <> OLD.state AND current_setting('flash_sale.events', true) = 'on') EXECUTE FUNCTION note_coupon();

CREATE FUNCTION note_restock() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (type, subject, data)
    VALUES ('coupon.restocked', 'coupons/' || NEW.coupon_id,
            jsonb_build_object('coupon_id', NEW.coupon_id::text, 'total', NEW.total));
    RETURN NULL;
END $$;
CREATE TRIGGER flash_sales_note AFTER UPDATE OF total ON flash_sales FOR EACH ROW
    WHEN (NEW.total > OLD.total AND current_setting('flash_sale.events', true) = 'on') EXECUTE FUNCTION note_restock();

CREATE FUNCTION note_dead_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (type, data)
    VALUES ('dead_letter.created', jsonb_build_object('dead_letter_id', NEW.id::text, 'reason', NEW.reason,
        'order_id', NEW.order_id::text, 'coupon_id', NEW.coupon_id::text, 'user_id', NEW.user_id::text));
    RETURN NULL;
END $$;
CREATE TRIGGER dead_letters_note AFTER INSERT ON dead_letters FOR EACH ROW
    WHEN (current_setting('flash_sale.events', true) = 'on') EXECUTE FUNCTION note_dead_letter();

CREATE FUNCTION note_comparison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (type, data)
    VALUES ('comparison.disagreed', jsonb_build_object('run_id', NEW.id::text, 'disagreements', NEW.disagreements));
    RETURN NULL;
END $$;
CREATE TRIGGER reconcile_runs_note AFTER UPDATE OF disagreements ON reconcile_runs FOR EACH ROW
    WHEN (NEW.disagreements > 0 AND OLD.disagreements IS NULL AND current_setting('flash_sale.events', true) = 'on')
    EXECUTE FUNCTION note_comparison();

CREATE FUNCTION note_recovery() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (type, data)
    VALUES ('lane.recovered', jsonb_build_object('recovery_id', NEW.id::text, 'lane', NEW.lane, 'epoch', NEW.epoch,
        'lost', NEW.lost, 'unknown', NEW.unknown));
    RETURN NULL;
END $$;
CREATE TRIGGER recoveries_note AFTER UPDATE OF opened_at ON recoveries FOR EACH ROW
    WHEN (NEW.opened_at IS NOT NULL AND OLD.opened_at IS NULL AND current_setting('flash_sale.events', true) = 'on')
    EXECUTE FUNCTION note_recovery();

-- Endpoints of other systems, to which events are sent (src/events/webhooks/mod.rs).
CREATE TABLE webhooks (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    url              text        NOT NULL,
    -- Types of the events that are sent; all if there are none.
    types            text[]      NOT NULL,
    -- 'disabled': the endpoint has failed for days, or has said that it is gone.
    state            text        NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'disabled')),
    secret           text        NOT NULL,
    -- The secret before, which signs, too, until then.
    old_secret       text,
    old_secret_until timestamptz,
    -- Id of the last event that was delivered or isn't sent; null for none.
    last_event       text,
    -- Failures since the last delivery, the time of the first one, and the last one in words.
    tries            integer     NOT NULL DEFAULT 0,
    failing_since    timestamptz,
    error            text,
    next_try_at      timestamptz NOT NULL DEFAULT now(),
    -- A process sends until then; each change of the row by somebody else ends that.
    leased_until     timestamptz NOT NULL DEFAULT 'epoch',
    created_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT webhooks_failing CHECK ((failing_since IS NULL) = (tries = 0) AND (error IS NULL) = (tries = 0)),
    CONSTRAINT webhooks_old_secret CHECK ((old_secret IS NULL) = (old_secret_until IS NULL))
);

-- Each try to deliver an event.
CREATE TABLE webhook_deliveries (
    -- May be gone: what is left of it is deleted in pages.
    webhook bigint      NOT NULL,
    id      bigint      GENERATED ALWAYS AS IDENTITY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    event   text        NOT NULL,
    type    text        NOT NULL,
    -- Status of the reply; null without one.
    status  smallint,
    -- What was wrong; null if it was delivered.
    error   text,
    PRIMARY KEY (webhook, id)
);
CREATE INDEX webhook_deliveries_at ON webhook_deliveries (webhook, at);
