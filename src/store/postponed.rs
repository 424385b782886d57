//! Postponed items, so that one bad item never stops the others. An item that a job can't deal with is set aside,
//! logged once, and retried less and less often. Owner of the table `postponed`.
//!
//! # Model
//!
//! A job deals with items: orders, payments, coupons. When an item fails for reasons of its own
//! ([`Failure::is_of_item`]), the job notes it here and goes on with the next one. The job leaves the item alone until
//! `next_try_at`: for a second at first, then two, four, up to [`limits::POSTPONED_PAUSE_MAX`]. A retry that succeeds,
//! or that finds nothing left to do, deletes the note.
//!
//! # Authority
//!
//! Postgres decides, so that all processes share the pauses, and an operator sees one list. A note decides only *when*
//! an item is retried, never the result.
//!
//! # What each failure does
//!
//! * A store doesn't answer: no item is noted, and the whole job fails and is run again. Where there are several Redis
//!   servers, the job goes on with the items of the others.
//! * Two processes try an item at the same moment: the first failure is noted, the second changes nothing.
//! * A process dies after a success: the note stays until the item is due. The retry finds nothing to do, and deletes
//!   the note.
//!
//! # What is not promised
//!
//! An item may wait although its cause has gone. An operator may ask for a retry at once (`Postponed::retry`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::json;
use sqlx::PgPool;

use crate::base::limits;
use crate::base::telemetry::Metrics;
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::PostponedId;
use crate::store::in_plain_text;
use crate::store::job::Job;
use crate::store::postgres;
use crate::store::{Failure, Stores};

/// Keeps the items that jobs have set aside. Clones share the pool.
#[derive(Clone)]
pub struct Postponed {
    pool: PgPool,
    metrics: Arc<Metrics>,
    /// Whether there is only one Redis server. If one of several doesn't answer, only its own items are affected.
    is_one_server: bool,
}

/// The postponed items of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    pub items: i64,
    /// Time since the first failure of the oldest of them, in seconds.
    pub oldest_seconds: f64,
}

/// One run of a job, with the postponed items that are due.
pub struct Tries<'a> {
    postponed: &'a Postponed,
    job: Job,
    due: BTreeSet<i64>,
}

impl Postponed {
    /// Notes in the database of these stores.
    pub fn new(stores: &Stores, metrics: Arc<Metrics>) -> Self {
        Self { pool: stores.pool.clone(), metrics, is_one_server: stores.fleet.is_one() }
    }

    /// Begins a run of a job, with up to [`limits::POSTPONED_TRIES_MAX`] postponed items that are due.
    pub async fn begin(&self, job: Job) -> sqlx::Result<Tries<'_>> {
        let due = sqlx::query_scalar!(
            "SELECT item FROM postponed WHERE job = $1 AND next_try_at <= now()
             ORDER BY next_try_at LIMIT $2",
            job.name(),
            limits::POSTPONED_TRIES_MAX,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(Tries { postponed: self, job, due: due.into_iter().collect() })
    }

