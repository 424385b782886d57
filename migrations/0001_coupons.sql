-- What is on offer, and the few facts that all processes share.

-- One row: facts about the whole installation that every process reads.
CREATE TABLE settings (
    only_row   boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    -- How many lanes new coupons are spread over. Only grows; a coupon never changes its lane.
    lanes      integer     NOT NULL DEFAULT 1 CHECK (lanes BETWEEN 1 AND 1024),
    -- The approved state of Redis. Every sale script is told it and refuses another one.
    epoch      bigint      NOT NULL DEFAULT 1 CHECK (epoch >= 1),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO settings DEFAULT VALUES;

-- A coupon's id is (number from here << 10 | lane); see sale/ids.rs.
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
    state       text        NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'ended')),
    -- Grows with every change, so that Redis can tell an older change from a newer one.
    revision    bigint      NOT NULL DEFAULT 1 CHECK (revision >= 1),
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    -- Lets other tables repeat the kind and be sure of it.
    CONSTRAINT coupons_id_kind UNIQUE (id, kind)
);

-- The sale of a flash coupon: one row for each, none for a regular coupon.
CREATE TABLE flash_sales (
    coupon_id   bigint      PRIMARY KEY,
    kind        text        NOT NULL DEFAULT 'flash' CHECK (kind = 'flash'),
    opens_at    timestamptz NOT NULL,
    closes_at   timestamptz NOT NULL,
    total       bigint      NOT NULL,
    -- Live orders written so far. Redis sells; this is the second lock on the same door.
    sold        bigint      NOT NULL DEFAULT 0,
    -- Set before the first claim is possible. Loaded here and missing in Redis means: Redis has lost data.
    loaded_at   timestamptz,
    -- Names that load: the sale in Redis carries it too. Another one there was never noted here.
    load_id     text,
    -- Set before the keys of a finished sale expire from Redis; from then on Postgres answers.
    archived_at timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT flash_sales_coupon FOREIGN KEY (coupon_id, kind) REFERENCES coupons (id, kind),
    CONSTRAINT flash_sales_window CHECK (opens_at < closes_at),
    CONSTRAINT flash_sales_total_positive CHECK (total > 0),
    CONSTRAINT flash_sales_sold_within_total CHECK (sold >= 0 AND sold <= total),
    CONSTRAINT flash_sales_load_id CHECK ((load_id IS NULL) = (loaded_at IS NULL)),
    CONSTRAINT flash_sales_archived_after_loaded CHECK (archived_at IS NULL OR loaded_at IS NOT NULL)
);
