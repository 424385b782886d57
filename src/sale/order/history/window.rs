//! Part of the history that one page of a list reads, and one look of several.
//!
//! The history has a partition for each month, up to 120 by default, and a query locks and opens each partition that its
//! condition on the id can't exclude. So a list reads [`limits::HISTORY_MONTHS_READ`] months at a time, newest first, and
//! a page that isn't full then ends where these months begin.

use chrono::{DateTime, Utc};
use sqlx::{PgPool, Postgres, Transaction};

use crate::base::limits;
use crate::kit::{id, postgres};

/// The newest months in front of an order id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Beginning of the oldest of these months; the least time if no month is older.
    pub begins: DateTime<Utc>,
    /// True if the history has older months.
    pub has_older: bool,
}

impl Window {
    /// Beginning of the oldest of these months; `None` if no month is older.
    pub fn from(self) -> Option<DateTime<Utc>> {
        self.has_older.then_some(self.begins)
    }

    /// The least order id of these months.
    pub fn first(self) -> i64 {
        id::first_at(self.begins)
    }
}

/// The newest months with ids before this one; with any, if `None`. `None` if there is no such month.
pub async fn before(pool: &PgPool, order: Option<i64>) -> sqlx::Result<Option<Window>> {
    Ok(windows(&months_before(pool, order, Some(limits::HISTORY_MONTHS_READ + 1)).await?).next())
}

/// The beginnings of the months with ids before this one, the newest first; of so many months at most.
async fn months_before(
    pool: &PgPool,
    order: Option<i64>,
    most: Option<u32>,
) -> sqlx::Result<Vec<DateTime<Utc>>> {
    let time = order.map(|order| id::time_of(order.saturating_sub(1)));
    // Materialized, or a plan may compute the time of each relation, and fail at the first that has no month in its name.
    sqlx::query_scalar!(
        r#"WITH month AS MATERIALIZED (
               SELECT to_timestamp(right(relname::text, 6) || '+00', 'YYYYMMTZH') AS begins
               FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
               WHERE inhparent = 'order_history'::regclass)
           SELECT begins AS "begins!" FROM month
           WHERE $1::timestamptz IS NULL OR begins <= $1
           ORDER BY begins DESC LIMIT $2"#,
        time,
        most.map(i64::from),
    )
    .fetch_all(pool)
    .await
}

/// These months, which begin then and are the newest first, in windows.
fn windows(begins: &[DateTime<Utc>]) -> impl Iterator<Item = Window> {
    let most = limits::HISTORY_MONTHS_READ as usize;
    let windows = begins.chunks(most).enumerate();
    windows.map(move |(at, months)| {
        let has_older = begins.len() > (at + 1) * most;
        let oldest = months.last().copied().filter(|_| has_older);
        Window { begins: oldest.unwrap_or(DateTime::UNIX_EPOCH), has_older }
    })
}

/// The whole history, from the newest months on: for a look by something that doesn't tell the month. Each window is read
/// in a transaction of its own, so no more than its months are locked at a time.
///
/// An order that moves meanwhile into a month that is new is in none of these windows.
pub struct Walk<'a> {
    pool: &'a PgPool,
    windows: std::vec::IntoIter<Window>,
    /// Id before which the next window ends.
    end: i64,
}

impl<'a> Walk<'a> {
    /// Begins in front of the newest month.
    pub async fn begin(pool: &'a PgPool) -> sqlx::Result<Self> {
        let begins = months_before(pool, None, None).await?;
        let windows: Vec<Window> = windows(&begins).collect();
        Ok(Self { pool, windows: windows.into_iter(), end: i64::MAX })
    }

    /// The next window: a transaction, and the ids from the first one to the one behind the last. `None` at the end.
    pub async fn next(
        &mut self,
    ) -> sqlx::Result<Option<(Transaction<'static, Postgres>, i64, i64)>> {
        let Some(window) = self.windows.next() else { return Ok(None) };
        let (first, end) = (window.first(), self.end);
        self.end = first;
        // A plan for any values locks all partitions.
        Ok(Some((postgres::begin_planning(self.pool).await?, first, end)))
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn windows_have_all_months_and_only_the_last_one_has_no_older_ones() {
        let newest: DateTime<Utc> = "2026-11-01T00:00:00Z".parse().expect("a time");
        let begins: Vec<_> = (0..25).map(|n| newest - TimeDelta::days(30 * n)).collect();
        let windows_of = |months: usize| windows(&begins[..months]).collect::<Vec<_>>();
        let last = Window { begins: DateTime::UNIX_EPOCH, has_older: false };
        let first = Window { begins: begins[11], has_older: true };
        assert_eq!(windows_of(0), []);
        assert_eq!(windows_of(12), [last]);
        assert_eq!(windows_of(13), [first, last]);
        let second = Window { begins: begins[23], has_older: true };
        assert_eq!(windows_of(25), [first, second, last]);
    }
}
