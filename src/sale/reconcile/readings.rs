//! The last full reading of each sale, and its use: a sale that has changed on neither side since a good reading is as
//! good as it was. Owner of the tables `sale_readings` and `sale_reading_audit`.
//!
//! # Model
//!
//! A reading compares the buyers of a sale with its live orders, one set with the other. It keeps a mark of each side:
//!
//! * **Redis**: buyers, stock, `returns`, total, revision and epoch, read *before* the buyers. Between two returns and two
//!   revisions the stock only falls, each return raises `returns`, and each recovery raises the epoch. So an equal mark
//!   means that no script has changed the buyers since then. (The script that passes a place on changes none of these;
//!   it acts on a sale with a dead letter, whose buyers are not its live orders, and such a reading isn't good.)
//! * **Postgres**: the digest of the live orders, kept by the triggers of the running counts and read *in the snapshot* of
//!   the reading.
//!
//! Only a reading without a finding, in which buyers and live orders were the same, is good. A sale with an entry in
//! flight, an open dead letter or a unit on its way back is read again.
//!
//! # What is not promised
//!
//! A write by hand that keeps all marks is seen by the next full reading only: a buyer's order id in Redis that was
//! overwritten, or rows that were changed without triggers. The audit reads the sale with the oldest reading, one after
//! the other. It goes on where a dead process stopped, with the sale that this process was reading.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use super::disagreement::Disagreement;
use crate::base::limits;
use crate::kit::postgres;
use crate::sale::buyers::census::Census;
use crate::sale::ids::CouponId;

/// A full reading of a sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The coupon.
    pub coupon: CouponId,
    /// Mark of Redis's side.
    pub in_redis: String,
    /// Mark of Postgres's side.
    pub in_postgres: String,
    /// True if buyers and live orders were the same, and nothing was wrong.
    pub is_good: bool,
    /// Kinds of the findings.
    pub codes: Vec<String>,
}

impl Reading {
    /// A reading that has come to nothing.
    pub(super) fn failed(coupon: CouponId, found: &[Disagreement]) -> Self {
        let unknown = String::new();
        let codes = codes_of(found);
        Self { coupon, in_redis: unknown.clone(), in_postgres: unknown, is_good: false, codes }
    }
}

/// Kinds of these findings, each once.
pub(super) fn codes_of(found: &[Disagreement]) -> Vec<String> {
    let codes: BTreeSet<&str> = found.iter().map(Disagreement::code).collect();
    codes.into_iter().map(str::to_owned).collect()
}

/// Mark of a sale in Redis.
pub(super) fn mark(census: &Census) -> String {
    let Census { buyers, stock, returns, total, revision, epoch, .. } = census;
    format!("{buyers} {stock:?} {returns:?} {total:?} {revision:?} {epoch:?}")
}

/// The last reading of each sale that Redis has to hold, with its time.
pub(super) async fn last(
    pool: &PgPool,
) -> sqlx::Result<HashMap<CouponId, (DateTime<Utc>, Reading)>> {
    let rows = sqlx::query!(
        r#"SELECT coupon_id AS "coupon: CouponId", read_at, in_redis, in_postgres, is_good, codes
           FROM sale_readings JOIN flash_sales USING (coupon_id)
           WHERE loaded_at IS NOT NULL AND archived_at IS NULL"#
    )
    .fetch_all(pool)
    .await?;
    let readings = rows.into_iter().map(|row| {
        let reading = Reading {
            coupon: row.coupon,
            in_redis: row.in_redis,
            in_postgres: row.in_postgres,
            is_good: row.is_good,
            codes: row.codes,
        };
        (reading.coupon, (row.read_at, reading))
    });
    Ok(readings.collect())
}

