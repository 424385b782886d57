//! Reads orders: a user's own, and those that other modules need.

use std::cmp::Reverse;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgConnection, PgPool};

use super::model::{Order, OrderFilter, OrderStatus, RedemptionCode};
use super::write::Orders;
use crate::store::ids::{CouponId, OrderId, UserId, order_id};
use crate::store::postgres;

#[derive(Debug)]
pub struct Listed {
    pub orders: Vec<Order>,
    /// The last order of this page, after which the next page begins; `None` on the last page.
    pub next: Option<OrderId>,
}

/// One order, of any user.
pub(crate) async fn find(pool: &PgPool, order: OrderId) -> sqlx::Result<Option<Order>> {
    Ok(find_all(pool, &[order]).await?.pop())
}

/// Which of these orders have been written, of any user.
async fn find_all(pool: &PgPool, orders: &[OrderId]) -> sqlx::Result<Vec<Order>> {
    let ids: Vec<i64> = orders.iter().map(|order| order.get()).collect();
    sqlx::query_as!(
        Order,
        r#"SELECT id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                  user_id AS "user_id: UserId", status AS "status: OrderStatus", pay_method,
                  pay_cents, currency, pay_by,
                  claimed_at, paid_at, redeemed_at, cancelled_at, expired_at, refunding_at, refunded_at,
                  CASE WHEN status = 'cancelled' THEN cancel_reason END AS cancel_reason,
                  (SELECT code FROM redemptions WHERE order_id = orders.id AND status = 'paid') AS "redemption_code: RedemptionCode"
           FROM orders WHERE id = ANY($1)"#,
        &ids,
    )
    .fetch_all(pool)
    .await
}

impl Orders {
    /// The user's order. Another user's order isn't found.
    pub async fn get(&self, user: UserId, order: OrderId) -> sqlx::Result<Option<Order>> {
        Ok(find(&self.pool, order).await?.filter(|found| found.user_id == user))
    }

    /// Which of these orders have been written, of any user.
    pub async fn written(&self, orders: &[OrderId]) -> sqlx::Result<Vec<Order>> {
        find_all(&self.pool, orders).await
    }

    /// The user's orders older than `before`, newest first.
    pub async fn list(
        &self,
        user: UserId,
        before: Option<OrderId>,
        limit: u32,
    ) -> sqlx::Result<Listed> {
        let ids = sqlx::query_scalar!(
            r#"SELECT id AS "id: OrderId" FROM orders WHERE user_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3"#,
            user.get(),
            before.map_or(i64::MAX, OrderId::get),
            i64::from(limit) + 1,
        );
        let ids = ids.fetch_all(&self.pool).await?;
        self.page(ids, limit).await
    }

    /// Orders of all users older than `before`, newest first, without redemption codes.
    pub async fn search(
        &self,
        filter: &OrderFilter,
        before: Option<OrderId>,
        limit: u32,
    ) -> sqlx::Result<Listed> {
        let range = (
            filter.from.map_or(0, order_id::first_at),
            filter.to.map_or(i64::MAX, first_after).min(before.map_or(i64::MAX, OrderId::get)),
        );
        let most = i64::from(limit) + 1;
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let ids = match (filter.user, filter.coupon) {
            (Some(user), _) => ids_of_user(&mut tx, user, filter, range, most).await?,
            (None, Some(coupon)) => ids_of_coupon(&mut tx, coupon, filter, range, most).await?,
            (None, None) => ids_of_all(&mut tx, filter, range, most).await?,
        };
        tx.commit().await?;
        let Listed { orders, next } = self.page(ids, limit).await?;
        Ok(Listed { orders: orders.into_iter().map(Order::without_code).collect(), next })
    }

