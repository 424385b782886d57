-- What is on offer.

-- A coupon's id is (number from here << 10 | lane); see src/store/ids.
CREATE SEQUENCE coupon_sequence;

CREATE TABLE coupons (
    id          bigint      PRIMARY KEY CHECK (id > 0),
    kind        text        NOT NULL CHECK (kind IN ('regular', 'flash')),
    title       text        NOT NULL,
    sub_title   text        NOT NULL,
    rules       text        NOT NULL,
    -- What the buyer pays and what it is worth, in minor units.
    pay_cents   bigint      NOT NULL CHECK (pay_cents >= 0),
    value_cents bigint      NOT NULL CHECK (value_cents >= 0),
    -- ISO 4217; never changes.
    currency    text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    state       text        NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'ended')),
    -- Grows with every change, so that Redis can tell an older change from a newer one.
    revision    bigint      NOT NULL DEFAULT 1 CHECK (revision >= 1),
    ended_at    timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    -- Lets other tables repeat the kind and be sure of it.
    CONSTRAINT coupons_id_kind UNIQUE (id, kind),
    CONSTRAINT coupons_ended_at CHECK ((ended_at IS NOT NULL) = (state = 'ended'))
);
CREATE INDEX coupons_of_state ON coupons (kind, state, id);
-- Orders name coupons without a foreign key: it would have Postgres look up, and lock, the coupon's row once for each
-- order, which was a third of what writing an order cost. So no coupon goes away.
CREATE TRIGGER coupons_stay BEFORE DELETE OR TRUNCATE ON coupons
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_deletion();

-- Each price that a coupon ever had. A claim names the revision that Redis went by: its price is that of the newest row up
-- to that revision.
CREATE TABLE coupon_prices (
    coupon_id bigint      NOT NULL,
    -- The first revision with this price.
    revision  bigint      NOT NULL CHECK (revision >= 1),
    pay_cents bigint      NOT NULL CHECK (pay_cents >= 0),
    currency  text        NOT NULL,
    -- For claims whose revision is unknown, because their entry is gone.
    since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT coupon_prices_once PRIMARY KEY (coupon_id, revision)
);
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

-- The sale of a flash coupon: one row for each, none for a regular coupon.
CREATE TABLE flash_sales (
    coupon_id        bigint      PRIMARY KEY,
    kind             text        NOT NULL DEFAULT 'flash' CHECK (kind = 'flash'),
    opens_at         timestamptz NOT NULL,
    closes_at        timestamptz NOT NULL,
    total            bigint      NOT NULL,
    -- Live orders written so far. Redis decides about claims; this is the second check that no unit too many is sold.
    sold             bigint      NOT NULL DEFAULT 0,
    -- Set before the first claim is possible. Loaded here and missing in Redis means: Redis has lost data.
    loaded_at        timestamptz,
    -- Id of that load, which the sale in Redis has, too. A sale there with another id was never noted here.
    load_id          text,
    -- The newest revision that Redis is known to have. Only grows, and stays behind the coupon's own while a change is on
    -- its way.
    applied_revision bigint      NOT NULL DEFAULT 0,
    -- Set before the keys of a finished sale are removed from Redis; from then on Postgres answers.
    archived_at      timestamptz,
    -- Set when they have been removed.
    removed_at       timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT flash_sales_coupon FOREIGN KEY (coupon_id, kind) REFERENCES coupons (id, kind),
    CONSTRAINT flash_sales_window CHECK (opens_at < closes_at),
    CONSTRAINT flash_sales_total_positive CHECK (total > 0),
    CONSTRAINT flash_sales_sold_within_total CHECK (sold >= 0 AND sold <= total),
    CONSTRAINT flash_sales_load_id CHECK ((load_id IS NULL) = (loaded_at IS NULL)),
    CONSTRAINT flash_sales_applied_after_loaded CHECK (applied_revision = 0 OR loaded_at IS NOT NULL),
    CONSTRAINT flash_sales_archived_after_loaded CHECK (archived_at IS NULL OR loaded_at IS NOT NULL),
    CONSTRAINT flash_sales_removed_after_archived CHECK (removed_at IS NULL OR archived_at IS NOT NULL)
);
-- What the jobs look for: the sales that Redis holds, those it will need, and those it still has to forget.
CREATE INDEX flash_sales_in_redis ON flash_sales (coupon_id) WHERE loaded_at IS NOT NULL AND archived_at IS NULL;
CREATE INDEX flash_sales_to_load ON flash_sales (opens_at) WHERE loaded_at IS NULL;
CREATE INDEX flash_sales_to_remove ON flash_sales (coupon_id) WHERE archived_at IS NOT NULL AND removed_at IS NULL;
CREATE TRIGGER flash_sales_stay BEFORE DELETE OR TRUNCATE ON flash_sales
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_deletion();

-- Units that were added to a sale, each time under a key that the client chose: a repeat adds nothing.
CREATE TABLE restocks (
    coupon_id  bigint      NOT NULL,
    key        text        NOT NULL,
    units      bigint      NOT NULL CHECK (units > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT restocks_once PRIMARY KEY (coupon_id, key),
    CONSTRAINT restocks_sale FOREIGN KEY (coupon_id) REFERENCES flash_sales (coupon_id)
);
