//! Storms: a crowd on the service's own machine, and a verdict on what it was told.
//!
//! # Model
//!
//! A storm creates a sale, sends real HTTP requests (`crowd.rs`), waits until the log is empty, looks up each accepted
//! order in Postgres, and compares the totals of both stores (`verdict.rs`). It takes no answer of the service on
//! trust. `flash-sale storm` prints its states. A demo shows them on its page ([`Storms`]), one storm at a time.
//! Finally the storm ends its sale.
//!
//! # What each failure does
//!
//! If the verdict can't be worked out, the storm has none, and says why ([`NoVerdict`]).

// The verdict.
mod verdict;

// Shoppers, and what they were told.
mod crowd;

// The naive design that the shoppers also ask.
mod naive;

// What can be broken during a storm.
mod trouble;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::uri::Authority;
use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::log::backlog::Backlog;
use crate::store::Stores;
use crate::store::ids::{CouponId, OrderId};
use crowd::{Crowd, Outcome, Repeats};
pub use crowd::{Issue, Plan};
use naive::Naive;
pub use trouble::Trouble;
use trouble::{Met, Troubles};
use verdict::Verdict;
pub use verdict::Word;

/// Rates are answers per second.
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    /// The sale is being created.
    #[default]
    Arming,
    Running,
    /// Orders are being written.
    Settling,
    /// Every order is being looked up.
    Checking,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoVerdict {
    Stopped,
    /// The sale could not be created.
    CrowdFailed,
    /// A store doesn't answer.
    StoreAway,
    /// Accepted claims still wait in the log.
    NotWritten,
}

/// State of a storm, as pages show it. Each frame is complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Frame {
    id: String,
    stage: Stage,
    coupon_id: Option<CouponId>,
    shoppers: u32,
    stock: u32,
    /// Time since the first shopper's arrival.
    elapsed_ms: u64,
    /// Shoppers that have their final answer.
    answered: u64,
    /// Units left; null while Redis can't tell.
    left: Option<i64>,
    /// Answers in the last second.
    rate: u64,
    /// Most answers in a second.
    peak: u64,
    /// Average answers per second, from the first shopper to the last answer.
    mean: u64,
    /// Accepted claims of all sales that wait to be written; null if Redis can't tell.
    backlog: Option<u64>,
    /// Orders in Postgres; null if it can't tell.
    rows: Option<i64>,
    counts: BTreeMap<Outcome, u64>,
    /// Shoppers that repeated their claim.
    repeats: Repeats,
    /// Outcomes in the order of the answers: `w12s3` means twelve winners, then three that were told "sold out".
    runs: String,
    /// Units that the naive design has sold to the same crowd; null if it could not be tried.
    naive_sold: Option<u64>,
    /// Trouble that can be made now; only a demo with its own servers offers any.
    troubles: Vec<Trouble>,
    /// Trouble that was made during this storm.
    met: Vec<Met>,
    pub verdict: Option<Verdict>,
    pub no_verdict: Option<NoVerdict>,
    /// An order whose claim can be followed, once the storm is over.
    followed: Option<OrderId>,
}

pub struct Storm<S> {
    crowd: Arc<Crowd>,
    stores: Stores,
    backlog: Arc<Backlog>,
    frame: Frame,
    naive: Option<Arc<Naive>>,
    /// When answers were counted, and how many: now, during the last second, and at its start.
    counted: VecDeque<(Instant, u64)>,
    /// When the first shopper was due.
    began_at: Instant,
    show: S,
}

impl<S: FnMut(&Frame)> Storm<S> {
    /// `show` is called with each state.
    pub fn new(
        service: &Authority,
        issue: Issue,
        plan: Plan,
        began_at: DateTime<Utc>,
        (stores, backlog): (Stores, Arc<Backlog>),
        show: S,
    ) -> Self {
        let crowd = Arc::new(Crowd::new(service, issue, plan, began_at));
        let id = began_at.timestamp_millis().to_string();
        let Plan { shoppers, stock, .. } = plan;
        let frame = Frame { id, shoppers, stock, ..Frame::default() };
        let (counted, began_at) = (VecDeque::new(), Instant::now());
        Self { crowd, stores, backlog, frame, naive: None, counted, began_at, show }
    }

    /// Runs the storm to its verdict, or until it is stopped. Returns the last state.
    pub async fn run(mut self, stop: &CancellationToken, shutdown: &Shutdown) -> Frame {
        self.enter(Stage::Arming);
        let outcome = tokio::select! {
            () = stop.cancelled() => Err(NoVerdict::Stopped),
            outcome = self.play() => outcome,
        };
        // A stopping service answers nothing. The window ends the sale then.
        if let Some(coupon) = self.frame.coupon_id
            && !shutdown.is_announced()
            && let Err(error) = self.crowd.end_sale(coupon).await
        {
            tracing::warn!(%coupon, %error, "the sale of a storm could not be ended; its window ends it");
        }
        self.frame.verdict = outcome.as_ref().ok().cloned();
        self.frame.no_verdict = outcome.err();
        self.frame.followed = self.crowd.told().followed;
        self.enter(Stage::Done);
        self.frame
    }

