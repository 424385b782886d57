//! Reading orders: a user's own, and those that other rooms ask for.

use std::cmp::Reverse;

use chrono::{DateTime, Utc};

use super::model::{Order, OrderFilter, OrderStatus, RedemptionCode};
use super::write::Orders;
use crate::sale::ids::{CouponId, OrderId, UserId, order_id};

/// A place in a list that has the last claim first: everything listed was claimed before this time, or in the same
/// microsecond under a smaller id.
type Place = (DateTime<Utc>, i64);

/// A page of a list of orders.
#[derive(Debug)]
pub struct Listed {
    /// The orders.
    pub orders: Vec<Order>,
    /// The last order, behind which the next page begins; `None` on the last page.
    pub next: Option<OrderId>,
}

impl Listed {
    /// Cuts sorted orders down to a page.
    fn cut(mut found: Vec<Order>, limit: u32) -> Self {
        let is_full = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next = found.last().map(|order| order.order_id).filter(|_| is_full);
        Self { orders: found, next }
    }
}

impl Orders {
    /// The user's order; another user's order doesn't exist for the user.
    pub async fn get(&self, user: UserId, order: OrderId) -> sqlx::Result<Option<Order>> {
        Ok(self.select(user, Some(order), None, 1).await?.pop())
    }

    /// The orders among these that have been written, of any user, without their redemption codes.
    pub async fn written(&self, orders: &[OrderId]) -> sqlx::Result<Vec<Order>> {
        let ids: Vec<i64> = orders.iter().map(|order| order.get()).collect();
        sqlx::query_as!(
            Order,
            r#"SELECT id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                      user_id AS "user_id: UserId", status AS "status: OrderStatus", pay_method,
                      pay_cents, currency, pay_by,
                      claimed_at, paid_at, redeemed_at, cancelled_at, expired_at, refunding_at, refunded_at,
                      CASE WHEN status = 'cancelled' THEN cancel_reason END AS cancel_reason,
                      NULL::text AS "redemption_code: RedemptionCode"
               FROM orders WHERE id = ANY($1)"#,
            &ids,
        )
        .fetch_all(&self.pool)
        .await
    }

    /// The user's orders, newest first, from before the given one on.
    pub async fn list(
        &self,
        user: UserId,
        before: Option<OrderId>,
        limit: u32,
    ) -> sqlx::Result<Listed> {
        let found = self.select(user, None, before, limit.saturating_add(1)).await?;
        Ok(Listed::cut(found, limit))
    }

    /// Orders of all users, the last claim first, from behind the given order on; without their redemption codes.
    pub async fn search(
        &self,
        filter: &OrderFilter,
        behind: Option<OrderId>,
        limit: u32,
    ) -> sqlx::Result<Listed> {
        let behind = match behind {
            None => None,
            Some(order) => Some(self.place_of(order).await?),
        };
        let most = limit.saturating_add(1);
        let ids = match filter.user {
            Some(user) => self.ids_of_user(user, filter, behind, most).await?,
            None => self.ids_of_statuses(filter, behind, most).await?,
        };
        let mut found = self.written(&ids).await?;
        found.sort_unstable_by_key(|order| Reverse((order.claimed_at, order.order_id)));
        Ok(Listed::cut(found, limit))
    }

    /// The place of an order in a search. An order that was deleted meanwhile stands where its id says.
    async fn place_of(&self, order: OrderId) -> sqlx::Result<Place> {
        let found = self.written(&[order]).await?.pop();
        let place = (order_id::time_of(order.get()), 0);
        Ok(found.map_or(place, |found| (found.claimed_at, order.get())))
    }

    /// Reads all orders of the user, of which there are few.
    async fn ids_of_user(
        &self,
        user: UserId,
        filter: &OrderFilter,
        behind: Option<Place>,
        limit: u32,
    ) -> sqlx::Result<Vec<OrderId>> {
        sqlx::query_scalar!(
            r#"SELECT id AS "id: OrderId" FROM orders
               WHERE user_id = $1 AND coupon_id = coalesce($2, coupon_id) AND status = coalesce($3, status)
                 AND claimed_at >= coalesce($4::timestamptz, '-infinity')
                 AND claimed_at < coalesce($5::timestamptz, 'infinity')
                 AND (claimed_at, id) < (coalesce($6::timestamptz, 'infinity'), coalesce($7, 9223372036854775807))
               ORDER BY claimed_at DESC, id DESC LIMIT $8"#,
            user.get(),
            filter.coupon.map(CouponId::get),
            filter.status.map(OrderStatus::as_str),
            filter.from,
            filter.to,
            behind.map(|(time, _)| time),
            behind.map(|(_, id)| id),
            i64::from(limit),
        )
        .fetch_all(&self.pool)
        .await
    }