    /// Makes an item due now; an item that is already due stays as it is. False if there is no such note.
    pub async fn retry(&self, id: PostponedId, by: &Actor) -> sqlx::Result<bool> {
        let mut tx = postgres::begin(&self.pool).await?;
        let due = sqlx::query!(
            "WITH waits AS (SELECT id, next_try_at FROM postponed WHERE id = $1 FOR UPDATE)
             UPDATE postponed SET next_try_at = now(), updated_at = now()
             FROM waits WHERE postponed.id = waits.id AND waits.next_try_at > now()
             RETURNING job, item, nullif(waits.next_try_at, 'infinity') AS due_before,
                       postponed.next_try_at AS due_now",
            id.get(),
        )
        .fetch_optional(&mut *tx)
        .await?;
        let Some(due) = due else {
            return sqlx::query_scalar!(
                r#"SELECT EXISTS (SELECT FROM postponed WHERE id = $1) AS "there!""#,
                id.get(),
            )
            .fetch_one(&mut *tx)
            .await;
        };
        let (job, item) = (due.job, due.item.to_string());
        let event = Event::of(Action::RetryPostponed, id.get())
            .before(json!({"job": job, "item": item, "next_try_at": due.due_before}))
            .after(json!({"job": job, "item": item, "next_try_at": due.due_now}));
        audit::note(&mut tx, by, event).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// True for an item that is postponed and isn't due yet.
    pub async fn waits(&self, job: Job, item: i64) -> sqlx::Result<bool> {
        sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM postponed
                              WHERE job = $1 AND item = $2 AND next_try_at > now()) AS "waits!""#,
            job.name(),
            item,
        )
        .fetch_one(&self.pool)
        .await
    }

    /// The postponed items by the names of their jobs.
    pub async fn waiting(&self) -> sqlx::Result<HashMap<String, Waiting>> {
        let rows = sqlx::query!(
            r#"SELECT job, count(*) AS "items!",
                      extract(epoch FROM now() - min(since))::float8 AS "oldest_seconds!"
               FROM postponed GROUP BY job"#
        )
        .fetch_all(&self.pool)
        .await?;
        let waiting = rows
            .into_iter()
            .map(|row| (row.job, Waiting { items: row.items, oldest_seconds: row.oldest_seconds }));
        Ok(waiting.collect())
    }

    /// True if the item at hand is at fault, and not a store: by itself, or because another session keeps a row of the
    /// item locked. A locked table concerns all items.
    pub async fn is_of_item(&self, failure: &Failure) -> sqlx::Result<bool> {
        if !failure.is_of_lock() {
            return Ok(failure.is_of_item());
        }
        Ok(!postgres::has_locked_table(&self.pool).await?)
    }

    /// Notes that each of these items has failed once. The first failure of an item raises an alarm.
    pub async fn note(&self, job: Job, items: &[i64], error: &str) -> sqlx::Result<()> {
        let error = in_plain_text(error);
        let error: String = error.chars().take(limits::POSTPONED_ERROR_CHARS_MAX).collect();
        self.metrics.count_job_failures(job.name(), items.len());
        let tries = sqlx::query!(
            r#"INSERT INTO postponed (job, item, error, next_try_at)
               SELECT $1, item, $3, now() + make_interval(secs => $4)
               FROM UNNEST($2::bigint[]) AS item ORDER BY item
               ON CONFLICT ON CONSTRAINT postponed_once DO UPDATE
               SET tries = postponed.tries + 1, error = EXCLUDED.error, updated_at = now(),
                   next_try_at = now() + make_interval(secs => least($5, $4 * 2 ^ least(postponed.tries, 30)))
               -- Otherwise another process has noted it a moment ago.
               WHERE postponed.next_try_at <= now()
               RETURNING item, tries = 1 AS "first!""#,
            job.name(),
            items,
            error,
            limits::POSTPONED_PAUSE_MIN.as_secs_f64(),
            limits::POSTPONED_PAUSE_MAX.as_secs_f64(),
        )
        .fetch_all(&self.pool)
        .await?;
        let mut new = tries.iter().filter(|item| item.first).map(|item| item.item);
        if let Some(item) = new.next() {
            let job = job.name();
            let others = new.count();
            tracing::error!(
                job,
                item,
                others,
                error,
                "ALARM: an item can't be dealt with; everything else goes on, and it is tried again: GET /v1/operations says what to do"
            );
        }
        Ok(())
    }

    /// Deletes the notes of due items, which were dealt with or need nothing any more.
    async fn end_wait(&self, job: Job, items: &[i64]) -> sqlx::Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let done = sqlx::query!(
            // An item that isn't due has meanwhile failed in another process.
            "DELETE FROM postponed WHERE job = $1 AND item = ANY($2) AND next_try_at <= now()",
            job.name(),
            items,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        if done.rows_affected() > 0 {
            let job = job.name();
            let count = done.rows_affected();
            tracing::info!(job, item = items[0], count, "what had been postponed is dealt with");
        }
        Ok(())
    }
}

impl Tries<'_> {
    /// Items that are due, in the order of their ids.
    pub fn due(&self) -> Vec<i64> {
        self.due.iter().copied().collect()
    }

    /// Notes the result of a try. `None` if the item failed: it is postponed, or its lane or its server is away for a
    /// moment and the next run retries it.
    ///
    /// # Errors
    ///
    /// The failure of a store, which concerns all items.
    pub async fn settle<T>(
        &mut self,
        item: i64,
        tried: Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let was_due = self.due.remove(&item);
        match tried {
            Ok(done) => {
                if was_due {
                    self.postponed.end_wait(self.job, &[item]).await?;
                }
                Ok(Some(done))
            }
            // The item's lane opens soon. The items of other lanes don't wait for it.
            Err(failure) if failure.is_recovering() => Ok(None),
            // Nor do the items of other servers.
            Err(failure) if !self.postponed.is_one_server && failure.is_of_redis() => Ok(None),
            Err(failure) if self.postponed.is_of_item(&failure).await? => {
                self.postponed.note(self.job, &[item], &failure.to_string()).await?;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Ends a run that has seen all items of its job. A due item that wasn't among them needs nothing any more.
    pub async fn end(self) -> sqlx::Result<()> {
        self.postponed.end_wait(self.job, &self.due()).await
    }
}
