//! Coupons and their sales. Owner of the tables `coupons`, `coupon_prices`, `flash_sales`, `restocks` and
//! `creation_keys`.

// Live states of sales, for clients that watch.
pub mod live;

// Changes of a coupon, in Postgres and then in Redis.
pub mod changes;

// Creates and reads coupons.
pub mod create;

// Coupons as shoppers read them, kept in memory.
pub mod cache;

// Reads coupons from the stores.
pub mod read;

// Idempotency keys of creations.
pub mod creation_keys;

// Idempotency keys of restocks.
pub mod restocks;

// Loads sales into Redis.
pub mod load;

// Sales that only Redis has.
pub mod orphans;

// Rules of changes.
pub mod rules;

// Prices by revision.
pub mod prices;

// Rows of sales.
pub mod stock;

// Bodies of requests, with their limits.
pub mod input;

// A coupon, and its sale.
pub mod model;

// Values in bodies: schemas, and checks of texts.
pub mod values;

// Buyers of a sale in Redis, in shards.
pub mod buyers;
