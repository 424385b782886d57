//! Jobs that cancel the unpaid orders of a coupon, as rows of the table `jobs`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use crate::base::limits;
use crate::kit::postgres::{self, Page};
use crate::sale::ids::{CouponId, JobId, OrderId};

/// A job that cancels all unpaid orders of a coupon that were claimed before it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Job {
    /// Id of the job.
    pub job_id: JobId,
    /// The coupon.
    pub coupon_id: CouponId,
    /// Name of the request that asked for it.
    pub key: String,
    /// Reason, in words.
    pub reason: String,
    /// Time of the request. Orders that were claimed later are left alone.
    pub requested_at: DateTime<Utc>,
    /// Orders that the job has cancelled.
    pub cancelled: i64,
    /// Orders that wait for the job; of more than 10,000, that many.
    pub left: i64,
    /// Time at which no order was left; null while the job goes on.
    pub finished_at: Option<DateTime<Utc>>,
}

/// A job that goes on.
#[derive(Clone, Copy, Debug)]
pub(in crate::sale) struct OpenJob {
    pub(in crate::sale) id: JobId,
    pub(in crate::sale) coupon: CouponId,
    /// Time since the request, in milliseconds.
    pub(in crate::sale) age_ms: i64,
}

/// Begins a job under this key, unless there is one. The id of a new job; none also without such a coupon.
pub(in crate::sale) async fn begin(
    tx: &mut PgConnection,
    coupon: CouponId,
    key: &str,
    reason: &str,
) -> sqlx::Result<Option<JobId>> {
    sqlx::query_scalar!(
        r#"INSERT INTO jobs (coupon_id, key, reason) SELECT id, $2, $3 FROM coupons WHERE id = $1
           ON CONFLICT ON CONSTRAINT jobs_once DO NOTHING RETURNING id AS "id: JobId""#,
        coupon.get(),
        key,
        reason,
    )
    .fetch_optional(tx)
    .await
}

/// The job of this coupon under this key.
pub(in crate::sale) async fn under_key(
    pool: &PgPool,
    coupon: CouponId,
    key: &str,
) -> sqlx::Result<Option<JobId>> {
    sqlx::query_scalar!(
        r#"SELECT id AS "id: JobId" FROM jobs WHERE coupon_id = $1 AND key = $2"#,
        coupon.get(),
        key,
    )
    .fetch_optional(pool)
    .await
}

/// One job.
pub(in crate::sale) async fn find(pool: &PgPool, job: JobId) -> sqlx::Result<Option<Job>> {
    let from_it_on = list(pool, None, JobId::new(job.get().saturating_add(1)).ok(), 1).await?;
    Ok(from_it_on.into_iter().find(|found| found.job_id == job))
}

/// Jobs, of one coupon or of all, newest first, from before the given one on.
pub(in crate::sale) async fn list(
    pool: &PgPool,
    coupon: Option<CouponId>,
    before: Option<JobId>,
    limit: u32,
) -> sqlx::Result<Vec<Job>> {
    let mut tx = postgres::begin_planning(pool).await?;
    let jobs = sqlx::query_as!(
        Job,
        r#"SELECT id AS "job_id: JobId", coupon_id AS "coupon_id: CouponId", key, reason,
                  created_at AS requested_at, cancelled, finished_at,
                  CASE WHEN finished_at IS NULL THEN
                      -- In an order that an index has: else Postgres may read all orders for the first of these.
                      (SELECT count(*) FROM (SELECT FROM orders
                                             WHERE orders.coupon_id = jobs.coupon_id AND status = 'unpaid'
                                               AND claimed_at < jobs.created_at
                                             ORDER BY claimed_at LIMIT $3) AS waiting)
                  ELSE 0 END AS "left!"
           FROM jobs
           WHERE id < coalesce($1, 9223372036854775807) AND ($4::bigint IS NULL OR coupon_id = $4)
           ORDER BY id DESC LIMIT $2"#,
        before.map(JobId::get),
        i64::from(limit),
        limits::JOB_ORDERS_COUNTED_MAX,
        coupon.map(CouponId::get),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(jobs)
}

/// A job that has gone on for long.
#[derive(Clone, Debug)]
pub(in crate::sale) struct OverdueJob {
    pub(in crate::sale) id: JobId,
    pub(in crate::sale) coupon: CouponId,
    pub(in crate::sale) requested_at: DateTime<Utc>,
    pub(in crate::sale) cancelled: i64,
}

/// Jobs that have gone on for longer than this, newest first, from before the given one on.
pub(in crate::sale) async fn overdue(
    pool: &PgPool,
    patience: Duration,
    before: Option<JobId>,
    limit: u32,
) -> sqlx::Result<Vec<OverdueJob>> {
    sqlx::query_as!(
        OverdueJob,
        r#"SELECT id AS "id: JobId", coupon_id AS "coupon: CouponId", created_at AS requested_at, cancelled
           FROM jobs
           WHERE finished_at IS NULL AND created_at < now() - make_interval(secs => $3)
             AND id < coalesce($1, 9223372036854775807)
           ORDER BY id DESC LIMIT $2"#,
        before.map(JobId::get),
        i64::from(limit),
        patience.as_secs_f64(),
    )
    .fetch_all(pool)
    .await
}

/// Jobs that go on, oldest first, from behind the given one on.
pub(in crate::sale) async fn open_page(
    pool: &PgPool,
    after: Option<JobId>,
    limit: i64,
) -> sqlx::Result<Vec<OpenJob>> {
    sqlx::query_as!(
        OpenJob,
        r#"SELECT id AS "id: JobId", coupon_id AS "coupon: CouponId",
                  (extract(epoch FROM clock_timestamp() - created_at) * 1000)::bigint AS "age_ms!"
           FROM jobs WHERE finished_at IS NULL AND id > $1 ORDER BY id LIMIT $2"#,
        after.map_or(0, JobId::get),
        limit,
    )
    .fetch_all(pool)
    .await
}

/// Jobs that go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::sale) struct Going {
    /// Number of jobs.
    pub(in crate::sale) jobs: i64,
    /// Age of the oldest one, in seconds; 0 if there is none.
    pub(in crate::sale) oldest_seconds: f64,
}

