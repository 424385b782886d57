//! Reads a page, publishes it, moves the cursor.
//!
//! The cursor moves only behind what the engine has acknowledged. So each event is published at least once, and again
//! after a death in between. For each order, the first copies stand in the feed's order: an event is sent only when all
//! before it are acknowledged, or together with them in a way that keeps their order (`publish`).

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt::Display;
use std::time::Duration;

use anyhow::bail;
use chrono::{DateTime, Utc};
use tokio::time::{Instant, interval_at, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::event::{Batch, CloudEvent};
use crate::feed::Feed;
use crate::lease::{Cursor, Lease};
use crate::publish::{Engine, Publisher};
use crate::settings::Settings;

const REPORT_PERIOD: Duration = Duration::from_secs(60);
/// Time between two looks at a lease that another relay holds.
const LEASE_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Time for one try: to read a page, to publish a batch, to move the cursor.
const TRY_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses after a failure: each is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why the relay doesn't go on.
enum End {
    Stopped,
    LeaseLost,
    /// The service's reason.
    Refused(String),
}

struct Relay<'a, E> {
    settings: &'a Settings,
    engine: &'a E,
    stop: &'a CancellationToken,
    feed: Feed,
    lease: Lease,
    published: Cell<usize>,
    /// Time of the first event of the batch that is being published.
    oldest: Cell<Option<DateTime<Utc>>>,
}

/// Relays until told to stop.
///
/// # Errors
///
/// When a setting is wrong, or the service refuses to go on.
pub async fn run(
    settings: &Settings,
    engine: &impl Engine,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let (feed, lease) = (Feed::new(settings)?, Lease::new(settings)?);
    let published = Cell::default();
    let relay = Relay { settings, engine, stop, feed, lease, published, oldest: Cell::default() };
    let end = tokio::select! {
        end = relay.run() => end,
        never = relay.report() => match never {},
    };
    match end {
        End::Refused(reason) => bail!(reason),
        End::Stopped | End::LeaseLost => Ok(()),
    }
}

impl<E: Engine> Relay<'_, E> {
    async fn run(&self) -> End {
        let mut forget = self.settings.from_oldest;
        loop {
            let end = match self.take_lease(forget).await {
                Err(end) => end,
                Ok(cursor) => tokio::select! {
                    Err(end) = self.follow(cursor) => end,
                    () = self.lease.keep() => End::LeaseLost,
                },
            };
            forget = false;
            if !matches!(end, End::LeaseLost) {
                if let Err(error) = self.lease.release().await {
                    tracing::warn!("the lease runs out by itself, it can't be released: {error}");
                }
                return end;
            }
            tracing::warn!("lost the lease; nothing is published until it is taken again");
        }
    }

    /// Waits for the lease. Returns the cursor, which is dropped first if it is to be forgotten.
    async fn take_lease(&self, forget: bool) -> Result<Cursor, End> {
        let (away, name) = ("Postgres doesn't answer", &self.settings.name);
        self.retry(away, async || self.lease.create_table().await).await?;
        let mut is_told = false;
        loop {
            let taken = self.retry(away, async || self.lease.take(forget).await).await?;
            if let Some(cursor) = taken {
                let last = cursor.as_deref().unwrap_or("none");
                tracing::info!("{name} publishes; the last event that was published: {last}");
                return Ok(cursor);
            }
            if !is_told {
                tracing::info!("another relay named {name} is at work; waiting for its lease");
                is_told = true;
            }
            self.pause(LEASE_CHECK_PERIOD).await?;
        }
    }

    /// Publishes what is behind the cursor, for as long as the lease is ours.
    async fn follow(&self, mut cursor: Cursor) -> Result<Infallible, End> {
        let mut engine = Publisher::new(self.engine);
        loop {
            let page = self.read(&cursor).await?;
            for Batch { messages, last, time } in Batch::of_page(page) {
                self.oldest.set(Some(time));
                let publish = async || engine.publish(&messages).await;
                self.retry("the engine takes no messages", publish).await?;
                self.published.update(|before| before + messages.len());
                let last = Some(last);
                let moved = async || self.lease.move_cursor(&cursor, &last).await;
                if !self.retry("Postgres doesn't answer", moved).await? {
                    return Err(End::LeaseLost);
                }
                cursor = last;
                self.oldest.set(None);
            }
        }
    }

    /// The next page, or an empty one after 10 s.
    async fn read(&self, after: &Cursor) -> Result<Vec<CloudEvent>, End> {
        let page = self.retry("the service doesn't answer", async || self.feed.read(after).await);
        let page = self.stop.run_until_cancelled(page).await.ok_or(End::Stopped)??;
        page.map_err(End::Refused)
    }

    /// Tries until it succeeds. A try isn't cut short by a stop, only the pause between two.
    async fn retry<T, F: Display>(
        &self,
        what_fails: &str,
        mut attempt: impl AsyncFnMut() -> Result<T, F>,
    ) -> Result<T, End> {
        let mut pause = FIRST_PAUSE;
        loop {
            match timeout(TRY_TIMEOUT, attempt()).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) => tracing::warn!("{what_fails}: {error:#}; retrying in {pause:?}"),
                Err(_) => tracing::warn!("{what_fails} in {TRY_TIMEOUT:?}; retrying in {pause:?}"),
            }
            self.pause(pause).await?;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    async fn pause(&self, time: Duration) -> Result<(), End> {
        self.stop.run_until_cancelled(sleep(time)).await.ok_or(End::Stopped)
    }

    /// Says once a minute how it goes, if there is anything to say.
    async fn report(&self) -> Infallible {
        let mut minutes = interval_at(Instant::now() + REPORT_PERIOD, REPORT_PERIOD);
        loop {
            minutes.tick().await;
            let published = self.published.take();
            let behind = self.oldest.get().map_or(0, |time| (now() - time).num_seconds());
            if published > 0 || behind > 0 {
                tracing::info!("published {published} messages in a minute; {behind} s behind");
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "for a log line, not for a decision")]
fn now() -> DateTime<Utc> {
    Utc::now()
}
