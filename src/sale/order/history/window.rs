//! Part of the history that one page of a list reads.
//!
//! The history has a partition for each month, up to 120 by default, and a query locks and opens each partition that its
//! condition on the id can't exclude. So a list reads [`limits::HISTORY_MONTHS_READ`] months at a time, newest first, and
//! a page that isn't full then ends where these months begin.

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::base::limits;
use crate::kit::id;

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
    let time = order.map_or(DateTime::<Utc>::MAX_UTC, |order| id::time_of(order.saturating_sub(1)));
    let most = limits::HISTORY_MONTHS_READ;
    let begins = sqlx::query_scalar!(
        r#"SELECT begins AS "begins!"
           FROM (SELECT to_timestamp(right(relname::text, 6) || '+00', 'YYYYMMTZH') AS begins
                 FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
                 WHERE inhparent = 'order_history'::regclass) AS month
           WHERE $1::timestamptz IS NULL OR begins <= $1
           ORDER BY begins DESC LIMIT $2"#,
        order.is_some().then_some(time),
        i64::from(most) + 1,
    )
    .fetch_all(pool)
    .await?;
    let has_older = begins.len() > most as usize;
    let Some(oldest) = begins.into_iter().take(most as usize).next_back() else {
        return Ok(None);
    };
    Ok(Some(Window { begins: if has_older { oldest } else { DateTime::UNIX_EPOCH }, has_older }))
}
