//! Reads the table of sales: those that Redis has to hold, or soon will; and the items of the jobs over sales.
//! Postponed items (`store/postponed.rs`) are left out until they are due.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::base::limits;
use crate::coupon::model::CouponState;
use crate::store::ids::{CouponId, Lane};
use crate::store::postgres;

/// Lets the statements of this transaction take up to [`limits::RECOUNT_TIMEOUT`].
pub async fn allow_long_statements(tx: &mut PgConnection) -> sqlx::Result<()> {
    allow_statements(tx, limits::RECOUNT_TIMEOUT).await
}

/// Lets the statements of this transaction take this long, and wait just as long for a lock.
pub async fn allow_statements(tx: &mut PgConnection, timeout: Duration) -> sqlx::Result<()> {
    let timeout_ms = timeout.as_millis().to_string();
    sqlx::query!(
        "SELECT set_config('statement_timeout', $1, true) AS statement, set_config('lock_timeout', '0', true) AS lock",
        timeout_ms
    )
    .fetch_one(tx)
    .await?;
    Ok(())
}

/// The session that keeps the row of this sale locked, in words; `None` if the row is free.
pub async fn lock_holder(pool: &PgPool, coupon: CouponId) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar!(
        // If several sessions share the lock, none is named. Postgres hides facts about sessions of other roles.
        r#"WITH free AS (SELECT FROM flash_sales WHERE coupon_id = $1 FOR NO KEY UPDATE SKIP LOCKED)
           SELECT coalesce((
                      SELECT concat_ws(' ', 'process', pid, 'of', usename, application_name, client_addr, state,
                                       'since', xact_start)
                      FROM pg_locks JOIN pg_stat_activity USING (pid)
                      WHERE locktype = 'transactionid' AND transactionid = flash_sales.xmax AND granted LIMIT 1),
                  'unknown') AS "session!"
           FROM flash_sales WHERE coupon_id = $1 AND NOT EXISTS (SELECT FROM free)"#,
        coupon.get(),
    )
    .fetch_optional(pool)
    .await
}

/// Units on offer of this sale; 0 if there is no such sale.
pub async fn total(pool: &PgPool, coupon: CouponId) -> sqlx::Result<i64> {
    let total =
        sqlx::query_scalar!("SELECT total FROM flash_sales WHERE coupon_id = $1", coupon.get());
    Ok(total.fetch_optional(pool).await?.unwrap_or(0))
}

/// A sale that Redis has to hold, as Postgres knows it.
#[derive(Clone, Debug)]
pub struct HeldSale {
    pub coupon: CouponId,
    pub sold: i64,
    /// Revision that Redis is known to have.
    pub applied_revision: i64,
}

/// The newest sales that Redis has to hold.
pub async fn newest_loaded(pool: &PgPool, limit: u32) -> sqlx::Result<Vec<HeldSale>> {
    sqlx::query_as!(
        HeldSale,
        r#"SELECT coupon_id AS "coupon: CouponId", sold, applied_revision FROM flash_sales
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL ORDER BY coupon_id DESC LIMIT $1"#,
        i64::from(limit),
    )
    .fetch_all(pool)
    .await
}

/// Those of these sales that Redis has to hold.
pub async fn loaded_of(pool: &PgPool, coupons: &[CouponId]) -> sqlx::Result<Vec<HeldSale>> {
    let coupons: Vec<i64> = coupons.iter().map(|coupon| coupon.get()).collect();
    let mut tx = postgres::begin_planning(pool).await?;
    sqlx::query_as!(
        HeldSale,
        r#"SELECT coupon_id AS "coupon: CouponId", sold, applied_revision FROM flash_sales
           WHERE coupon_id = ANY($1) AND loaded_at IS NOT NULL AND archived_at IS NULL"#,
        &coupons,
    )
    .fetch_all(&mut *tx)
    .await
}

/// All coupons whose sales Redis has to hold: loaded and not archived.
pub async fn loaded(pool: &PgPool) -> sqlx::Result<Vec<CouponId>> {
    sqlx::query_scalar!(
        r#"SELECT coupon_id AS "coupon_id: CouponId" FROM flash_sales
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL ORDER BY coupon_id"#
    )
    .fetch_all(pool)
    .await
}

/// Whether Redis has to hold this sale.
pub async fn is_loaded(pool: &PgPool, coupon: CouponId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM flash_sales WHERE coupon_id = $1 AND loaded_at IS NOT NULL
                          AND archived_at IS NULL) AS "loaded!""#,
        coupon.get(),
    )
    .fetch_one(pool)
    .await
}

