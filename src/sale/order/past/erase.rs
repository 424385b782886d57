//! Orders without their user: they stay for the books under a number that is no user's, each under another.

use sqlx::PgConnection;

use crate::sale::ids::UserId;

/// Locks the orders of a user until the end of the transaction. Returns their ids.
pub async fn lock(tx: &mut PgConnection, user: UserId) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        "SELECT id FROM orders WHERE user_id = $1 ORDER BY id FOR UPDATE",
        user.get()
    )
    .fetch_all(tx)
    .await
}

/// Takes the user off these orders, and deletes their stock returns, all of which are done. Returns the number of orders.
pub async fn orders(tx: &mut PgConnection, orders: &[i64]) -> sqlx::Result<u64> {
    sqlx::query!("DELETE FROM stock_returns WHERE order_id = ANY($1)", orders)
        .execute(&mut *tx)
        .await?;
    let done = sqlx::query!(
        "UPDATE orders SET user_id = -id, updated_at = now() WHERE id = ANY($1)",
        orders,
    );
    Ok(done.execute(tx).await?.rows_affected())
}

/// Deletes the closed dead letters of a user, with what their entries hold. Returns the order ids of their claims.
pub async fn letters(tx: &mut PgConnection, user: UserId) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"DELETE FROM dead_letters WHERE user_id = $1 AND resolved_at IS NOT NULL
           RETURNING order_id AS "order_id!""#,
        user.get(),
    )
    .fetch_all(tx)
    .await
}
