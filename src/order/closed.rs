//! Limits how many orders a user may close and claim again.
//!
//! A regular coupon's claim is refused once the user has closed too many orders of it. Redis decides the claims of
//! flash coupons and knows no closed orders, so there the *cancellation* is refused: the order keeps its unit until it
//! is paid or expires. A user holds at most one live order of a flash coupon, so two cancellations never race. A refund
//! of money is never refused, because the money is the buyer's. Instead, a user with too many refunded orders can't pay
//! for the next one.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::base::limits;
use crate::coupon::model::CouponKind;
use crate::store::ids::{CouponId, UserId, order_id};

/// How many orders of one coupon a user may close within [`limits::CLOSED_ORDERS_TIME`]. An order's age counts from the
/// second in its id.
#[derive(Clone, Copy, Debug)]
pub struct ClosedOrders {
    /// 0 means no limit.
    pub most: u32,
}

impl ClosedOrders {
    /// How long the user has to wait until enough closed orders of this coupon are too old to count; `None` if the user
    /// may close one now, or the coupon isn't of this kind. Counts refunded orders only if `only_refunded`.
    pub(crate) async fn wait(
        self,
        pool: &PgPool,
        (coupon, user): (CouponId, UserId),
        kind: CouponKind,
        only_refunded: bool,
    ) -> sqlx::Result<Option<Duration>> {
        if self.most == 0 {
            return Ok(None);
        }
        let oldest = sqlx::query!(
            r#"SELECT id, now() AS "now!" FROM orders
               WHERE user_id = $1 AND id > (floor(extract(epoch FROM now()))::bigint - 1640995200 - $2) << 32
                 AND coupon_id = $3 AND kind = $4 AND NOT is_live(status) AND (NOT $5 OR status = 'refunded')
               ORDER BY id DESC OFFSET $6 LIMIT 1"#,
            user.get(),
            limits::CLOSED_ORDERS_TIME.as_secs().cast_signed(),
            coupon.get(),
            kind.as_str(),
            only_refunded,
            i64::from(self.most) - 1,
        )
        .fetch_optional(pool)
        .await?;
        Ok(oldest.map(|oldest| rest_of(oldest.id, oldest.now)))
    }
}

/// Time until a closed order no longer counts.
fn rest_of(order: i64, now: DateTime<Utc>) -> Duration {
    let age = now - order_id::time_of(order);
    // One second more, because ids have a resolution of a second.
    let rest = limits::CLOSED_ORDERS_TIME + Duration::from_secs(1);
    rest.saturating_sub(age.to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_order_counts_for_an_hour_and_a_second_from_the_second_in_its_id() {
        let id = order_id::first_at("2026-11-21T12:00:00Z".parse().expect("a time"));
        for (age, rest) in [(0, 3_601), (1, 3_600), (3_600, 1), (3_601, 0), (4_000, 0), (-5, 3_601)]
        {
            let now = order_id::time_of(id) + chrono::TimeDelta::seconds(age);
            assert_eq!(rest_of(id + 77, now), Duration::from_secs(rest), "after {age} s");
        }
    }
}