/// Id of the noted load of a sale, if there is one.
pub async fn load_id(pool: &PgPool, coupon: CouponId) -> sqlx::Result<Option<String>> {
    let load =
        sqlx::query_scalar!("SELECT load_id FROM flash_sales WHERE coupon_id = $1", coupon.get());
    Ok(load.fetch_optional(pool).await?.flatten())
}

/// Sales of a lane that Redis has to hold.
pub async fn loaded_in(pool: &PgPool, lane: Lane) -> sqlx::Result<Vec<CouponId>> {
    sqlx::query_scalar!(
        r#"SELECT coupon_id AS "coupon: CouponId" FROM flash_sales
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL AND (coupon_id & 1023)::integer = $1
           ORDER BY coupon_id"#,
        lane.get(),
    )
    .fetch_all(pool)
    .await
}

/// What a sale that Redis has to hold is built from, besides its buyers.
pub struct SaleToBuild {
    /// Units on offer.
    pub total: i64,
    pub opens_at: DateTime<Utc>,
    /// Not part of the window.
    pub closes_at: DateTime<Utc>,
    pub state: CouponState,
    /// Revision of these values.
    pub revision: i64,
    /// Id of the noted load.
    pub load_id: String,
}

/// The sale to build, as this snapshot has it; `None` once it has been archived.
pub async fn to_build(
    snapshot: &mut PgConnection,
    coupon: CouponId,
) -> sqlx::Result<Option<SaleToBuild>> {
    sqlx::query_as!(
        SaleToBuild,
        r#"SELECT total, opens_at, closes_at, state AS "state: CouponState", revision,
                  load_id AS "load_id!"
           FROM coupons JOIN flash_sales ON coupon_id = id
           WHERE id = $1 AND loaded_at IS NOT NULL AND archived_at IS NULL"#,
        coupon.get(),
    )
    .fetch_optional(snapshot)
    .await
}

/// Sales that open within `ahead`, aren't over, and have never been loaded.
pub async fn to_load(pool: &PgPool, ahead: Duration) -> sqlx::Result<Vec<CouponId>> {
    sqlx::query_scalar!(
        r#"SELECT coupon_id AS "coupon_id: CouponId" FROM flash_sales JOIN coupons ON id = coupon_id
           WHERE loaded_at IS NULL AND opens_at < now() + $1 * interval '1 second'
             AND closes_at > now() AND state <> 'ended'
             AND NOT EXISTS (SELECT FROM postponed
                             WHERE job = 'warm_up' AND item = coupon_id AND next_try_at > now())
           ORDER BY coupon_id"#,
        ahead.as_secs_f64(),
    )
    .fetch_all(pool)
    .await
}

/// Coupons whose newest revision Redis isn't known to have.
pub async fn unapplied(pool: &PgPool) -> sqlx::Result<Vec<CouponId>> {
    sqlx::query_scalar!(
        r#"SELECT coupon_id AS "coupon_id: CouponId" FROM flash_sales JOIN coupons ON id = coupon_id
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL AND applied_revision < revision
             AND NOT EXISTS (SELECT FROM postponed
                             WHERE job = 'changes' AND item = coupon_id AND next_try_at > now())
           ORDER BY coupon_id"#
    )
    .fetch_all(pool)
    .await
}

/// Sales in Redis whose window closed at least `ago` ago and that haven't been ended, each with the time at which it
/// closed.
pub async fn closed(pool: &PgPool, ago: Duration) -> sqlx::Result<Vec<(CouponId, DateTime<Utc>)>> {
    let rows = sqlx::query!(
        r#"SELECT coupon_id AS "coupon_id: CouponId", closes_at
           FROM flash_sales JOIN coupons ON id = coupon_id
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL AND state <> 'ended'
             AND closes_at < now() - $1 * interval '1 second'
             AND NOT EXISTS (SELECT FROM postponed
                             WHERE job = 'archive' AND item = coupon_id AND next_try_at > now())
           ORDER BY coupon_id"#,
        ago.as_secs_f64(),
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.coupon_id, row.closes_at)).collect())
}

