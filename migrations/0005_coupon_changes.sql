-- What changes about a coupon after its creation, how far Redis has heard of it, and how a sale leaves Redis.

ALTER TABLE coupons
    ADD COLUMN ended_at timestamptz;
UPDATE coupons SET ended_at = updated_at WHERE state = 'ended';
ALTER TABLE coupons
    -- A state and its time imply each other.
    ADD CONSTRAINT coupons_ended_at CHECK ((ended_at IS NOT NULL) = (state = 'ended'));

ALTER TABLE flash_sales
    -- The newest revision that Redis is known to have. Only grows, and stays behind the coupon's own while a
    -- change is on its way.
    ADD COLUMN applied_revision bigint NOT NULL DEFAULT 0,
    -- Set when the keys of an archived sale have been removed from Redis.
    ADD COLUMN removed_at timestamptz,
    ADD CONSTRAINT flash_sales_applied_after_loaded CHECK (applied_revision = 0 OR loaded_at IS NOT NULL),
    ADD CONSTRAINT flash_sales_removed_after_archived CHECK (removed_at IS NULL OR archived_at IS NOT NULL);

-- What the passes look for: the sales that Redis holds, those it will need, and those it still has to forget.
CREATE INDEX flash_sales_in_redis ON flash_sales (coupon_id) WHERE loaded_at IS NOT NULL AND archived_at IS NULL;
CREATE INDEX flash_sales_to_load ON flash_sales (opens_at) WHERE loaded_at IS NULL;
CREATE INDEX flash_sales_to_remove ON flash_sales (coupon_id) WHERE archived_at IS NOT NULL AND removed_at IS NULL;

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
