//! The bound on orders that their buyer closes, to claim the same coupon again and again.
//!
//! The claim of a regular coupon is refused once its user has closed too many. A claim of a flash coupon is decided in
//! Redis, which knows no closed orders; so there the *cancelling* is refused, and the order keeps its unit until it is paid
//! or expires. A user holds one live order of a flash coupon, so no two are cancelled at once. A refund is never refused,
//! because the money is the buyer's; so who has been refunded as often can't pay.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::base::limits;
use crate::coupon::model::CouponKind;
use crate::store::ids::{CouponId, UserId, order_id};

/// Bound on the closed orders that one user leaves of one coupon within [`limits::CLOSED_ORDERS_TIME`], by the
/// seconds in their ids.
#[derive(Clone, Copy, Debug)]
pub struct ClosedOrders {
    /// The number; 0 for no bound.
    pub most: u32,
}

impl ClosedOrders {
    /// Time after which the user has closed fewer orders of this coupon than may be; `None` if that is so now, or the coupon
    /// isn't of this kind. Of refunded orders only, or of all.
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

/// Time until a closed order counts no more.
fn rest_of(order: i64, now: DateTime<Utc>) -> Duration {
    let age = now - order_id::time_of(order);
    // A second more, because ids tell seconds only.
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
