//! Accepted claims of a day, counted row by row: a day may have a million orders.
//!
//! A count of few orders is of the moment at which it is asked for. A large one is kept and told again for a multiple of
//! the time that it took, so operators who look at a page take Postgres a twentieth of the time at most.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::day::Day;
use crate::base::clock::Clock;
use crate::base::limits;
use crate::kit::id;
use crate::kit::postgres;
use crate::sale::coupon::stock;

/// Accepted claims of a day, at one moment.
#[derive(Clone)]
pub struct Counted {
    pub at: DateTime<Utc>,
    /// By status.
    pub orders: BTreeMap<String, i64>,
    /// Dead letters without an order.
    pub letters: i64,
    /// True if no order can have been dropped with its month.
    pub is_whole: bool,
}

/// Counts days, and keeps large counts for a while.
pub struct Counts {
    pool: PgPool,
    clock: Clock,
    /// Held by the one caller that counts.
    kept: Mutex<HashMap<Day, Kept>>,
}

struct Kept {
    counted: Counted,
    until: Instant,
}

impl Counts {
    pub fn new(pool: PgPool, clock: Clock) -> Self {
        Self { pool, clock, kept: Mutex::default() }
    }

    /// The count of this day.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or takes more than [`limits::DAY_COUNT_TIMEOUT`].
    pub async fn of(&self, day: Day) -> sqlx::Result<Counted> {
        let mut all = self.kept.lock().await;
        let began = Instant::now();
        all.retain(|_, kept| began < kept.until);
        if let Some(kept) = all.get(&day) {
            return Ok(kept.counted.clone());
        }
        let counted = self.count(day).await?;
        if counted.orders.values().sum::<i64>() >= limits::DAY_COUNT_KEPT_MIN {
            let until = Instant::now() + limits::DAY_COUNT_PAUSES * began.elapsed();
            all.insert(day, Kept { counted: counted.clone(), until });
        }
        Ok(counted)
    }

    /// Orders by status, and dead letters without an order, at one moment.
    async fn count(&self, day: Day) -> sqlx::Result<Counted> {
        let at = self.clock.now();
        let mut tx = postgres::begin(&self.pool).await?;
        stock::allow_statements(&mut tx, limits::DAY_COUNT_TIMEOUT).await?;
        let rows = sqlx::query!(
            r#"SELECT status AS "status?", count(*) AS "claims!"
               FROM every_order WHERE id >= $1 AND id < $2 GROUP BY status
               UNION ALL
               SELECT NULL, count(*) FROM dead_letters
               WHERE order_id >= $1 AND order_id < $2
                   AND NOT EXISTS (SELECT FROM every_order WHERE every_order.id = dead_letters.order_id)"#,
            id::first_at(day.begin()),
            id::first_at(day.end()),
        )
        .fetch_all(&mut *tx)
        .await?;
        let is_whole = sqlx::query_scalar!(
            r#"SELECT orders_moved_to < $1
                      OR to_regclass('order_history_' || to_char($2::timestamptz AT TIME ZONE 'UTC', 'YYYYMM')) IS NOT NULL
                          AS "is_whole!"
               FROM settings"#,
            id::first_at(day.begin()),
            day.begin(),
        )
        .fetch_one(&mut *tx)
        .await?;
        let letters = rows.iter().filter(|row| row.status.is_none()).map(|row| row.claims).sum();
        let orders = rows.into_iter().filter_map(|row| Some((row.status?, row.claims))).collect();
        Ok(Counted { at, orders, letters, is_whole })
    }
}
