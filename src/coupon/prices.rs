//! Prices of coupons by revision: an order costs what its coupon cost at the claim.
//!
//! A row of `coupon_prices` never changes, and no row is inserted between two revisions that exist. So a price that has
//! been looked up stays true, and is remembered.

use chrono::{DateTime, Utc};
use moka::future::Cache;
use sqlx::PgConnection;

use crate::base::limits;
use crate::store::ids::CouponId;

/// Price of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// In minor units.
    pub pay_cents: i64,
    /// ISO 4217.
    pub currency: String,
}

/// Looks prices up, and remembers them. Clones share the memory.
#[derive(Clone)]
pub struct Prices {
    known: Cache<(CouponId, i64), Price>,
}

impl Default for Prices {
    fn default() -> Self {
        Self { known: Cache::new(limits::PRICES_REMEMBERED_MAX) }
    }
}

impl Prices {
    /// The price of this coupon at this revision; `None` if there is no such coupon.
    pub async fn at(
        &self,
        connection: &mut PgConnection,
        coupon: CouponId,
        revision: i64,
    ) -> sqlx::Result<Option<Price>> {
        let key = (coupon, revision);
        if let Some(price) = self.known.get(&key).await {
            return Ok(Some(price));
        }
        let found = sqlx::query_as!(
            Price,
            "SELECT pay_cents, currency FROM coupon_prices
             WHERE coupon_id = $1 AND revision <= $2 ORDER BY revision DESC LIMIT 1",
            coupon.get(),
            revision,
        )
        .fetch_optional(connection)
        .await?;
        if let Some(price) = &found {
            self.known.insert(key, price.clone()).await;
        }
        Ok(found)
    }
}

/// The price of this coupon at this time, or its first price if that is later, because clocks differ; `None` if there
/// is no such coupon.
pub async fn at_time(
    connection: &mut PgConnection,
    coupon: CouponId,
    time: DateTime<Utc>,
) -> sqlx::Result<Option<Price>> {
    sqlx::query_as!(
        Price,
        "SELECT pay_cents, currency FROM coupon_prices
         WHERE coupon_id = $1 AND (since <= $2 OR revision = 1) ORDER BY revision DESC LIMIT 1",
        coupon.get(),
        time,
    )
    .fetch_optional(connection)
    .await
}