/// Number and age of the jobs that go on.
pub(in crate::sale) async fn going(pool: &PgPool) -> sqlx::Result<Going> {
    sqlx::query_as!(
        Going,
        r#"SELECT count(*) AS "jobs!",
                  coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::double precision
                      AS "oldest_seconds!"
           FROM jobs WHERE finished_at IS NULL"#
    )
    .fetch_one(pool)
    .await
}

/// Orders that wait for this job, first claim first, without postponed ones.
pub(in crate::sale) async fn orders_of(
    pool: &PgPool,
    job: &OpenJob,
    limit: i64,
) -> sqlx::Result<Vec<OrderId>> {
    let mut tx = postgres::begin_by_index(pool).await?;
    let orders = sqlx::query_scalar!(
        r#"SELECT id AS "id: OrderId" FROM orders
           WHERE coupon_id = $1 AND status = 'unpaid' AND claimed_at < (SELECT created_at FROM jobs WHERE id = $2)
             AND NOT EXISTS (SELECT FROM postponed WHERE pass = 'cancellations' AND item = orders.id)
           ORDER BY claimed_at, id LIMIT $3"#,
        job.coupon.get(),
        job.id.get(),
        limit,
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(orders)
}

/// A job that goes on and that this order waits for.
pub(in crate::sale) async fn of_order(pool: &PgPool, order: i64) -> sqlx::Result<Option<JobId>> {
    sqlx::query_scalar!(
        r#"SELECT jobs.id AS "id: JobId" FROM orders JOIN jobs USING (coupon_id)
           WHERE orders.id = $1 AND status = 'unpaid' AND claimed_at < jobs.created_at AND finished_at IS NULL
           ORDER BY jobs.id LIMIT 1"#,
        order,
    )
    .fetch_optional(pool)
    .await
}

/// Counts orders that a job has cancelled.
pub(super) async fn count(tx: &mut PgConnection, job: JobId, orders: usize) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE jobs SET cancelled = cancelled + $2, updated_at = now() WHERE id = $1",
        job.get(),
        i64::try_from(orders).unwrap_or(i64::MAX),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// True if another session has the row of a job locked now.
pub(super) async fn is_locked(pool: &PgPool, job: JobId) -> sqlx::Result<bool> {
    let free = sqlx::query_scalar!(
        "SELECT id FROM jobs WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED",
        job.get()
    );
    Ok(free.fetch_optional(pool).await?.is_none())
}

/// Ends a job for which no order waits.
pub(in crate::sale) async fn finish(pool: &PgPool, job: JobId) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE jobs SET finished_at = now(), updated_at = now()
         WHERE id = $1 AND finished_at IS NULL
           AND NOT EXISTS (SELECT FROM orders WHERE orders.coupon_id = jobs.coupon_id AND status = 'unpaid'
                           AND claimed_at < jobs.created_at)",
        job.get(),
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Deletes the jobs on a page that ended before this time. The page begins behind the job `behind`. The key of a deleted
/// job is that of a new request.
pub(in crate::sale) async fn forget(
    pool: &PgPool,
    behind: i64,
    before: DateTime<Utc>,
    limit: u32,
) -> sqlx::Result<Page> {
    let mut tx = postgres::begin_planning(pool).await?;
    let jobs = sqlx::query!(
        r#"SELECT id, created_at < $2 AS "is_old!" FROM jobs WHERE id > $1 ORDER BY id LIMIT $3"#,
        behind,
        before,
        i64::from(limit),
    )
    .fetch_all(&mut *tx)
    .await?;
    let old: Vec<i64> = jobs.iter().filter(|row| row.is_old).map(|row| row.id).collect();
    let gone =
        sqlx::query!("DELETE FROM jobs WHERE id = ANY($1) AND finished_at < $2", &old, before);
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    // Younger jobs have larger ids.
    Ok(Page::of(&old, limit, deleted))
}
