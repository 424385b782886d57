//! Stock returns that are done, and dead letters that are closed, are deleted after a time.
//!
//! Both tables are walked in the order of their keys, a page at a time: rows that stay may stand in front of rows that go.

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::kit::postgres::{self, Page};

/// Deletes the returns on a page that were done before this time. The page begins behind the order `behind`, and ends
/// before the order `end`.
pub async fn stock_returns(
    pool: &PgPool,
    (behind, end): (i64, i64),
    before: DateTime<Utc>,
    limit: u32,
) -> sqlx::Result<Page> {
    let mut tx = postgres::begin_planning(pool).await?;
    let orders = sqlx::query_scalar!(
        "SELECT order_id FROM stock_returns WHERE order_id > $1 AND order_id < $2 ORDER BY order_id, what LIMIT $3",
        behind,
        end,
        i64::from(limit),
    )
    .fetch_all(&mut *tx)
    .await?;
    let gone = sqlx::query!(
        "DELETE FROM stock_returns WHERE order_id = ANY($1) AND done_at < $2",
        &orders,
        before,
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    // The last order may have another row, which begins the next page.
    let last = orders.last().filter(|_| orders.len() >= limit as usize).map(|order| order - 1);
    Ok(Page { last, deleted })
}

/// Deletes the letters on a page that were closed before this time. The page begins behind the letter `behind`. A letter
/// whose unit is on its way back stays: whether that unit exists depends on it (see `withdrawal.rs`).
pub async fn dead_letters(
    pool: &PgPool,
    behind: i64,
    before: DateTime<Utc>,
    limit: u32,
) -> sqlx::Result<Page> {
    let mut tx = postgres::begin_planning(pool).await?;
    let letters = sqlx::query!(
        r#"SELECT id, created_at < $2 AS "is_old!" FROM dead_letters WHERE id > $1 ORDER BY id LIMIT $3"#,
        behind,
        before,
        i64::from(limit),
    )
    .fetch_all(&mut *tx)
    .await?;
    let old: Vec<i64> = letters.iter().filter(|row| row.is_old).map(|row| row.id).collect();
    let gone = sqlx::query!(
        "DELETE FROM dead_letters
         WHERE id = ANY($1) AND resolved_at < $2
           AND NOT EXISTS (SELECT FROM stock_returns
                           WHERE stock_returns.order_id = dead_letters.order_id AND done_at IS NULL)",
        &old,
        before,
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    // Younger letters have larger ids.
    Ok(Page::of(&old, limit, deleted))
}