    async fn play(&mut self) -> Result<Verdict, NoVerdict> {
        let coupon = self.crowd.open_sale().await.map_err(|error| {
            tracing::warn!("{error:#}");
            NoVerdict::CrowdFailed
        })?;
        self.frame.coupon_id = Some(coupon);
        let (redis, keys) = (self.stores.redis(coupon.lane()), &self.stores.keys);
        let naive = Naive::open(redis.clone(), keys.naive(coupon), self.frame.stock).await;
        self.naive = naive.map(Arc::new);
        self.began_at = Instant::now();
        self.enter(Stage::Running);
        let (crowd, naive) = (self.crowd.clone(), self.naive.clone());
        tokio::select! {
            () = crowd.shop(coupon, naive.as_deref()) => {}
            () = self.keep_checking(coupon) => {}
        }
        self.enter(Stage::Settling);
        self.settle(coupon).await?;
        self.enter(Stage::Checking);
        let told = self.crowd.told().clone();
        let stock = self.frame.stock.into();
        match verdict::found(&self.stores, coupon, stock, &told.orders).await {
            Ok(found) => Ok(Verdict::of(&told, &found)),
            Err(error) => {
                tracing::warn!(%error, "the verdict on a storm can't be worked out");
                Err(NoVerdict::StoreAway)
            }
        }
    }

    /// Reads and shows the numbers until it is dropped.
    async fn keep_checking(&mut self, coupon: CouponId) {
        loop {
            self.check(coupon).await;
            sleep(limits::STORM_PERIOD).await;
        }
    }

    /// Waits until each accepted claim has been written.
    async fn settle(&mut self, coupon: CouponId) -> Result<(), NoVerdict> {
        let began = Instant::now();
        let mut heard = began;
        loop {
            self.check(coupon).await;
            // A Redis that was emptied has neither a backlog nor the sale.
            match self.frame.backlog.filter(|_| self.frame.left.is_some()) {
                Some(0) => return Ok(()),
                Some(_) => heard = Instant::now(),
                None if heard.elapsed() > limits::STORM_AWAY_MAX => {
                    return Err(NoVerdict::StoreAway);
                }
                None => {}
            }
            if began.elapsed() > limits::STORM_SETTLE_MAX {
                return Err(NoVerdict::NotWritten);
            }
            sleep(limits::STORM_PERIOD).await;
        }
    }

    /// Reads the numbers from the stores, and shows them. A number that can't be read is null.
    async fn check(&mut self, coupon: CouponId) {
        let (left, rows, backlog) = tokio::join!(
            timeout(limits::STORM_CHECK_MAX, verdict::left(&self.stores, coupon)),
            timeout(limits::STORM_CHECK_MAX, verdict::rows(&self.stores.pool, coupon)),
            timeout(limits::STORM_CHECK_MAX, self.backlog.check()),
        );
        self.frame.left = left.ok().and_then(Result::ok);
        self.frame.rows = rows.ok().and_then(Result::ok);
        self.frame.backlog = backlog.ok().and_then(Result::ok);
        self.show();
    }

    fn enter(&mut self, stage: Stage) {
        self.frame.stage = stage;
        self.show();
    }

    fn show(&mut self) {
        let (frame, told) = (&mut self.frame, self.crowd.told());
        let (now, answered) = (Instant::now(), told.answered());
        self.counted.push_back((now, answered));
        while self.counted.get(1).is_some_and(|(at, _)| now - *at >= SECOND) {
            self.counted.pop_front();
        }
        let (since, before) = self.counted[0];
        // Answers in less than a second count as answers in one second.
        let a_second =
            |answers: u64, time| (answers as f64 / SECOND.max(time).as_secs_f64()) as u64;
        frame.rate = a_second(answered - before, now - since);
        if answered > frame.answered {
            frame.mean = a_second(answered, now - self.began_at);
        }
        // `rate` covers a little more than a second, so in a short storm it can be below the average.
        frame.peak = frame.peak.max(frame.rate).max(frame.mean);
        frame.elapsed_ms = (now - self.began_at).as_millis().try_into().unwrap_or(u64::MAX);
        frame.naive_sold = self.naive.as_deref().map(Naive::sold);
        frame.answered = answered;
        frame.counts.clone_from(&told.outcomes);
        frame.repeats = told.repeats;
        frame.runs.clear();
        for (outcome, count) in &told.runs {
            let letter = match outcome {
                Outcome::Won => 'w',
                Outcome::SoldOut => 's',
                Outcome::ComeBack => 'b',
                Outcome::Unknown => 'u',
                Outcome::Refused => 'r',
            };
            let _ = write!(frame.runs, "{letter}{count}");
        }
        drop(told);
        (self.show)(frame);
    }
}

