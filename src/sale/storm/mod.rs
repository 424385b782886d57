//! Storms: a crowd on the demo's own machine, and a verdict on what it was told.
//!
//! # Model
//!
//! A storm has a process of its own, `flash-sale storm`, which makes a sale, sends real requests through the front door,
//! and prints what it was told. This room starts that process, shows its progress in a `watch` channel, and works out
//! the verdict from both stores once the log is empty: the crowd judges nothing.
//!
//! One storm is under way at a time. Its sale is ended when it is over, so that no later buyer meets it.
//!
//! # What each failure does
//!
//! A storm whose verdict can't be worked out has none, and says why ([`NoVerdict`]): a store is away, the log is not
//! empty in time, the crowd's process has failed, or the storm was stopped. A storm ends with the service; a crowd whose
//! service has gone notices at its next line, and ends.

// State of a storm, as pages show it.
mod frame;

// Facts in the stores.
mod facts;

// The verdict.
pub mod verdict;

// Lines of the crowd's process.
pub mod lines;

// The storm as it is asked for, and the program of the crowd.
pub mod plan;

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::sale::audit::Actor;
use crate::sale::coupon::changes::CouponChanges;
use crate::sale::coupon::create::Coupons;
use crate::sale::coupon::model::CouponState;
use crate::sale::coupon::rules::Change;
use crate::sale::ids::CouponId;
use crate::sale::log::backlog::Backlog;
use crate::sale::trace::Traces;
use crate::sale::{Failure, Stores};
use frame::Storm;
pub use frame::{Frame, NoVerdict, Stage};
use lines::Line;
use plan::{Plan, Program};
use verdict::Verdict;

/// Starts storms, and tells their state.
#[derive(Clone)]
pub struct Storms(Arc<Shared>);

struct Shared {
    stores: Stores,
    coupons: Arc<Coupons>,
    changes: Arc<CouponChanges>,
    backlog: Arc<Backlog>,
    /// Has the claims of the crowd that asked for their times.
    traces: Arc<Traces>,
    frames: watch::Sender<Option<Arc<Frame>>>,
    /// Stops the storm that is under way.
    current: Mutex<Option<CancellationToken>>,
    /// A permit for each watcher that there may be.
    places: Arc<Semaphore>,
    shutdown: Shutdown,
}

/// States of storms, for one watcher.
pub struct Watching {
    frames: watch::Receiver<Option<Arc<Frame>>>,
    _place: OwnedSemaphorePermit,
}

impl Storms {
    /// Storms on these stores.
    pub fn new(
        stores: &Stores,
        (coupons, changes): (Arc<Coupons>, Arc<CouponChanges>),
        (backlog, traces): (Arc<Backlog>, Arc<Traces>),
        shutdown: Shutdown,
    ) -> Self {
        let places = Arc::new(Semaphore::new(limits::STORM_WATCHERS_MAX));
        let (frames, current) = (watch::Sender::new(None), Mutex::default());
        let stores = stores.clone();
        Self(Arc::new(Shared {
            stores,
            coupons,
            changes,
            backlog,
            traces,
            frames,
            current,
            places,
            shutdown,
        }))
    }

    /// Starts a storm, named `id`. False if another one is under way.
    pub fn start(&self, id: i64, program: Program, plan: Plan) -> bool {
        let stop = self.0.shutdown.stop_token().child_token();
        {
            let mut current = self.0.current.lock().expect("no holder of this lock panics");
            if current.is_some() {
                return false;
            }
            *current = Some(stop.clone());
        }
        let this = self.0.clone();
        self.0.shutdown.spawn(async move {
            this.run(id, &program, plan, &stop).await;
            *this.current.lock().expect("no holder of this lock panics") = None;
        });
        true
    }

    /// Stops the storm that is under way. False if there is none.
    pub fn stop(&self) -> bool {
        let current = self.0.current.lock().expect("no holder of this lock panics");
        current.as_ref().map(CancellationToken::cancel).is_some()
    }

    /// The newest state of the last storm.
    pub fn last(&self) -> Option<Arc<Frame>> {
        self.0.frames.borrow().clone()
    }

    /// Watches storms, from the newest state on. `None` when there are as many watchers as there may be.
    pub fn watch(&self) -> Option<Watching> {
        let place = self.0.places.clone().try_acquire_owned().ok()?;
        let mut frames = self.0.frames.subscribe();
        frames.mark_changed();
        Some(Watching { frames, _place: place })
    }
}

