//! One slice: prepare, send, watch, and let the worker finish.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

use crate::arguments::ClientArguments;
use crate::figures::{Void, say};
use crate::load::pace::Pace;
use crate::load::record::{Ending, is_unknown};
use crate::load::scenario::{Book, Scenario, misplaced};
use crate::load::sending::{Load, Outcome, Plan, Sampling, Threads};
use crate::measure::cost::Reading;
use crate::measure::durable::{self, Durable};
use crate::measure::slice::{Latency, Slice};
use crate::service::target::Target;
use flash_sale::base::shutdown::Shutdown;

/// Time between two looks whether a slice that has a number of requests is complete.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time that an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which the cheapest request is sent, to learn how many users a slice could need.
const CALIBRATION: Duration = Duration::from_millis(700);
/// Users for so many times the highest rate that was seen: machines have moods.
const USERS_MARGIN: f64 = 2.0;
/// Tries of a slice, each with more users than before.
const USERS_TRIES: u32 = 3;

/// The common state of slices.
pub struct Bench {
    pub client: ClientArguments,
    pub shutdown: Shutdown,
    /// Requests a second that were seen at most: by the cheapest request first, then by each scenario.
    pub fastest: HashMap<Option<Scenario>, f64>,
}

/// The clock and the counters, at one moment.
struct Moment {
    at: Instant,
    done: u64,
    good: u64,
    sent: u64,
}

impl Moment {
    fn now(load: &Load) -> Self {
        Self { at: Instant::now(), done: load.done(), good: load.good(), sent: load.sent() }
    }
}

impl Bench {
    /// A bench that has seen no slice yet.
    pub fn new(client: ClientArguments, shutdown: Shutdown) -> Self {
        Self { client, shutdown, fastest: HashMap::new() }
    }