/// Starts the storms of a demo, and reports their state.
#[derive(Clone)]
pub struct Storms(Arc<Shared>);

struct Shared {
    stores: Stores,
    backlog: Arc<Backlog>,
    frames: watch::Sender<Option<Arc<Frame>>>,
    troubles: Troubles,
    /// Stops the current storm.
    current: Mutex<Option<CancellationToken>>,
    /// One permit for each watcher that is allowed.
    places: Arc<Semaphore>,
    shutdown: Shutdown,
}

pub struct Watching {
    frames: watch::Receiver<Option<Arc<Frame>>>,
    _place: OwnedSemaphorePermit,
}

impl Storms {
    pub fn new(stores: &Stores, backlog: Arc<Backlog>, shutdown: Shutdown) -> Self {
        let places = Arc::new(Semaphore::new(limits::STORM_WATCHERS_MAX));
        let (frames, current) = (watch::Sender::new(None), Mutex::default());
        let (stores, troubles) = (stores.clone(), Troubles::default());
        Self(Arc::new(Shared { stores, backlog, frames, troubles, current, places, shutdown }))
    }

    /// Starts a storm. False if another one runs.
    pub fn start(
        &self,
        service: &Authority,
        issue: Issue,
        plan: Plan,
        began_at: DateTime<Utc>,
    ) -> bool {
        let shared = self.0.clone();
        let stop = shared.shutdown.stop_token().child_token();
        {
            let mut current = shared.current.lock().expect("no holder of this lock panics");
            if current.is_some() {
                return false;
            }
            *current = Some(stop.clone());
        }
        shared.troubles.forget();
        let read = (shared.stores.clone(), shared.backlog.clone());
        let shown = shared.clone();
        let show = move |frame: &Frame| shown.show(frame.clone());
        let storm = Storm::new(service, issue, plan, began_at, read, show);
        self.0.shutdown.spawn(async move {
            storm.run(&stop, &shared.shutdown).await;
            *shared.current.lock().expect("no holder of this lock panics") = None;
        });
        true
    }

    /// Stops the current storm. False if there is none.
    pub fn stop(&self) -> bool {
        let current = self.0.current.lock().expect("no holder of this lock panics");
        current.as_ref().map(CancellationToken::cancel).is_some()
    }

    /// Allows trouble, because the servers are this process's own. The returned `Notify` says when the worker has to
    /// die.
    pub fn allow_trouble(&self) -> Arc<Notify> {
        self.0.troubles.allow()
    }

    /// Makes trouble in the current storm. False if there is no storm, if no trouble is allowed, or while other trouble
    /// lasts.
    pub fn make(&self, trouble: Trouble) -> bool {
        let last = self.last().filter(|frame| frame.troubles.contains(&trouble));
        let met = last.map(|frame| Met { trouble, at_ms: frame.elapsed_ms });
        let Some(_) = met.filter(|met| self.0.troubles.begin(*met)) else {
            return false;
        };
        let shared = self.0.clone();
        self.0.shutdown.spawn(async move {
            shared.troubles.make(trouble, shared.stores.fleet.first()).await;
        });
        true
    }

    /// The newest state of the last storm.
    pub fn last(&self) -> Option<Arc<Frame>> {
        self.0.frames.borrow().clone()
    }

    /// Starts watching with the newest state. `None` if all places are taken.
    pub fn watch(&self) -> Option<Watching> {
        let place = self.0.places.clone().try_acquire_owned().ok()?;
        let mut frames = self.0.frames.subscribe();
        frames.mark_changed();
        Some(Watching { frames, _place: place })
    }
}

impl Shared {
    fn show(&self, mut frame: Frame) {
        if matches!(frame.stage, Stage::Running | Stage::Settling) {
            frame.troubles = self.troubles.offered();
        }
        frame.met = self.troubles.met();
        self.frames.send_replace(Some(Arc::new(frame)));
    }
}

impl Watching {
    /// Waits for a state that this watcher hasn't seen, or repeats the last state after a while without a change. The
    /// inner value is `None` before the first storm; the outer is `None` if no state will follow.
    pub async fn next(&mut self) -> Option<Option<Arc<Frame>>> {
        if let Ok(changed) = timeout(limits::LIVE_HEARTBEAT, self.frames.changed()).await {
            changed.ok()?;
        }
        Some(self.frames.borrow_and_update().clone())
    }
}