/// Sales that ended, or whose window closed, at least `ago` ago, that Redis has as ended, and of which nothing is known
/// to be open. Checks in advance what [`archive`](super::archive) decides, so that no sale is compared in vain.
pub async fn ended(pool: &PgPool, ago: Duration) -> sqlx::Result<Vec<CouponId>> {
    let mut tx = postgres::begin_planning(pool).await?;
    let ended = sqlx::query_scalar!(
        r#"SELECT coupon_id AS "coupon_id: CouponId" FROM flash_sales JOIN coupons ON id = coupon_id
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL AND state = 'ended'
             AND applied_revision = revision
             AND least(ended_at, closes_at) < now() - $1 * interval '1 second'
             AND (SELECT orders.id FROM orders
                  WHERE (orders.coupon_id, status, orders.id) > (coupons.id, 'unpaid', 0)
                    AND (orders.coupon_id, status, orders.id) <= (coupons.id, 'unpaid', 9223372036854775807)
                  ORDER BY orders.coupon_id, status, orders.id LIMIT 1) IS NULL
             AND (SELECT min(updated_at) FROM stock_returns
                  WHERE stock_returns.coupon_id = coupons.id AND done_at IS NULL) IS NULL
             AND (SELECT min(order_id) FROM dead_letters
                  WHERE dead_letters.coupon_id = coupons.id AND resolved_at IS NULL) IS NULL
             AND NOT EXISTS (SELECT FROM postponed
                             WHERE job = 'archive' AND item = coupon_id AND next_try_at > now())
           ORDER BY coupon_id"#,
        ago.as_secs_f64(),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(ended)
}

/// Open things of a sale in Postgres.
#[derive(Debug)]
pub struct OpenOfSale {
    /// Unpaid orders, counted up to [`limits::UNPAID_COUNTED_MAX`].
    pub unpaid: i64,
    /// Units on their way back to Redis, and orders to take off the lists of unpaid ones.
    pub stock_returns: i64,
    pub dead_letters: i64,
}

impl OpenOfSale {
    /// One sentence for each kind of open thing.
    pub fn in_words(&self) -> Vec<String> {
        let say = |count: i64, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let unpaid = say(self.unpaid, "orders are unpaid, and may be paid or expire");
        let returns = say(self.stock_returns, "units are on their way back to Redis");
        let letters = say(self.dead_letters, "dead letters are open: decide about them");
        [unpaid, returns, letters].into_iter().flatten().collect()
    }
}

/// Open things of a sale, which keep [`archive`](super::archive) from noting it as archived.
pub async fn open_of(executor: impl PgExecutor<'_>, coupon: CouponId) -> sqlx::Result<OpenOfSale> {
    sqlx::query_as!(
        OpenOfSale,
        // Not all are counted, because a million may be unpaid at a time.
        r#"SELECT (SELECT count(*) FROM (SELECT FROM orders WHERE coupon_id = $1 AND status = 'unpaid' LIMIT $2) AS unpaid)
                      AS "unpaid!",
                  (SELECT count(*) FROM stock_returns WHERE coupon_id = $1 AND done_at IS NULL) AS "stock_returns!",
                  (SELECT count(*) FROM dead_letters WHERE coupon_id = $1 AND resolved_at IS NULL) AS "dead_letters!""#,
        coupon.get(),
        limits::UNPAID_COUNTED_MAX,
    )
    .fetch_one(executor)
    .await
}

/// Archived sales that may still be in Redis, each with its total.
pub async fn archived(pool: &PgPool) -> sqlx::Result<Vec<(CouponId, i64)>> {
    let sales = sqlx::query!(
        r#"SELECT coupon_id AS "coupon_id: CouponId", total FROM flash_sales
           WHERE archived_at IS NOT NULL AND removed_at IS NULL
             AND NOT EXISTS (SELECT FROM postponed
                             WHERE job = 'archive' AND item = coupon_id AND next_try_at > now())
           ORDER BY coupon_id"#
    )
    .fetch_all(pool)
    .await?;
    Ok(sales.into_iter().map(|sale| (sale.coupon_id, sale.total)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_things_of_a_sale_are_told_if_there_are_any() {
        let words = |unpaid, stock_returns, dead_letters| {
            OpenOfSale { unpaid, stock_returns, dead_letters }.in_words()
        };
        assert_eq!(words(0, 0, 0), [""; 0]);
        let unpaid = "1 orders are unpaid, and may be paid or expire";
        let returns = "2 units are on their way back to Redis";
        let letters = "3 dead letters are open: decide about them";
        assert_eq!(words(1, 2, 3), [unpaid, returns, letters]);
        assert_eq!((words(1, 0, 0), words(0, 2, 0)), (vec![unpaid.into()], vec![returns.into()]));
        assert_eq!(words(0, 0, 3), [letters]);
    }
}
