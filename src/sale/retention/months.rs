//! The months of the history: partitions, made before orders move there, and dropped when their time is over.
//!
//! A month holds the orders that were claimed in it (UTC), and what belongs to them. Making and dropping need a lock on the
//! parent table that a reader of the history waits for; so each tries for a moment only, and the next run tries again.

use std::collections::BTreeSet;

use chrono::{DateTime, Datelike, TimeZone, Utc};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use crate::kit::id;
use crate::kit::postgres;
use crate::sale::coupon::stock;
use crate::sale::installation;

/// The tables of the history.
const TABLES: [&str; 4] =
    ["order_history", "payment_history", "redemption_history", "stock_return_history"];

/// A month, as the number of months since the beginning of year 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(i32);

impl Month {
    /// The month of this time.
    pub fn of(time: DateTime<Utc>) -> Self {
        Self(12 * time.year() + time.month0() as i32)
    }

    /// The month of an order's claim.
    pub fn of_order(order: i64) -> Self {
        Self::of(id::time_of(order))
    }

    /// The month before this one by so many.
    pub fn back(self, months: u32) -> Self {
        Self(self.0.saturating_sub_unsigned(months))
    }

    /// The beginning of the month.
    pub fn begins(self) -> DateTime<Utc> {
        let month = self.0.rem_euclid(12).unsigned_abs() + 1;
        Utc.with_ymd_and_hms(self.0.div_euclid(12), month, 1, 0, 0, 0)
            .single()
            .expect("the first of a month")
    }

    fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The month as the names of its tables end: `202611`.
    fn name(self) -> String {
        self.begins().format("%Y%m").to_string()
    }

    fn of_name(name: &str) -> Option<Self> {
        let year: i32 = name.get(..4)?.parse().ok()?;
        let month: i32 = name.get(4..)?.parse().ok()?;
        (1..=12).contains(&month).then_some(Self(12 * year + month - 1))
    }
}

/// The months that are there.
pub async fn all(pool: &PgPool) -> sqlx::Result<BTreeSet<Month>> {
    let names = sqlx::query_scalar!(
        r#"SELECT right(relname::text, 6) AS "name!" FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
           WHERE inhparent = 'order_history'::regclass"#
    );
    let names = names.fetch_all(pool).await?;
    Ok(names.iter().filter_map(|name| Month::of_name(name)).collect())
}

/// Makes a month. Nothing if it is there.
pub async fn make(pool: &PgPool, month: Month) -> sqlx::Result<()> {
    let mut tx = postgres::begin(pool).await?;
    hold(&mut tx).await?;
    let (name, from, to) =
        (month.name(), id::first_at(month.begins()), id::first_at(month.next().begins()));
    for table in TABLES {
        let make = format!(
            "CREATE TABLE IF NOT EXISTS {table}_{name} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to})"
        );
        sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut *tx).await?;
    }
    tx.commit().await
}

/// Drops a month, and notes that its payments are known no more. Nothing if it isn't there.
pub async fn drop(pool: &PgPool, month: Month) -> sqlx::Result<()> {
    let mut tx = postgres::begin(pool).await?;
    // In this order: the second has the last word about waits for locks.
    stock::allow_long_statements(&mut tx).await?;
    hold(&mut tx).await?;
    installation::payments_kept_from(&mut tx, month.next().begins()).await?;
    let name = month.name();
    for table in TABLES {
        let drop = format!("DROP TABLE IF EXISTS {table}_{name}");
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *tx).await?;
    }
    tx.commit().await
}

/// Lets one transaction at a time make and drop months; others, and readers, are waited for only for a moment.
async fn hold(tx: &mut PgConnection) -> sqlx::Result<()> {
    let hold =
        "SET LOCAL lock_timeout = '100ms'; LOCK TABLE order_history IN SHARE UPDATE EXCLUSIVE MODE";
    sqlx::raw_sql(hold).execute(tx).await.map(std::mem::drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_found_by_its_name_and_follows_the_one_before() {
        for time in ["2022-01-01T00:00:00Z", "2026-11-30T23:59:59Z", "2026-12-01T00:00:00Z"] {
            let time: DateTime<Utc> = time.parse().expect("a time");
            let month = Month::of(time);
            assert_eq!(Month::of_name(&month.name()), Some(month));
            assert!(month.begins() <= time && time < month.next().begins());
            assert_eq!(month.next().back(1), month);
        }
        let last = Month::of_name("202612").expect("a month");
        assert_eq!(last.next().name(), "202701");
        assert_eq!(last.back(12).name(), "202512");
        assert_eq!(Month::of_name("202613"), None);
    }
}
