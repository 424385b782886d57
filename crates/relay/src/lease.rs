//! The cursor, and the right to publish: one row in Postgres for each name.
//!
//! The holder renews its lease three times in the lease's life. One that can't, because Postgres is away, stops publishing
//! before the lease has run out. One that hung notices the loss when it goes on, and may have published what another relay
//! has published before it: consumers see a repeat, and no event out of its order. Whether a lease has run out is decided
//! by the clock of Postgres alone.

use std::time::Duration;

use anyhow::Context;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use crate::settings::Settings;

/// Time to get a connection that works.
const TIMEOUT: Duration = Duration::from_secs(5);

pub struct Lease {
    pool: PgPool,
    name: String,
    holder: String,
    time: Duration,
}

/// Id of the last event that was published; none before the first.
pub type Cursor = Option<String>;

impl Lease {
    /// The lease of this relay's name, not taken yet.
    ///
    /// # Errors
    ///
    /// When the URL of the database can't be understood.
    pub fn new(settings: &Settings) -> anyhow::Result<Self> {
        let options = settings.database_url.text()?.parse::<PgConnectOptions>();
        let options = options.ok().context("--database-url has to be postgres://user@host/name")?;
        // The cursor moves beside the renewal.
        let pool = PgPoolOptions::new().max_connections(2).acquire_timeout(TIMEOUT);
        Ok(Self {
            pool: pool.connect_lazy_with(options),
            name: settings.name.clone(),
            holder: Uuid::new_v4().to_string(),
            time: Duration::from_secs(settings.lease_s.into()),
        })
    }

    pub async fn create_table(&self) -> sqlx::Result<()> {
        // Asked first, because IF NOT EXISTS needs the right to create even where the table is there.
        let exists = sqlx::query_scalar("SELECT to_regclass('relays') IS NOT NULL");
        if exists.fetch_one(&self.pool).await? {
            return Ok(());
        }
        let create = "CREATE TABLE IF NOT EXISTS relays (name text PRIMARY KEY, cursor text, leased_until timestamptz, holder text)";
        sqlx::query(create).execute(&self.pool).await.map(drop)
    }

    /// Takes the lease if it is free, run out, or ours. Returns the cursor, which is dropped if it is to be forgotten.
    pub async fn take(&self, forget: bool) -> sqlx::Result<Option<Cursor>> {
        let query = sqlx::query_scalar(
            "INSERT INTO relays AS r (name, holder, leased_until)
             VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, leased_until = excluded.leased_until,
                 cursor = CASE WHEN $4 THEN NULL ELSE r.cursor END
             WHERE r.holder IS NULL OR r.holder = excluded.holder OR r.leased_until <= clock_timestamp()
             RETURNING cursor",
        );
        let query = query.bind(&self.name).bind(&self.holder).bind(self.time.as_secs_f64());
        query.bind(forget).fetch_optional(&self.pool).await
    }

    /// Renews the lease until it is lost: taken by another relay, or run out for want of an answer.
    pub async fn keep(&self) {
        // It was taken a moment ago.
        let mut ends = Instant::now() + self.time / 2;
        loop {
            let renewed = timeout_at(ends, async {
                sleep(self.time / 3).await;
                (Instant::now(), self.renew().await)
            });
            match renewed.await {
                Ok((asked, Ok(true))) => ends = asked + self.time,
                Ok((_, Ok(false))) | Err(_) => return,
                Ok((_, Err(error))) => tracing::warn!("the lease can't be renewed: {error}"),
            }
        }
    }

    async fn renew(&self) -> sqlx::Result<bool> {
        let query = sqlx::query(
            "UPDATE relays SET leased_until = clock_timestamp() + make_interval(secs => $3)
             WHERE name = $1 AND holder = $2",
        );
        let query = query.bind(&self.name).bind(&self.holder).bind(self.time.as_secs_f64());
        Ok(query.execute(&self.pool).await?.rows_affected() == 1)
    }

    /// Moves the cursor; false if the lease is another's, or the cursor isn't where it was. A repeat does nothing.
    pub async fn move_cursor(&self, from: &Cursor, to: &Cursor) -> sqlx::Result<bool> {
        let query = sqlx::query(
            "UPDATE relays SET cursor = $4 WHERE name = $1 AND holder = $2
             AND (cursor IS NOT DISTINCT FROM $3 OR cursor IS NOT DISTINCT FROM $4)",
        );
        let query = query.bind(&self.name).bind(&self.holder).bind(from).bind(to);
        Ok(query.execute(&self.pool).await?.rows_affected() == 1)
    }

    /// Lets another relay go on at once.
    pub async fn release(&self) -> sqlx::Result<()> {
        let query = sqlx::query("UPDATE relays SET holder = NULL WHERE name = $1 AND holder = $2");
        query.bind(&self.name).bind(&self.holder).execute(&self.pool).await.map(drop)
    }
}