/// Notes readings, each in the place of the one before, and forgets those of archived sales.
pub(super) async fn note(pool: &PgPool, readings: &[Reading]) -> sqlx::Result<()> {
    let mut tx = postgres::begin(pool).await?;
    for reading in readings {
        sqlx::query!(
            "INSERT INTO sale_readings AS known (coupon_id, in_redis, in_postgres, is_good, codes)
             VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (coupon_id) DO UPDATE SET
                 read_at = clock_timestamp(), in_redis = excluded.in_redis, in_postgres = excluded.in_postgres,
                 is_good = excluded.is_good, codes = excluded.codes",
            reading.coupon.get(),
            reading.in_redis,
            reading.in_postgres,
            reading.is_good,
            &reading.codes,
        )
        .execute(&mut *tx)
        .await?;
    }
    sqlx::query!(
        "DELETE FROM sale_readings WHERE NOT EXISTS (
             SELECT FROM flash_sales AS sale
             WHERE sale.coupon_id = sale_readings.coupon_id AND loaded_at IS NOT NULL AND archived_at IS NULL)"
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

/// True while the audit rests.
pub(super) async fn audit_rests(pool: &PgPool) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"SELECT next_at > now() AS "rests!" FROM sale_reading_audit"#)
        .fetch_one(pool)
        .await
}

/// The sale that the audit reads next, if one is due and the audit doesn't rest: never read, or read longest ago.
pub(super) async fn next_of_audit(pool: &PgPool) -> sqlx::Result<Option<CouponId>> {
    sqlx::query_scalar!(
        r#"SELECT coupon_id AS "coupon: CouponId"
           FROM sale_reading_audit CROSS JOIN flash_sales LEFT JOIN sale_readings USING (coupon_id)
           WHERE next_at <= now() AND loaded_at IS NOT NULL AND archived_at IS NULL
             AND coalesce(read_at < now() - make_interval(secs => $1), true)
           ORDER BY read_at NULLS FIRST, coupon_id LIMIT 1"#,
        limits::READING_AGE_MAX.as_secs_f64(),
    )
    .fetch_optional(pool)
    .await
}

/// Lets the audit rest for so long.
pub(super) async fn rest(pool: &PgPool, pause: Duration) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE sale_reading_audit SET next_at = now() + make_interval(secs => $1)",
        pause.as_secs_f64(),
    )
    .execute(pool)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census() -> Census {
        Census {
            buyers: 1,
            generation: 0,
            shards_missing: 0,
            total: Some(2),
            stock: Some(3),
            state: None,
            revision: Some(4),
            epoch: Some(5),
            opens_ms: None,
            closes_ms: None,
            returns: Some(6),
        }
    }

    #[test]
    fn a_mark_changes_with_buyers_stock_returns_total_revision_and_epoch() {
        let as_read = mark(&census());
        assert_eq!(as_read, mark(&Census { state: Some("paused".into()), ..census() }));
        for changed in [
            Census { buyers: 2, ..census() },
            Census { total: Some(3), ..census() },
            Census { stock: Some(2), ..census() },
            Census { revision: Some(5), ..census() },
            Census { epoch: Some(6), ..census() },
            Census { returns: Some(7), ..census() },
            Census { returns: None, ..census() },
        ] {
            assert_ne!(mark(&changed), as_read, "{changed:?}");
        }
    }

    #[test]
    fn a_reading_has_each_kind_of_its_findings_once_and_a_failed_one_is_not_good() {
        let coupon = CouponId::compose(1, 1);
        let stock = |stock| Disagreement::NegativeStock { coupon, stock };
        let found = [stock(-1), Disagreement::SaleMissing { coupon }, stock(-2)];
        assert_eq!(codes_of(&found), ["negative_stock", "sale_missing"]);
        let failed = Reading::failed(coupon, &found[..1]);
        assert_eq!(
            (failed.coupon, failed.is_good, &failed.codes[..]),
            (coupon, false, &["negative_stock".to_owned()][..])
        );
        assert_eq!((&*failed.in_redis, &*failed.in_postgres), ("", ""));
    }
}
