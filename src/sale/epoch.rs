//! The epoch of the installation, as this process knows it.
//!
//! Each call of a sale script names the epoch. A script answers STALE if the sale has another epoch; then the process
//! asks Postgres for the present one.

use std::sync::atomic::{AtomicI64, Ordering};

use moka::future::Cache;
use sqlx::PgPool;

use crate::base::limits;
use crate::sale::{Failure, installation};

/// The epoch that this process tells the sale scripts.
pub struct Epoch {
    pool: PgPool,
    known: AtomicI64,
    /// The epoch in Postgres, remembered for [`limits::LOADER_MEMORY`].
    read: Cache<(), i64>,
}

impl Epoch {
    /// An epoch that begins as Postgres has it now.
    pub fn new(pool: PgPool, epoch: i64) -> Self {
        let read = Cache::builder().max_capacity(1).time_to_live(limits::LOADER_MEMORY).build();
        Self { pool, known: AtomicI64::new(epoch), read }
    }

    /// The epoch to tell the sale scripts.
    pub fn get(&self) -> i64 {
        self.known.load(Ordering::Relaxed)
    }

    /// Asks Postgres for the present epoch; once for all callers, and no more often than once in
    /// [`limits::LOADER_MEMORY`].
    pub async fn refresh(&self) -> Result<(), Failure> {
        let read = async { Ok::<_, Failure>(installation::read(&self.pool).await?.epoch) };
        let epoch = self.read.try_get_with((), read).await?;
        self.known.store(epoch, Ordering::Relaxed);
        Ok(())
    }
}
