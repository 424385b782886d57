//! All rows that this room has of a user.

use serde_json::Value;
use sqlx::PgConnection;

use crate::kit::postgres;
use crate::sale::ids::UserId;

/// Rows of a user, as Postgres has them, oldest first.
#[derive(Debug)]
pub struct Rows {
    /// Orders.
    pub orders: Vec<Value>,
    /// Redemptions of these orders.
    pub redemptions: Vec<Value>,
    /// Units and places that came back, or will.
    pub stock_returns: Vec<Value>,
    /// Claims that could not become orders.
    pub dead_letters: Vec<Value>,
}

/// Reads all rows of a user.
pub async fn rows(tx: &mut PgConnection, user: UserId) -> sqlx::Result<Rows> {
    postgres::plan_for_values(&mut *tx).await?;
    let user = user.get();
    let orders = sqlx::query_scalar!(
        r#"SELECT to_jsonb(orders) AS "row!" FROM every_order AS orders WHERE user_id = $1 ORDER BY id"#,
        user,
    );
    let orders = orders.fetch_all(&mut *tx).await?;
    let redemptions = sqlx::query_scalar!(
        r#"SELECT to_jsonb(redemptions) AS "row!" FROM every_redemption AS redemptions
           WHERE order_id = ANY(ARRAY(SELECT id FROM every_order WHERE user_id = $1)) ORDER BY order_id"#,
        user,
    );
    let redemptions = redemptions.fetch_all(&mut *tx).await?;
    let stock_returns = sqlx::query_scalar!(
        r#"SELECT to_jsonb(stock_returns) AS "row!" FROM every_stock_return AS stock_returns
           WHERE order_id = ANY(ARRAY(SELECT id FROM every_order WHERE user_id = $1)) ORDER BY order_id, what"#,
        user,
    );
    let stock_returns = stock_returns.fetch_all(&mut *tx).await?;
    let dead_letters = sqlx::query_scalar!(
        r#"SELECT to_jsonb(dead_letters) AS "row!" FROM dead_letters WHERE user_id = $1 ORDER BY id"#,
        user,
    );
    let dead_letters = dead_letters.fetch_all(tx).await?;
    Ok(Rows { orders, redemptions, stock_returns, dead_letters })
}

/// The claims among these that are no orders. A letter of a conflict names the order of another user, which is no part of
/// this one's data.
pub async fn unwritten(tx: &mut PgConnection, claims: &[i64]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"SELECT claim AS "claim!" FROM UNNEST($1::bigint[]) AS claim
           WHERE NOT EXISTS (SELECT FROM every_order WHERE every_order.id = claim)"#,
        claims,
    )
    .fetch_all(tx)
    .await
}
