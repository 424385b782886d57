//! The staff's search in the history, in the order of the search in `orders` (`sale/order/read.rs`): the last claim first.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgConnection, PgPool};

use super::window::{self, Window};
use crate::kit::{id, postgres};
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::order::model::{Order, OrderFilter, OrderStatus, RedemptionCode};

/// Largest difference between the time of a claim and the time in its order's id for which an order of the history is
/// found by a search: one is told by Redis's clock, the other by that of an instance.
pub const CLOCKS_APART_MAX: TimeDelta = TimeDelta::days(1);

/// Months that a page of this search reads; `None` if the history has none of them.
pub async fn window(
    pool: &PgPool,
    filter: &OrderFilter,
    behind: Option<Place>,
) -> sqlx::Result<Option<Window>> {
    let (_, end) = ids(filter, behind);
    window::before(pool, (end < i64::MAX).then_some(end)).await
}

/// Statuses of moved orders.
const STATUSES: [OrderStatus; 4] =
    [OrderStatus::Redeemed, OrderStatus::Cancelled, OrderStatus::Expired, OrderStatus::Refunded];

/// A place in a list that has the last claim first: everything listed was claimed before this time, or in the same
/// microsecond under a smaller id.
pub type Place = (DateTime<Utc>, i64);

/// Moved orders, the last claim first, from behind this place on; without their redemption codes.
pub async fn search(
    pool: &PgPool,
    filter: &OrderFilter,
    behind: Option<Place>,
    limit: u32,
) -> sqlx::Result<Vec<Order>> {
    let ids = ids(filter, behind);
    // A plan for any values locks all partitions.
    let mut tx = postgres::begin_planning(pool).await?;
    match filter.user {
        Some(user) => of_user(&mut tx, (user, filter), behind, ids, limit).await,
        None => of_all(&mut tx, filter, behind, ids, limit).await,
    }
}

/// The ids that orders may have of these times: they name the partitions that are read.
fn ids(filter: &OrderFilter, behind: Option<Place>) -> (i64, i64) {
    let end = [filter.to, behind.map(|(time, _)| time)].into_iter().flatten().min();
    let first = filter.from.and_then(|from| from.checked_sub_signed(CLOCKS_APART_MAX));
    // The second in an id is rounded down.
    let end = end.and_then(|end| end.checked_add_signed(CLOCKS_APART_MAX + TimeDelta::seconds(1)));
    (first.map_or(0, id::first_at), end.map_or(i64::MAX, id::first_at))
}

fn statuses(filter: &OrderFilter) -> Vec<String> {
    let asked = STATUSES.into_iter().filter(|one| filter.status.is_none_or(|only| only == *one));
    asked.map(|status| status.as_str().to_owned()).collect()
}

async fn of_user(
    tx: &mut PgConnection,
    (user, filter): (UserId, &OrderFilter),
    behind: Option<Place>,
    (first, end): (i64, i64),
    limit: u32,
) -> sqlx::Result<Vec<Order>> {
    sqlx::query_as!(
        Order,
        r#"SELECT id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                  CASE WHEN user_id > 0 THEN user_id END AS "user_id: UserId", status AS "status: OrderStatus", pay_method,
                  pay_cents AS "pay_cents!", currency AS "currency!", pay_by,
                  claimed_at, paid_at, redeemed_at, cancelled_at, expired_at, refunding_at, refunded_at,
                  CASE WHEN status = 'cancelled' THEN cancel_reason END AS cancel_reason,
                  NULL::text AS "redemption_code: RedemptionCode"
           FROM order_history
           WHERE user_id = $1 AND coupon_id = coalesce($2, coupon_id) AND status = coalesce($3, status)
             AND claimed_at >= coalesce($4::timestamptz, '-infinity')
             AND claimed_at < coalesce($5::timestamptz, 'infinity')
             AND (claimed_at, id) < (coalesce($6::timestamptz, 'infinity'), coalesce($7, 9223372036854775807))
             AND id >= $8 AND id < $9
           ORDER BY claimed_at DESC, id DESC LIMIT $10"#,
        user.get(),
        filter.coupon.map(CouponId::get),
        filter.status.map(OrderStatus::as_str),
        filter.from,
        filter.to,
        behind.map(|(time, _)| time),
        behind.map(|(_, id)| id),
        first,
        end,
        i64::from(limit),
    )
    .fetch_all(tx)
    .await
}