    /// Reads a page of each status by an index, and takes the newest of all.
    async fn ids_of_statuses(
        &self,
        filter: &OrderFilter,
        behind: Option<Place>,
        limit: u32,
    ) -> sqlx::Result<Vec<OrderId>> {
        let asked = |status: &OrderStatus| filter.status.is_none_or(|only| only == *status);
        let statuses = OrderStatus::ALL.into_iter().filter(asked);
        let statuses: Vec<String> = statuses.map(|status| status.as_str().to_owned()).collect();
        let Some(coupon) = filter.coupon else {
            return sqlx::query_scalar!(
                r#"SELECT found.id AS "id!: OrderId"
                   FROM UNNEST($1::text[]) AS one (status) CROSS JOIN LATERAL (
                       SELECT id, claimed_at FROM orders
                       WHERE orders.status = one.status
                         AND claimed_at >= coalesce($2::timestamptz, '-infinity')
                         AND claimed_at < coalesce($3::timestamptz, 'infinity')
                         AND (claimed_at, id) < (coalesce($4::timestamptz, 'infinity'), coalesce($5, 9223372036854775807))
                       ORDER BY claimed_at DESC, id DESC LIMIT $6) AS found
                   ORDER BY found.claimed_at DESC, found.id DESC LIMIT $6"#,
                &statuses,
                filter.from,
                filter.to,
                behind.map(|(time, _)| time),
                behind.map(|(_, id)| id),
                i64::from(limit),
            )
            .fetch_all(&self.pool)
            .await;
        };
        sqlx::query_scalar!(
            r#"SELECT found.id AS "id!: OrderId"
               FROM UNNEST($1::text[]) AS one (status) CROSS JOIN LATERAL (
                   SELECT id, claimed_at FROM orders
                   WHERE coupon_id = $7 AND orders.status = one.status
                     AND claimed_at >= coalesce($2::timestamptz, '-infinity')
                     AND claimed_at < coalesce($3::timestamptz, 'infinity')
                     AND (claimed_at, id) < (coalesce($4::timestamptz, 'infinity'), coalesce($5, 9223372036854775807))
                   ORDER BY claimed_at DESC, id DESC LIMIT $6) AS found
               ORDER BY found.claimed_at DESC, found.id DESC LIMIT $6"#,
            &statuses,
            filter.from,
            filter.to,
            behind.map(|(time, _)| time),
            behind.map(|(_, id)| id),
            i64::from(limit),
            coupon.get(),
        )
        .fetch_all(&self.pool)
        .await
    }

    async fn select(
        &self,
        user: UserId,
        order: Option<OrderId>,
        before: Option<OrderId>,
        limit: u32,
    ) -> sqlx::Result<Vec<Order>> {
        sqlx::query_as!(
            Order,
            r#"SELECT id AS "order_id: OrderId", coupon_id AS "coupon_id: CouponId",
                      user_id AS "user_id: UserId", status AS "status: OrderStatus", pay_method,
                      pay_cents, currency, pay_by,
                      claimed_at, paid_at, redeemed_at, cancelled_at, expired_at, refunding_at, refunded_at,
                      CASE WHEN status = 'cancelled' THEN cancel_reason END AS cancel_reason,
                      (SELECT code FROM redemptions WHERE order_id = orders.id AND status = 'paid') AS "redemption_code: RedemptionCode"
               FROM orders
               WHERE user_id = $1 AND id = coalesce($2, id) AND id < coalesce($3, 9223372036854775807)
               ORDER BY id DESC LIMIT $4"#,
            user.get(),
            order.map(OrderId::get),
            before.map(OrderId::get),
            i64::from(limit),
        )
        .fetch_all(&self.pool)
        .await
    }

    /// The user's latest order of this coupon.
    pub async fn last_of(
        &self,
        coupon: CouponId,
        user: UserId,
    ) -> sqlx::Result<Option<(OrderId, OrderStatus)>> {
        let row = sqlx::query!(
            // `+ 0`, so that no plan from a time without orders takes an index of coupons, and reads all orders of this one.
            r#"SELECT id AS "id: OrderId", status AS "status: OrderStatus" FROM orders
               WHERE user_id = $1 AND coupon_id + 0 = $2 ORDER BY id DESC LIMIT 1"#,
            user.get(),
            coupon.get(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| (row.id, row.status)))
    }

    /// The user's live order of this coupon; for a regular coupon, its unpaid one.
    pub async fn live_of(&self, coupon: CouponId, user: UserId) -> sqlx::Result<Option<OrderId>> {
        sqlx::query_scalar!(
            // In two parts, each with a unique index: a condition with OR would have no index but that of the user's orders.
            r#"SELECT id AS "id!: OrderId" FROM orders
               WHERE coupon_id = $1 AND user_id = $2 AND kind = 'flash' AND is_live(status)
               UNION ALL
               SELECT id FROM orders
               WHERE coupon_id = $1 AND user_id = $2 AND kind = 'regular' AND status = 'unpaid'"#,
            coupon.get(),
            user.get(),
        )
        .fetch_optional(&self.pool)
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(orders: &[Order]) -> Vec<i64> {
        orders.iter().map(|order| order.order_id.get()).collect()
    }

    #[test]
    fn a_page_that_is_cut_goes_on_behind_its_last_order() {
        for (found, limit, page, next) in [
            (&[][..], 2, &[][..], None),
            (&[9, 8], 2, &[9, 8], None),
            (&[9, 8, 7], 2, &[9, 8], Some(8)),
        ] {
            let orders = found.iter().map(|id| Order::example(*id, 1, OrderStatus::Unpaid));
            let cut = Listed::cut(orders.collect(), limit);
            assert_eq!(ids(&cut.orders), page, "{found:?}");
            assert_eq!(cut.next.map(OrderId::get), next, "{found:?}");
        }
    }
}
