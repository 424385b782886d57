//! The layout of the log that this process appends to.
//!
//! Versions before the log of calls can't read it. So a process appends to the log of claims as long as an older
//! process is connected to Postgres; workers of this version read both. From the first call in a lane on, the claim
//! script refuses to append to that lane's log of claims, and a process that hears so changes over. So once a worker
//! has seen the log of claims empty beside a log of calls, nothing of this version comes into it again.
//!
//! An operator who knows better than the list of connections (a connection pooler hides them) begins the logs of
//! calls by `flash-sale log switch`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::RedisResult;
use sqlx::PgPool;

use crate::kit::postgres;
use crate::kit::redis::Redis;
use crate::sale::ids::Lane;
use crate::sale::keys::{Keys, LogLayout};

/// The layout in use.
pub struct LayoutInUse {
    pool: PgPool,
    /// Set once, and never taken back.
    calls: AtomicBool,
}

impl LayoutInUse {
    /// The layout after a first look.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn looked_up(pool: &PgPool) -> sqlx::Result<Arc<Self>> {
        let layout = Self { pool: pool.clone(), calls: AtomicBool::new(false) };
        layout.pass().await?;
        Ok(Arc::new(layout))
    }

    /// The layout to append in.
    pub fn get(&self) -> LogLayout {
        match self.calls.load(Ordering::Relaxed) {
            true => LogLayout::Calls,
            false => LogLayout::Claims,
        }
    }

    /// Changes over to the log of calls.
    pub fn learn_calls(&self) {
        self.calls.store(true, Ordering::Relaxed);
    }

    /// Changes over if no older process is connected to Postgres.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer; then the layout stays.
    pub async fn pass(&self) -> sqlx::Result<()> {
        if self.get() == LogLayout::Claims && !postgres::has_older_processes(&self.pool).await? {
            self.learn_calls();
        }
        Ok(())
    }
}

/// Begins the log of calls in each of these lanes.
///
/// # Errors
///
/// When Redis doesn't answer. Some of the lanes may have been begun then; a repeat begins the others.
pub async fn begin_calls(
    redis: &Redis,
    keys: &Keys,
    lanes: impl Iterator<Item = Lane>,
) -> RedisResult<i32> {
    let mut begun = 0;
    for lane in lanes {
        let mut command = redis::cmd("HSETNX");
        command.arg(keys.lane(lane)).arg("promised").arg(0);
        begun += i32::from(redis.query::<bool>(&command).await?);
    }
    Ok(begun)
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;
    use sqlx::postgres::PgPoolOptions;

    use super::*;

    #[tokio::test]
    async fn a_pass_asks_for_older_processes_until_the_layout_in_use_is_that_of_calls() {
        bound_this_test();
        let pool = PgPoolOptions::new().connect_lazy("postgres://localhost/none");
        let layout = LayoutInUse { pool: pool.expect("a valid URL"), calls: false.into() };
        layout.pool.close().await;
        layout.pass().await.expect_err("Postgres is asked");
        assert_eq!(layout.get(), LogLayout::Claims);
        layout.learn_calls();
        layout.pass().await.expect("Postgres is not asked");
        assert_eq!(layout.get(), LogLayout::Calls);
    }
}