/// Each status is read by an index of its own order: that of the coupon, if there is one.
async fn of_all(
    tx: &mut PgConnection,
    filter: &OrderFilter,
    behind: Option<Place>,
    (first, end): (i64, i64),
    limit: u32,
) -> sqlx::Result<Vec<Order>> {
    sqlx::query_as!(
        Order,
        r#"SELECT found.id AS "order_id!: OrderId", found.coupon_id AS "coupon_id!: CouponId",
                  CASE WHEN found.user_id > 0 THEN found.user_id END AS "user_id: UserId",
                  found.status AS "status!: OrderStatus", found.pay_method, found.pay_cents AS "pay_cents!",
                  found.currency AS "currency!", found.pay_by, found.claimed_at AS "claimed_at!", found.paid_at,
                  found.redeemed_at, found.cancelled_at, found.expired_at, found.refunding_at, found.refunded_at, found.cancel_reason,
                  NULL::text AS "redemption_code: RedemptionCode"
           FROM UNNEST($1::text[]) AS one (status) CROSS JOIN LATERAL (
               SELECT * FROM order_history
               WHERE coupon_id = coalesce($9, coupon_id) AND order_history.status = one.status
                 AND claimed_at >= coalesce($2::timestamptz, '-infinity')
                 AND claimed_at < coalesce($3::timestamptz, 'infinity')
                 AND (claimed_at, id) < (coalesce($4::timestamptz, 'infinity'), coalesce($5, 9223372036854775807))
                 AND id >= $6 AND id < $7
               ORDER BY claimed_at DESC, id DESC LIMIT $8) AS found
           ORDER BY found.claimed_at DESC, found.id DESC LIMIT $8"#,
        &statuses(filter),
        filter.from,
        filter.to,
        behind.map(|(time, _)| time),
        behind.map(|(_, id)| id),
        first,
        end,
        i64::from(limit),
        filter.coupon.map(CouponId::get),
    )
    .fetch_all(tx)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    #[test]
    fn ids_are_searched_from_a_day_before_the_times_to_a_day_and_a_second_behind() {
        let [first, middle, last] =
            ["2026-11-10T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-30T00:00:00Z"].map(at);
        let [from, end] =
            ["2026-11-09T00:00:00Z", "2026-12-01T00:00:01Z"].map(|text| id::first_at(at(text)));
        let early_end = id::first_at(at("2026-11-21T00:00:01Z"));
        for (from_time, to_time, behind, ids_from, ids_end) in [
            (None, None, None, 0, i64::MAX),
            (Some(first), None, None, from, i64::MAX),
            (None, Some(last), None, 0, end),
            (None, Some(last), Some(middle), 0, early_end),
            (Some(first), Some(middle), Some(last), from, early_end),
            (None, None, Some(last), 0, end),
        ] {
            let filter = OrderFilter { from: from_time, to: to_time, ..OrderFilter::default() };
            let found = ids(&filter, behind.map(|time| (time, 7)));
            assert_eq!(found, (ids_from, ids_end), "{filter:?} {behind:?}");
        }
    }

    #[test]
    fn moved_orders_have_one_of_four_statuses() {
        for (status, asked) in [
            (None, &["redeemed", "cancelled", "expired", "refunded"][..]),
            (Some(OrderStatus::Expired), &["expired"]),
            (Some(OrderStatus::Unpaid), &[]),
        ] {
            assert_eq!(statuses(&OrderFilter { status, ..OrderFilter::default() }), asked);
        }
    }
}
