//! Coupons and their sales.

// Creations under a key.
mod creation;

// The life of a coupon over HTTP.
mod life;

// Changes of a coupon in both stores.
mod changes;

// Coupons as shoppers read them.
mod cache;

// The load of a sale into Redis.
pub mod load;

// The shards that hold the buyers of a sale.
mod shards;
