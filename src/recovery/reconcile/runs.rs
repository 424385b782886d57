//! The record of comparisons and their findings. Owns the table `reconcile_runs`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::types::Json;
use utoipa::ToSchema;

use crate::base::limits;
use crate::recovery::reconcile::{Disagreement, Report};
use crate::store::ids::{CouponId, RunId};
use crate::store::in_plain_text;

/// What started a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum AskedBy {
    /// The schedule.
    Period,
    /// An administrator, over HTTP.
    Api,
    /// The command line.
    CommandLine,
}

/// One comparison of Redis with Postgres.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Run {
    /// Id of the comparison.
    pub run_id: RunId,
    /// What started the comparison.
    pub asked_by: AskedBy,
    /// Time at which it started.
    pub started_at: DateTime<Utc>,
    /// Time at which it ended; null while it runs. If its process dies, it is set when the next comparison starts.
    pub finished_at: Option<DateTime<Utc>>,
    /// Why it failed; null if it didn't.
    pub failure: Option<String>,
    /// Whether no claim was under way from beginning to end.
    pub at_rest: Option<bool>,
    /// Sales that were compared.
    pub sales: Option<i64>,
    /// Orders in the order log on their way to Postgres.
    pub in_flight: Option<i64>,
    /// Number of disagreements; 0 is the only good result.
    pub disagreements: Option<i64>,
    /// The first disagreements.
    #[schema(value_type = Vec<Finding>)]
    pub findings: Json<Vec<Finding>>,
}

/// A disagreement, for the record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// Kind of the disagreement: a heading of docs/reconcile.md.
    pub code: String,
    /// The coupon.
    pub coupon_id: Option<CouponId>,
    /// The disagreement, in words.
    pub detail: String,
}

impl From<&Disagreement> for Finding {
    fn from(disagreement: &Disagreement) -> Self {
        Self {
            code: disagreement.code().to_owned(),
            coupon_id: Some(disagreement.coupon),
            detail: in_plain_text(&disagreement.to_string()),
        }
    }
}

/// Records the start of a comparison. The caller has the turn to compare, so a comparison without an end has died.
pub async fn begin(pool: &PgPool, asked_by: AskedBy) -> sqlx::Result<RunId> {
    sqlx::query_scalar!(
        r#"WITH died AS (
               UPDATE reconcile_runs SET finished_at = clock_timestamp(),
                      failure = 'its process died before it was done'
               WHERE finished_at IS NULL)
           INSERT INTO reconcile_runs (asked_by) VALUES ($1) RETURNING id AS "id: RunId""#,
        asked_by as AskedBy,
    )
    .fetch_one(pool)
    .await
}

/// Whether a comparison is due: the last one started at least a period ago, and 20 times as long ago as it took. So
/// comparisons take at most a twentieth of the time. One that never ended counts as if it had taken
/// [`limits::RECONCILE_ASSUMED`].
pub async fn is_due(pool: &PgPool, period: Duration) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"SELECT NOT EXISTS (
               SELECT FROM (SELECT * FROM reconcile_runs ORDER BY id DESC LIMIT 1) AS last
               WHERE clock_timestamp() - started_at < greatest(
                   make_interval(secs => $1),
                   20 * coalesce(finished_at - started_at, make_interval(secs => $2)))) AS "due!""#,
        period.as_secs_f64(),
        limits::RECONCILE_ASSUMED.as_secs_f64(),
    )
    .fetch_one(pool)
    .await
}

/// Deletes a batch of records of comparisons that started before this time. Returns how many.
pub async fn forget(pool: &PgPool, before: DateTime<Utc>, limit: u32) -> sqlx::Result<u64> {
    let done = sqlx::query!(
        "DELETE FROM reconcile_runs WHERE id IN (
             SELECT id FROM reconcile_runs WHERE started_at < $1 ORDER BY started_at LIMIT $2)",
        before,
        i64::from(limit),
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected())
}

/// Records the findings of a comparison.
pub async fn finish(pool: &PgPool, run: RunId, report: &Report) -> sqlx::Result<()> {
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let found = report.disagreements.iter().map(Finding::from);
    let findings: Vec<Finding> = found.take(limits::RUN_FINDINGS_MAX).collect();
    sqlx::query!(
        "UPDATE reconcile_runs
         SET finished_at = clock_timestamp(), at_rest = $2, sales = $3, in_flight = $4,
             disagreements = $5, findings = $6
         WHERE id = $1",
        run.get(),
        report.at_rest,
        number(report.sales.len()),
        i64::try_from(report.in_flight).unwrap_or(i64::MAX),
        number(report.disagreements.len()),
        Json(findings) as _,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Records that a comparison has failed.
pub async fn fail(pool: &PgPool, run: RunId, failure: &str) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE reconcile_runs SET finished_at = clock_timestamp(), failure = $2 WHERE id = $1",
        run.get(),
        in_plain_text(failure),
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// The newest comparison, if it has no recorded end: it is under way, or its process died.
pub async fn unfinished(pool: &PgPool) -> sqlx::Result<Option<RunId>> {
    sqlx::query_scalar!(
        r#"SELECT id AS "id: RunId" FROM (SELECT * FROM reconcile_runs ORDER BY id DESC LIMIT 1) AS newest
           WHERE finished_at IS NULL"#
    )
    .fetch_optional(pool)
    .await
}

/// Comparisons older than `before`, newest first.
pub async fn list(pool: &PgPool, before: Option<RunId>, limit: u32) -> sqlx::Result<Vec<Run>> {
    read(pool, before, limit, false).await
}

/// The last comparison that didn't fail.
pub async fn last_finished(pool: &PgPool) -> sqlx::Result<Option<Run>> {
    Ok(read(pool, None, 1, true).await?.pop())
}

/// Comparisons older than `before`, newest first; if `has_compared`, only those that were completed.
async fn read(
    pool: &PgPool,
    before: Option<RunId>,
    limit: u32,
    has_compared: bool,
) -> sqlx::Result<Vec<Run>> {
    sqlx::query_as!(
        Run,
        r#"SELECT id AS "run_id: RunId", asked_by AS "asked_by: AskedBy", started_at, finished_at, failure,
                  at_rest, sales, in_flight, disagreements,
                  findings AS "findings: Json<Vec<Finding>>"
           FROM reconcile_runs
           WHERE id < coalesce($1, 9223372036854775807) AND (disagreements IS NOT NULL OR NOT $3)
           ORDER BY id DESC LIMIT $2"#,
        before.map(RunId::get),
        i64::from(limit),
        has_compared,
    )
    .fetch_all(pool)
    .await
}
