//! Coupons and their sales.

use flash_sale::sale::coupon::input::NewCoupon;
use serde_json::{Value, json};

// Creations under a key.
mod creation;

// The life of a coupon over HTTP.
mod life;

// Changes of a coupon in both stores.
mod changes;

// Coupons as shoppers read them.
mod cache;

// Lists of the newest sales, and revisions to catch up with.
mod reading;

// The load of a sale into Redis.
pub mod load;

// The same, and changes, by a Redis whose replies are played.
mod answers;

// Older revisions in Redis, and lists, by a Redis that is played.
mod catching_up;

// Coupons as they are shown, on a clock that stands still.
mod shown;

// The shards that hold the buyers of a sale.
mod shards;

// Coupons and sales in Postgres, query by query.
mod in_postgres;

/// A coupon to be created: with this sale, or a regular one if that is null.
fn new_coupon(sale: &Value) -> NewCoupon {
    let kind = if sale.is_null() { "regular" } else { "flash" };
    let new = json!({"kind": kind, "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale});
    serde_json::from_value(new).expect("a coupon")
}