    /// Learns the highest rate of any request on this machine.
    pub async fn calibrate(&mut self, target: &Target) -> anyhow::Result<()> {
        say("looking how fast anything can be");
        let load = Load::new(self.plan(Pace::Closed, CALIBRATION), target.cheapest(), None);
        let mut threads = Threads::of(&load);
        let start = load.start(&mut threads).await?;
        let time = self.client.warm_up() + CALIBRATION;
        until(&load, start + time).await;
        threads.join().await?;
        self.saw(None, load.done() as f64 / start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Measures one slice. What it may have sold is entered into the target's books.
    pub async fn slice(
        &mut self,
        target: &mut Target,
        scenario: Scenario,
        pace: Pace,
    ) -> anyhow::Result<Slice> {
        let plan = self.plan(pace, self.client.measured());
        self.planned(target, scenario, plan).await
    }

    /// A slice that is as it has been planned. One that runs out of users is measured again, with more of them: then the
    /// service was faster than ever before, on a machine that was slow until then.
    pub async fn planned(
        &mut self,
        target: &mut Target,
        scenario: Scenario,
        plan: Plan,
    ) -> anyhow::Result<Slice> {
        for _ in 0..USERS_TRIES {
            if let Some(slice) = self.attempt(target, scenario, plan.clone()).await? {
                return Ok(slice);
            }
        }
        let name = scenario.name();
        Err(Void(format!("{name} ran out of users {USERS_TRIES} times; run it again")).into())
    }

    /// One try of a slice; none if there were not enough users.
    async fn attempt(
        &mut self,
        target: &mut Target,
        scenario: Scenario,
        plan: Plan,
    ) -> anyhow::Result<Option<Slice>> {
        let pace = plan.pace;
        let what = format!("{} {}", target.name, scenario.name()).trim().to_owned();
        say(&what);
        let requests = self.requests_max(&plan, scenario);
        let (workload, mut book) = target.prepare(scenario, requests).await?;
        let (sampling, following) = self.follow_some(target, scenario, pace).unzip();
        let load = Load::new(plan, workload, sampling);
        let mut threads = Threads::of(&load);
        let books = Reading::take(target).await?;
        let start = load.start(&mut threads).await?;
        let measured_from = start + load.plan.warm_up;
        until(&load, measured_from).await;
        let before = Moment::now(&load);
        until(&load, measured_from + load.plan.measured).await;
        let after = Moment::now(&load);
        let outcome = threads.join().await?;
        // The last promise has been made.
        let plan = load.plan.clone();
        drop(load);
        let drained = Instant::now();
        let judge = target.judge().ok().filter(|_| target.writes);
        if let Some(judge) = judge {
            judge.drain().await.with_context(|| what.clone())?;
        }
        let drain_seconds = judge.map(|_| drained.elapsed().as_secs_f64());
        let charged = charged(scenario, &outcome.recorder.endings);
        if let Some((judge, coupon)) = judge.zip(book.coupon).filter(|_| scenario == Scenario::Win)
        {
            judge.until_rows(coupon, charged).await.with_context(|| what.clone())?;
        }
        let cost = books.cost(&Reading::take(target).await?, charged);
        let time_to_row = match following {
            Some(following) => following.await?,
            None => None,
        };
        enter(scenario, &outcome.recorder.endings, &mut book);
        target.books.push(book);
        refuse_void(scenario, &outcome)?;
        if outcome.out_of_users {
            // The service was at least so fast, however soon the users ran out.
            let time = plan.warm_up + plan.measured;
            self.saw(Some(scenario), requests as f64 / time.as_secs_f64());
            return Ok(None);
        }
        let slice = Slice {
            drain_seconds,
            time_to_row,
            cost,
            ..figures(scenario, &plan, &before, &after, &outcome)
        };
        self.saw(Some(scenario), slice.requests_per_second);
        Ok(Some(slice))
    }

    /// The plan of a slice of this pace.
    pub fn plan(&self, pace: Pace, measured: Duration) -> Plan {
        let threads = self.client.threads().min(self.client.connections as usize);
        let connections = self.client.connections as usize;
        let (warm_up, measured) = match pace {
            // As long as it takes, within a bound that only a broken service reaches.
            Pace::All { .. } => (Duration::ZERO, 12 * TIMEOUT),
            _ => (self.client.warm_up(), measured),
        };
        // A request that is due at the end has its time, too.
        Plan { pace, connections, threads, warm_up, measured, timeout: TIMEOUT, late: TIMEOUT }
    }

    fn saw(&mut self, what: Option<Scenario>, per_second: f64) {
        let fastest = self.fastest.entry(what).or_default();
        *fastest = fastest.max(per_second);
    }

    /// Users and units that a slice could need.
    fn requests_max(&self, plan: &Plan, scenario: Scenario) -> u64 {
        let seen = self.fastest.get(&Some(scenario)).or_else(|| self.fastest.get(&None));
        let time = plan.warm_up + plan.measured;
        let by_clock = time.as_secs_f64() * seen.copied().unwrap_or_default() * USERS_MARGIN;
        plan.pace.due_within(time).unwrap_or(by_clock as u64 + 1_000)
    }

    /// Follows some claims of an open loop that sells to their rows.
    fn follow_some(
        &self,
        target: &Target,
        scenario: Scenario,
        pace: Pace,
    ) -> Option<(Sampling, JoinHandle<Option<Durable>>)> {
        let (Ok(judge), Pace::Open { per_second }) = (target.judge(), pace) else { return None };
        scenario.sells().then(|| {
            let every = (per_second / durable::SAMPLES_PER_SECOND).ceil().max(1.0) as u64;
            let (promises, promised) = mpsc::unbounded_channel();
            let following = self.shutdown.spawn(durable::watch(judge.pool.clone(), promised));
            (Sampling { every, promises }, following)
        })
    }
}

/// Waits until this moment, or until all requests are answered.
async fn until(load: &Load, end: Instant) {
    while !load.is_complete() && Instant::now() < end {
        sleep_until(end.min(Instant::now() + LOOK_EVERY).into()).await;
    }
}

fn refuse_void(scenario: Scenario, outcome: &Outcome) -> Result<(), Void> {
    let silent = outcome.recorder.without_retry_after;
    if silent > 0 {
        return Err(Void(format!("{silent} times `overloaded` was said without Retry-After")));
    }
    let endings = outcome.recorder.endings.iter();
    match endings.filter_map(|ending| misplaced(scenario, ending)).next() {
        Some(misplaced) => Err(Void(misplaced)),
        None => Ok(()),
    }
}

/// Requests that bear the cost of a slice: all that were answered; where all are to win, those that won.
fn charged(scenario: Scenario, endings: &[Ending]) -> u64 {
    let bears = |ending: &&Ending| match scenario {
        Scenario::Win => ending.status == 202,
        _ => ending.status > 0,
    };
    endings.iter().filter(bears).map(|ending| ending.count).sum()
}

fn enter(scenario: Scenario, endings: &[Ending], book: &mut Book) {
    if scenario.sells() {
        let count = |of: &dyn Fn(&Ending) -> bool| -> u64 {
            endings.iter().filter(|ending| of(ending)).map(|ending| ending.count).sum()
        };
        book.accepted += count(&|ending| matches!(ending.status, 201 | 202));
        book.unknown += count(&is_unknown);
    }
}

fn figures(
    scenario: Scenario,
    plan: &Plan,
    before: &Moment,
    after: &Moment,
    outcome: &Outcome,
) -> Slice {
    let Outcome { recorder, never_sent, .. } = outcome;
    let requests = after.done - before.done;
    let seconds = (after.at - before.at).as_secs_f64();
    let per_second = |count: u64| count as f64 / seconds;
    let mut endings = recorder.endings.clone();
    endings.sort_by_key(|ending| std::cmp::Reverse(ending.count));
    let rate = match plan.pace {
        Pace::Open { per_second } => Some(per_second),
        _ => None,
    };
    Slice {
        scenario,
        rate,
        connections: plan.connections,
        seconds,
        requests,
        requests_per_second: per_second(requests),
        good_per_second: per_second(after.good - before.good),
        sent_per_second: per_second(after.sent - before.sent),
        endings,
        never_sent: *never_sent,
        latency: rate.map(|_| Latency::of(recorder)),
        drain_seconds: None,
        time_to_row: None,
        cost: None,
    }
}