impl Watching {
    /// The next state that this watcher hasn't seen, or the last one once more after a while of silence. `None` inside
    /// before the first storm; `None` outside when there will be no further state.
    pub async fn next(&mut self) -> Option<Option<Arc<Frame>>> {
        if let Ok(changed) = timeout(limits::LIVE_HEARTBEAT, self.frames.changed()).await {
            changed.ok()?;
        }
        Some(self.frames.borrow_and_update().clone())
    }
}

impl Shared {
    async fn run(&self, id: i64, program: &Program, plan: Plan, stop: &CancellationToken) {
        let mut storm = Storm::new(id, plan);
        self.show(&storm);
        let outcome = tokio::select! {
            () = stop.cancelled() => Err(NoVerdict::Stopped),
            outcome = self.play(program, &mut storm) => outcome,
        };
        let end = Change::Move(CouponState::Ended, None);
        if let Some(coupon) = storm.coupon
            && let Err(error) = self.changes.change(coupon, end, &Actor::command_line()).await
        {
            tracing::warn!(%coupon, %error, "the sale of a storm could not be ended; its window ends it");
        }
        let followed = storm.coupon.and_then(|coupon| self.traces.newest_of(coupon));
        storm.end(outcome, followed);
        self.show(&storm);
    }

    /// The storm from its process to its verdict.
    async fn play(&self, program: &Program, storm: &mut Storm) -> Result<Verdict, NoVerdict> {
        let crowd = program.start(storm.plan()).map_err(|error| failed(&error))?;
        self.follow(crowd, storm).await?;
        storm.stage = Stage::Settling;
        self.show(storm);
        self.settle(storm).await?;
        storm.stage = Stage::Checking;
        self.show(storm);
        self.judge(storm).await
    }

    /// Takes the crowd's lines in until it has gone, and shows the state now and then.
    async fn follow(&self, mut crowd: Child, storm: &mut Storm) -> Result<(), NoVerdict> {
        let printed = crowd.stdout.take().ok_or(NoVerdict::CrowdFailed)?;
        let mut lines = BufReader::new(printed).lines();
        let mut ticks = interval(limits::STORM_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                line = lines.next_line() => match line.map_err(|error| failed(&error))? {
                    Some(line) => {
                        let line: Line = serde_json::from_str(&line).map_err(|error| failed(&error))?;
                        storm.take(line);
                    }
                    None => break,
                },
                _ = ticks.tick() => {
                    self.look(storm).await;
                    self.show(storm);
                }
            }
        }
        let status = crowd.wait().await.map_err(|error| failed(&error))?;
        if storm.has_ended() && status.success() { Ok(()) } else { Err(NoVerdict::CrowdFailed) }
    }

    /// Waits until each accepted claim has been written.
    async fn settle(&self, storm: &mut Storm) -> Result<(), NoVerdict> {
        let began = Instant::now();
        let mut heard = began;
        loop {
            self.look(storm).await;
            self.show(storm);
            match storm.backlog {
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

    async fn judge(&self, storm: &Storm) -> Result<Verdict, NoVerdict> {
        let coupon = storm.coupon.ok_or(NoVerdict::CrowdFailed)?;
        let of_sale = (coupon, i64::from(storm.plan().stock));
        let found = facts::found(&self.stores, &self.coupons, of_sale, &storm.told.orders);
        match found.await {
            Ok(Some(found)) => Ok(Verdict::of(&storm.told, &found, storm.figures())),
            Ok(None) => Err(NoVerdict::StoreAway),
            Err(error) => {
                tracing::warn!(%error, "the verdict on a storm can't be worked out");
                Err(NoVerdict::StoreAway)
            }
        }
    }

    /// Looks the numbers of the stores up. A number that can't be had is none.
    async fn look(&self, storm: &mut Storm) {
        let Some(coupon) = storm.coupon else { return };
        let looked = timeout(limits::STORM_LOOK_MAX, async {
            tokio::join!(facts::left(&self.coupons, coupon), self.rows(coupon), self.backlog.look(),)
        });
        let (left, rows, backlog) = match looked.await {
            Ok((left, rows, backlog)) => (left.ok().flatten(), rows.ok(), backlog.ok()),
            Err(_) => (None, None, None),
        };
        (storm.left, storm.rows, storm.backlog) = (left, rows, backlog);
    }

    async fn rows(&self, coupon: CouponId) -> Result<i64, Failure> {
        Ok(facts::counted_rows(&self.stores.pool, coupon).await?)
    }

    fn show(&self, storm: &Storm) {
        self.frames.send_replace(Some(Arc::new(storm.frame())));
    }
}

fn failed(error: &dyn std::error::Error) -> NoVerdict {
    tracing::warn!(%error, "the crowd of a storm can't be followed");
    NoVerdict::CrowdFailed
}
