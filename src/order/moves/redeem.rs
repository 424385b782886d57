//! Redeems a paid order, once. A repeated request gets the answer of the first one.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::{OrderMoves, REDEEM};
use crate::order::model::{Order, OrderStatus, RedemptionCode};
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::{OrderId, UserId};
use crate::store::postgres;
use crate::store::{Failure, repeated};

#[derive(Clone, Debug)]
pub struct Redemption {
    /// The subject of the clerk's token.
    pub clerk: UserId,
    /// The same clerk, for the audit log.
    pub by: Actor,
    /// Idempotency key, by which a repeat is recognised.
    pub key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redeeming {
    /// Redeemed by this request, now or before.
    Redeemed(Order),
    /// Redeemed by another request.
    Before {
        at: Option<DateTime<Utc>>,
        /// `None` if an older version of the service redeemed the order.
        by: Option<UserId>,
    },
    NotFound,
    /// An order in this status can't be redeemed.
    Impossible(OrderStatus),
}

impl OrderMoves {
    pub async fn redeem(&self, order: OrderId, request: Redemption) -> Result<Redeeming, Failure> {
        let moves = self.clone();
        let redeeming = async move { repeated(|| moves.redeem_now(order, request.clone())).await };
        self.to_the_end(redeeming).await
    }

    /// The order with this redemption code.
    pub async fn of_code(&self, code: &RedemptionCode) -> sqlx::Result<Option<Order>> {
        let order = sqlx::query_scalar!(
            r#"SELECT order_id AS "order_id: OrderId" FROM redemptions WHERE code = $1"#,
            code.canonical(),
        );
        match order.fetch_optional(&self.pool).await? {
            Some(order) => self.find(order).await,
            None => Ok(None),
        }
    }

    async fn redeem_now(&self, order: OrderId, request: Redemption) -> sqlx::Result<Redeeming> {
        let mut tx = postgres::begin(&self.pool).await?;
        let done = super::make(&mut tx, order, &REDEEM).await?;
        if done {
            sqlx::query!(
                "INSERT INTO redemptions (order_id, clerk, key) VALUES ($1, $2, $3)
                 ON CONFLICT (order_id) DO UPDATE SET clerk = excluded.clerk, key = excluded.key",
                order.get(),
                request.clerk.get(),
                request.key,
            )
            .execute(&mut *tx)
            .await?;
            let event = Event::of(Action::RedeemOrder, order.get())
                .before(json!({ "status": OrderStatus::Paid }))
                .after(json!({ "status": OrderStatus::Redeemed, "key": request.key }));
            audit::note(&mut tx, &request.by, event).await?;
        }
        tx.commit().await?;
        let Some(found) = self.find(order).await? else { return Ok(Redeeming::NotFound) };
        match found.status {
            _ if done => Ok(Redeeming::Redeemed(found)),
            OrderStatus::Redeemed => self.redeemed_before(found, &request).await,
            status => Ok(Redeeming::Impossible(status)),
        }
    }

    /// The answer for an order that was redeemed before.
    async fn redeemed_before(&self, order: Order, request: &Redemption) -> sqlx::Result<Redeeming> {
        let first = sqlx::query!(
            r#"SELECT clerk AS "clerk: UserId", key FROM redemptions WHERE order_id = $1"#,
            order.order_id.get(),
        )
        .fetch_optional(&self.pool)
        .await?;
        let (by, key) = first.map_or((None, None), |row| (row.clerk, row.key));
        let is_repeat = by == Some(request.clerk) && key.is_some() && key == request.key;
        Ok(match is_repeat {
            true => Redeeming::Redeemed(order),
            false => Redeeming::Before { at: order.redeemed_at, by },
        })
    }
}
