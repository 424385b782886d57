//! Postgres's side of a comparison: the expected sale, and its live orders.
//!
//! Live orders are read in pages, so that no statement comes near the time limit of the pool, and in one snapshot, since
//! their number and `sold` have to be of one moment.

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use super::super::Disagreement;
use crate::kit::postgres;
use crate::sale::coupon::model::CouponState;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::order::live;

/// A sale in Postgres.
pub struct Terms {
    pub total: i64,
    pub state: CouponState,
    pub revision: i64,
    pub opens_at: DateTime<Utc>,
    pub closes_at: DateTime<Utc>,
    /// Epoch of the lane; none while a recovery takes its sales over into a new one.
    pub epoch: Option<i64>,
    /// Time since the last change.
    pub changed_ms_ago: i64,
}

/// The units of a sale.
pub struct Units {
    /// Units on offer.
    pub total: i64,
    /// Units sold, by the sale's own count.
    pub sold: i64,
}

/// The terms of a sale that Redis has to hold; `None` once it has been archived.
pub async fn terms(pool: &PgPool, coupon: CouponId) -> sqlx::Result<Option<Terms>> {
    sqlx::query_as!(
        Terms,
        r#"SELECT total, state AS "state: CouponState", revision, opens_at, closes_at,
                  (SELECT epoch FROM lanes WHERE lane = (coupon_id & 1023) AND lanes.state = 'open') AS epoch,
                  (extract(epoch FROM clock_timestamp() - coupons.updated_at) * 1000)::bigint AS "changed_ms_ago!"
           FROM coupons JOIN flash_sales ON coupon_id = id
           WHERE id = $1 AND loaded_at IS NOT NULL AND archived_at IS NULL"#,
        coupon.get(),
    )
    .fetch_optional(pool)
    .await
}

/// Tells `each` about every live order of a flash coupon; all of them, and the units, are of one moment.
pub async fn each_live(
    pool: &PgPool,
    coupon: CouponId,
    mut each: impl FnMut(UserId, OrderId),
) -> sqlx::Result<Units> {
    let mut snapshot = postgres::begin_snapshot(pool).await?;
    let units = sqlx::query_as!(
        Units,
        "SELECT total, sold FROM flash_sales WHERE coupon_id = $1",
        coupon.get(),
    )
    .fetch_one(&mut *snapshot)
    .await?;
    let mut after = None;
    loop {
        let page = live::live_page(&mut *snapshot, coupon, after, live::SNAPSHOT_PAGE).await?;
        let Some((last, _)) = page.last() else {
            snapshot.rollback().await?;
            return Ok(units);
        };
        after = Some(*last);
        page.into_iter().for_each(|(user, order)| each(user, order));
    }
}

/// Live orders against the units that they are of.
pub fn compare_units(coupon: CouponId, live_orders: usize, of: &Units) -> Vec<Disagreement> {
    let Units { total, sold } = *of;
    let mut found = Vec::new();
    if i64::try_from(live_orders).is_ok_and(|live| live > total) {
        found.push(Disagreement::Oversold { coupon, live_orders, total });
    }
    if usize::try_from(sold) != Ok(live_orders) {
        found.push(Disagreement::SoldMiscounted { coupon, sold, live_orders });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_oversold_from_one_above_the_total_on_and_miscounted_where_sold_is_another_number()
    {
        let coupon = CouponId::compose(1, 1);
        for (live_orders, total, sold, expected) in [
            (0, 0, 0, &[][..]),
            (5, 5, 5, &[]),
            (5, 6, 5, &[]),
            (6, 5, 6, &["oversold"]),
            (5, 6, 4, &["sold_miscounted"]),
            (5, 6, 6, &["sold_miscounted"]),
            (0, 6, -1, &["sold_miscounted"]),
            (7, 6, 5, &["oversold", "sold_miscounted"]),
        ] {
            let found = compare_units(coupon, live_orders, &Units { total, sold });
            let codes: Vec<&str> = found.iter().map(Disagreement::code).collect();
            assert_eq!(codes, expected, "{live_orders} {total} {sold}");
        }
    }
}