    /// A page for an export. Reads `look` orders whether or not they match the filter, so that each page takes the same
    /// time. A page before the last may be empty.
    pub async fn export(
        &self,
        filter: &OrderFilter,
        before: Option<OrderId>,
        check: u32,
    ) -> sqlx::Result<Listed> {
        let mut tx = postgres::begin_by_index(&self.pool).await?;
        let seen = sqlx::query!(
            r#"SELECT id AS "id: OrderId",
                      coalesce(user_id = $3, true) AND coalesce(coupon_id = $4, true) AND coalesce(status = $5, true)
                          AND claimed_at >= coalesce($6::timestamptz, '-infinity')
                          AND claimed_at < coalesce($7::timestamptz, 'infinity') AS "is_asked_for!"
               FROM orders WHERE id >= $1 AND id < $2 ORDER BY id DESC LIMIT $8"#,
            filter.from.map_or(0, order_id::first_at),
            filter.to.map_or(i64::MAX, first_after).min(before.map_or(i64::MAX, OrderId::get)),
            filter.user.map(UserId::get),
            filter.coupon.map(CouponId::get),
            filter.status.map(OrderStatus::as_str),
            filter.from,
            filter.to,
            i64::from(check),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let next = seen.last().map(|row| row.id).filter(|_| seen.len() == check as usize);
        let ids: Vec<OrderId> =
            seen.into_iter().filter(|row| row.is_asked_for).map(|row| row.id).collect();
        let Listed { orders, .. } = self.page(ids, check).await?;
        Ok(Listed { orders: orders.into_iter().map(Order::without_code).collect(), next })
    }

    /// The orders with these ids. One id more than `limit` means that there is another page.
    async fn page(&self, mut ids: Vec<OrderId>, limit: u32) -> sqlx::Result<Listed> {
        let is_full = ids.len() > limit as usize;
        ids.truncate(limit as usize);
        let next = ids.last().copied().filter(|_| is_full);
        let mut orders = self.written(&ids).await?;
        orders.sort_unstable_by_key(|order| Reverse(order.order_id));
        Ok(Listed { orders, next })
    }

    /// The user's newest order of this coupon.
    pub async fn last_of(
        &self,
        coupon: CouponId,
        user: UserId,
    ) -> sqlx::Result<Option<(OrderId, OrderStatus)>> {
        let row = sqlx::query!(
            // `+ 0` keeps stale plans from using an index on coupons, which would read all orders of this one.
            r#"SELECT id AS "id: OrderId", status AS "status: OrderStatus" FROM orders
               WHERE user_id = $1 AND coupon_id + 0 = $2 ORDER BY id DESC LIMIT 1"#,
            user.get(),
            coupon.get(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| (row.id, row.status)))
    }

    /// The user's live order of this coupon. For a regular coupon: an unpaid order, or a free one that isn't redeemed.
    pub async fn live_of(&self, coupon: CouponId, user: UserId) -> sqlx::Result<Option<OrderId>> {
        sqlx::query_scalar!(
            // Three parts, each with a unique index. An OR could only use the index on the user's orders.
            r#"SELECT id AS "id!: OrderId" FROM orders
               WHERE coupon_id = $1 AND user_id = $2 AND kind = 'flash' AND is_live(status)
               UNION ALL
               SELECT id FROM orders
               WHERE coupon_id = $1 AND user_id = $2 AND kind = 'regular' AND status = 'unpaid'
               UNION ALL
               SELECT id FROM orders
               WHERE coupon_id = $1 AND user_id = $2 AND kind = 'regular' AND status = 'paid' AND pay_cents = 0"#,
            coupon.get(),
            user.get(),
        )
        .fetch_optional(&self.pool)
        .await
    }
}

/// The lowest id above all ids of this second.
fn first_after(time: DateTime<Utc>) -> i64 {
    order_id::first_at(time + TimeDelta::seconds(1))
}

/// Reads all orders of the user, who has few.
async fn ids_of_user(
    tx: &mut PgConnection,
    user: UserId,
    filter: &OrderFilter,
    (first, end): (i64, i64),
    most: i64,
) -> sqlx::Result<Vec<OrderId>> {
    sqlx::query_scalar!(
        r#"SELECT id AS "id: OrderId" FROM orders
           WHERE user_id = $1 AND coupon_id = coalesce($2, coupon_id) AND status = coalesce($3, status)
             AND id >= $4 AND id < $5
             AND claimed_at >= coalesce($6::timestamptz, '-infinity')
             AND claimed_at < coalesce($7::timestamptz, 'infinity')
           ORDER BY id DESC LIMIT $8"#,
        user.get(),
        filter.coupon.map(CouponId::get),
        filter.status.map(OrderStatus::as_str),
        first,
        end,
        filter.from,
        filter.to,
        most,
    )
    .fetch_all(tx)
    .await
}

/// Reads a page of each status by an index, and takes the newest of all. Row comparison and row order make only that
/// index fit. With `ORDER BY id`, Postgres might scan the primary key, where a rare status is far away.
async fn ids_of_coupon(
    tx: &mut PgConnection,
    coupon: CouponId,
    filter: &OrderFilter,
    (first, end): (i64, i64),
    most: i64,
) -> sqlx::Result<Vec<OrderId>> {
    sqlx::query_scalar!(
        r#"SELECT found.id AS "id!: OrderId"
           FROM UNNEST($2::text[]) AS one (status) CROSS JOIN LATERAL (
               SELECT id FROM orders
               WHERE (coupon_id, orders.status, id) >= ($1, one.status, $3)
                 AND (coupon_id, orders.status, id) < ($1, one.status, $4)
                 AND claimed_at >= coalesce($5::timestamptz, '-infinity')
                 AND claimed_at < coalesce($6::timestamptz, 'infinity')
               ORDER BY coupon_id DESC, orders.status DESC, id DESC LIMIT $7) AS found
           ORDER BY found.id DESC LIMIT $7"#,
        coupon.get(),
        &statuses_of(filter),
        first,
        end,
        filter.from,
        filter.to,
        most,
    )
    .fetch_all(tx)
    .await
}

/// The same for all coupons.
async fn ids_of_all(
    tx: &mut PgConnection,
    filter: &OrderFilter,
    (first, end): (i64, i64),
    most: i64,
) -> sqlx::Result<Vec<OrderId>> {
    sqlx::query_scalar!(
        r#"SELECT found.id AS "id!: OrderId"
           FROM UNNEST($1::text[]) AS one (status) CROSS JOIN LATERAL (
               SELECT id FROM orders
               WHERE (orders.status, id) >= (one.status, $2) AND (orders.status, id) < (one.status, $3)
                 AND claimed_at >= coalesce($4::timestamptz, '-infinity')
                 AND claimed_at < coalesce($5::timestamptz, 'infinity')
               ORDER BY orders.status DESC, id DESC LIMIT $6) AS found
           ORDER BY found.id DESC LIMIT $6"#,
        &statuses_of(filter),
        first,
        end,
        filter.from,
        filter.to,
        most,
    )
    .fetch_all(tx)
    .await
}

fn statuses_of(filter: &OrderFilter) -> Vec<String> {
    let asked = |status: &OrderStatus| filter.status.is_none_or(|only| only == *status);
    OrderStatus::ALL.into_iter().filter(asked).map(|status| status.as_str().to_owned()).collect()
}
