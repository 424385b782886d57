//! Owner of the tables `unwritten_claims`, `hand_ins` and `processes`.

use std::time::Duration;

use sqlx::PgPool;

use super::book::UnwrittenClaim;
use crate::store::ids::{CouponId, Lane, OrderId, UserId};
use crate::store::job::Job;
use crate::store::postgres;

/// Unwritten claims that one statement reads or deletes.
const PAGE: usize = 10_000;

/// Writes a process's heartbeat.
pub async fn live(pool: &PgPool, process: &str) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO processes (process) VALUES ($1)
         ON CONFLICT (process) DO UPDATE SET beat_at = now()",
        process,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Says that a process ends, and has nothing left to hand in.
pub async fn leave(pool: &PgPool, process: &str) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM processes WHERE process = $1", process).execute(pool).await?;
    Ok(())
}

/// Hands in a part of the unwritten claims of a process. A repeat changes nothing.
pub async fn add(pool: &PgPool, unwritten: &[UnwrittenClaim]) -> sqlx::Result<()> {
    let coupons: Vec<i64> = unwritten.iter().map(|claim| claim.coupon.get()).collect();
    let users: Vec<i64> = unwritten.iter().map(|claim| claim.user.get()).collect();
    let orders: Vec<i64> = unwritten.iter().map(|claim| claim.order.get()).collect();
    let mut tx = postgres::begin_planning(pool).await?;
    // An order that is a row needs no unwritten claim.
    sqlx::query!(
        "INSERT INTO unwritten_claims (order_id, coupon_id, user_id)
         SELECT order_id, coupon_id, user_id
         FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[]) AS claim (order_id, coupon_id, user_id)
         WHERE NOT EXISTS (SELECT FROM orders WHERE orders.id = claim.order_id)
         ON CONFLICT DO NOTHING",
        &orders,
        &coupons,
        &users,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

/// Notes that a process has handed in all that it accepted in a lane before this epoch. False, and nothing is noted, if
/// the lane has another epoch: in a Postgres that went back in time, the note would count for a later recovery that
/// reaches the same epoch again.
pub async fn complete(pool: &PgPool, process: &str, lane: Lane, epoch: i64) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "INSERT INTO hand_ins (process, lane, epoch)
         SELECT $1, lane, epoch FROM lanes WHERE lane = $2 AND epoch = $3
         ON CONFLICT (process, lane) DO UPDATE SET epoch = excluded.epoch",
        process,
        lane.get(),
        epoch,
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The processes with a heartbeat within `time` that have not handed in yet.
pub async fn missing(
    pool: &PgPool,
    lane: Lane,
    epoch: i64,
    time: Duration,
) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        "SELECT process FROM processes
         WHERE beat_at > now() - $3 * interval '1 second'
           AND NOT EXISTS (SELECT FROM hand_ins AS done
                           WHERE done.process = processes.process AND done.lane = $1 AND done.epoch >= $2)
         ORDER BY process",
        lane.get(),
        epoch,
        time.as_secs_f64(),
    )
    .fetch_all(pool)
    .await
}

/// The unwritten claims of a lane that have not been settled, by order id.
pub async fn open(pool: &PgPool, lane: Lane) -> sqlx::Result<Vec<UnwrittenClaim>> {
    let mut unwritten: Vec<UnwrittenClaim> = Vec::new();
    loop {
        let after = unwritten.last().map_or(0, |claim| claim.order.get());
        let page = sqlx::query_as!(
            UnwrittenClaim,
            r#"SELECT order_id AS "order: OrderId", coupon_id AS "coupon: CouponId", user_id AS "user: UserId"
               FROM unwritten_claims WHERE (coupon_id & 1023)::integer = $1 AND order_id > $2
               ORDER BY order_id LIMIT $3"#,
            lane.get(),
            after,
            i64::try_from(PAGE).unwrap_or(i64::MAX),
        );
        let page = page.fetch_all(pool).await?;
        if page.is_empty() {
            return Ok(unwritten);
        }
        unwritten.extend(page);
    }
}

/// Deletes the unwritten claims of open lanes that are orders or dead letters by now. Returns the oldest of the others,
/// which were handed in late. Unwritten claims of a sale that stays closed alone wait for its recovery.
pub async fn late(pool: &PgPool) -> sqlx::Result<Vec<UnwrittenClaim>> {
    sqlx::query_as!(
        UnwrittenClaim,
        r#"WITH of_open AS (
               SELECT unwritten_claims.* FROM unwritten_claims JOIN lanes ON lane = (coupon_id & 1023)
               WHERE state = 'open' AND NOT EXISTS (
                   SELECT FROM postponed WHERE job = $1 AND item = coupon_id)),
           known AS (
               SELECT order_id FROM of_open AS claim
               WHERE EXISTS (SELECT FROM orders WHERE id = order_id AND orders.user_id = claim.user_id)
                  OR EXISTS (SELECT FROM dead_letters WHERE dead_letters.order_id = claim.order_id)),
           forgotten AS (DELETE FROM unwritten_claims WHERE order_id IN (SELECT order_id FROM known))
           SELECT order_id AS "order: OrderId", coupon_id AS "coupon: CouponId", user_id AS "user: UserId"
           FROM of_open WHERE order_id NOT IN (SELECT order_id FROM known)
           ORDER BY order_id LIMIT $2"#,
        Job::Rebuild.name(),
        i64::try_from(PAGE).unwrap_or(i64::MAX),
    )
    .fetch_all(pool)
    .await
}

/// Deletes unwritten claims that are rows or dead letters by now, or were reported as lost.
pub async fn settle(pool: &PgPool, unwritten: &[UnwrittenClaim]) -> sqlx::Result<()> {
    for page in unwritten.chunks(PAGE) {
        let orders: Vec<i64> = page.iter().map(|claim| claim.order.get()).collect();
        let forgotten =
            sqlx::query!("DELETE FROM unwritten_claims WHERE order_id = ANY($1)", &orders);
        forgotten.execute(pool).await?;
    }
    Ok(())
}

/// Deletes processes without a heartbeat for a day.
pub async fn forget_dead(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM processes WHERE beat_at < now() - interval '1 day'")
        .execute(pool)
        .await?;
    Ok(())
}
