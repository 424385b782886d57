//! The parts that all locks of one client share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::RedisResult;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::layout::{self, Holder, Layout, Released};
use super::renewal::{Hold, Renewals};
use super::settings::Settings;
use super::wake::Wakes;
use crate::connection::{Connection, Server, Subscribe, answer_within};
use crate::tasks::Tasks;

/// One client: a connection, an identity, and everything that is held by it.
pub(super) struct Client {
    pub(super) server: Server,
    pub(super) layout: Arc<Layout>,
    pub(super) settings: Settings,
    /// First half of the name of every holder.
    id: String,
    /// Number of the next holder.
    holders: AtomicU64,
    pub(super) renewals: Renewals,
    pub(super) wakes: Wakes,
    /// Owner of the tasks that try, renew and release.
    pub(super) tasks: Tasks,
}

impl Client {
    pub(super) fn new(
        connection: impl Connection,
        subscribe: impl Subscribe,
        settings: Settings,
        tasks: Tasks,
    ) -> Self {
        let server = Server::new(connection);
        let layout = Arc::new(Layout::new());
        Self {
            renewals: Renewals::new(server.clone(), layout.clone(), settings, tasks.clone()),
            wakes: Wakes::new(subscribe, tasks.clone()),
            server,
            layout,
            settings,
            id: Uuid::new_v4().to_string(),
            holders: AtomicU64::new(1),
            tasks,
        }
    }

    pub(super) fn holder(&self, lease: Duration, is_renewed: bool) -> Holder {
        let number = self.holders.fetch_add(1, Ordering::Relaxed);
        Holder::new(&self.id, number, lease, is_renewed)
    }

    /// Cuts the leases of these locks, which other holders have, if the first one lasts longer than any lease that is asked
    /// for.
    pub(super) async fn cut_long_leases(
        &self,
        left: Option<Duration>,
        names: &[impl AsRef<str>],
    ) -> RedisResult<()> {
        let Settings { lease, lease_max, .. } = self.settings;
        let Some(lease_max) = lease_max.filter(|max| left.is_some_and(|left| left > *max)) else {
            return Ok(());
        };
        let cut = self.layout.cut_leases(&self.server, names, lease_max, lease).await?;
        if cut > 0 {
            tracing::warn!(
                locks = cut,
                "leases were longer than any that is asked for and have been cut: Redis's clock has been set back"
            );
        }
        Ok(())
    }

    pub(super) async fn release(self: &Arc<Self>, hold: &Arc<Hold>) -> RedisResult<Released> {
        // The same holder may have entered anew since it lost this hold, and that entry has a guard of its own.
        if !self.renewals.leave(hold) {
            return Ok(Released::NotHeld);
        }
        let name = &hold.names[0];
        let request = Uuid::new_v4().simple().to_string();
        let released = self.unlock(name, &hold.holder, &request).await?;
        if released != Released::NotHeld {
            self.forget_latch(layout::latch_key(name, &request));
        }
        Ok(released)
    }

    /// Sends the request again when there is no answer, while its latch is sure to be there: a request that comes later
    /// would be taken for a new one.
    async fn unlock(&self, name: &str, holder: &Holder, request: &str) -> RedisResult<Released> {
        let Settings { latch, release_timeout, release_pause, .. } = self.settings;
        let tries_end = Instant::now() + latch.saturating_sub(release_timeout + release_pause);
        let mut tries = 1;
        loop {
            let answer = self.layout.unlock(&self.server, name, holder, request, latch);
            let released = answer_within(release_timeout, answer).await;
            let is_last = tries >= self.settings.release_tries_max || Instant::now() >= tries_end;
            if released.is_ok() || is_last {
                return released;
            }
            tries += 1;
            sleep(release_pause).await;
        }
    }

    /// The latch would run out by itself; nothing waits for this.
    fn forget_latch(self: &Arc<Self>, latch: String) {
        let client = self.clone();
        self.tasks.spawn(async move {
            let _: RedisResult<()> = client.server.query(redis::cmd("DEL").arg(latch)).await;
        });
    }
}
