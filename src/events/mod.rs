//! Events: what happened, in order, for other systems. Owner of the table `events`.
//!
//! # Model
//!
//! A row is written in the transaction of the change that it reports, so neither is there without the other. Triggers
//! write it (`migrations/0007_events.sql`), and `note_claims` for a batch of claims. Without `--events` nothing is
//! written.
//!
//! Rows are read in the order (transaction id, id), and only rows of transactions that are older than each one under
//! way (`feed.rs`). A transaction that stays open for long holds up the feed and nothing else; `stalled` names its
//! session.
//!
//! # What is not promised
//!
//! The order of the events of one order. Two transactions that move the same order wait for each other, but may have
//! got their ids before, so their events can stand in the wrong order. So each move of an order has a number that only
//! grows.

// What is sent to other systems.
pub mod webhooks;

// The feed, as its readers see it.
pub mod feed;

// Types of events.
pub mod types;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use crate::base::gauges::Gauge;
use crate::store::ids::CouponId;
use crate::store::postgres;

/// Notes a batch of claims that have become orders (order, coupon, user and price of each, one after the other), and
/// which of these sales have no unit left.
pub async fn note_claims(
    tx: &mut PgConnection,
    claims: &[i64],
    sales: impl IntoIterator<Item = CouponId>,
) -> sqlx::Result<()> {
    let sales: Vec<i64> = sales.into_iter().map(CouponId::get).collect();
    sqlx::query!(
        "INSERT INTO events (type, subject, data, claims)
         SELECT 'order.claimed', NULL, NULL::jsonb, $1::bigint[]
         UNION ALL
         SELECT 'coupon.sold_out', 'coupons/' || coupon_id,
                jsonb_build_object('coupon_id', coupon_id::text, 'total', total), NULL
         FROM flash_sales WHERE coupon_id = ANY($2) AND sold = total",
        claims,
        &sales,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Deletes events, oldest first. Returns their number. An event goes once the *next* one is older than this time, so a
/// reader that comes at least that often always finds the event where it stopped.
///
/// If some events are of another cluster (a dump restored into a new one), all events go: transaction ids begin anew
/// there, and the order of the rows means nothing.
pub async fn forget(pool: &PgPool, before: DateTime<Utc>, limit: u32) -> sqlx::Result<u64> {
    let mut tx = postgres::begin_by_index(pool).await?;
    let gone = sqlx::query!(
        "DELETE FROM events WHERE ctid = ANY(ARRAY(
             SELECT place FROM (
                 SELECT place, lead(created_at) OVER (ORDER BY xid, id) AS next_at FROM (
                     SELECT ctid AS place, xid, id, created_at FROM events ORDER BY xid, id LIMIT $2) AS oldest) AS page
             WHERE next_at < $1 OR EXISTS (
                 SELECT FROM events WHERE xid >= pg_snapshot_xmax(pg_current_snapshot()))))",
        before,
        i64::from(limit) + 1,
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(deleted)
}

/// How long the oldest event that can't be read yet has waited, and the session whose transaction it waits for; 0
/// without such an event.
pub async fn stalled(pool: &PgPool) -> sqlx::Result<Gauge> {
    let mut tx = postgres::begin_by_index(pool).await?;
    // Each transaction that writes holds a lock on its own id, which all roles may see.
    let oldest = sqlx::query!(
        r#"SELECT extract(epoch FROM clock_timestamp() - created_at)::float8 AS "seconds!",
                  (SELECT coalesce(pid::text, 'prepared') FROM pg_locks
                   WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted
                     AND transactionid = pg_snapshot_xmin(pg_current_snapshot())::xid) AS session
           FROM events WHERE xid >= pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid, id LIMIT 1"#
    )
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    let (session, seconds) = oldest.map_or((None, 0.0), |row| (row.session, row.seconds));
    let session = session.unwrap_or_else(|| "none".to_owned());
    Ok(Gauge::labelled("flash_sale_events_unreadable_seconds", "session", &session, seconds))
}
