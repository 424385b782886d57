//! Sends the requests: threads of its own, each with a runtime and its share of the connections.
//!
//! All connections are open before the clock starts. A thread waits twice: when its connections are open, and for the
//! start. Nothing is shared between threads during a slice but a few counters.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::load::connection::{Answer, Connection, NoAnswer};
use crate::load::pace::{Pace, release_when_due};
use crate::load::record::{Recorder, order_id};
use crate::load::scenario::Workload;

/// Pause before a connection that could not be opened is tried again.
const REOPEN_PAUSE: Duration = Duration::from_millis(20);

/// The plan of a slice.
#[derive(Clone)]
pub struct Plan {
    pub pace: Pace,
    pub connections: usize,
    pub threads: usize,
    pub warm_up: Duration,
    pub measured: Duration,
    pub timeout: Duration,
    /// Time after the end in which a due request may still be sent.
    pub late: Duration,
}

/// An accepted claim that is followed to its row.
pub struct Promise {
    pub order: i64,
    pub answered: Instant,
}

/// Accepted claims whose rows are waited for.
pub struct Sampling {
    /// One in so many.
    pub every: u64,
    pub promises: mpsc::UnboundedSender<Promise>,
}

/// A load on its way.
pub struct Load {
    pub plan: Plan,
    workload: Workload,
    /// The next request's index.
    next: AtomicU64,
    sent: AtomicU64,
    done: AtomicU64,
    good: AtomicU64,
    /// One permit for each request that is due; open loop only.
    due: Semaphore,
    opened: Barrier,
    released: Barrier,
    start: OnceLock<Instant>,
    stopped: AtomicBool,
    out_of_users: AtomicBool,
    failure: Mutex<Option<anyhow::Error>>,
    sampling: Option<Sampling>,
}

/// The result.
pub struct Outcome {
    pub recorder: Recorder,
    /// Requests that were due and never sent, because no connection got free in time.
    pub never_sent: u64,
    pub out_of_users: bool,
}

impl Load {
    pub fn new(plan: Plan, workload: Workload, sampling: Option<Sampling>) -> Arc<Self> {
        let parties = plan.threads + 1;
        Arc::new(Self {
            plan,
            workload,
            next: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            done: AtomicU64::new(0),
            good: AtomicU64::new(0),
            due: Semaphore::new(0),
            opened: Barrier::new(parties),
            released: Barrier::new(parties),
            start: OnceLock::new(),
            stopped: AtomicBool::new(false),
            out_of_users: AtomicBool::new(false),
            failure: Mutex::new(None),
            sampling,
        })
    }

    /// Answers so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Hoped-for answers so far.
    pub fn good(&self) -> u64 {
        self.good.load(Ordering::Relaxed)
    }

    /// Requests sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Whether everything that was to be sent has been answered.
    pub fn is_complete(&self) -> bool {
        self.plan.pace != Pace::Closed && self.done() >= self.total()
    }

    /// Ends it early.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Opens the connections; then starts the clock, and returns when it did.
    pub async fn start(self: &Arc<Self>, threads: &mut Threads) -> anyhow::Result<Instant> {
        let Plan { connections, threads: count, .. } = self.plan;
        let share = |thread| connections / count + usize::from(thread < connections % count);
        for thread in 0..self.plan.threads {
            let load = self.clone();
            let connections = share(thread);
            let run = move || load.thread(connections);
            let handle = std::thread::Builder::new().name(format!("load-{thread}")).spawn(run)?;
            threads.0.push(handle);
        }
        let load = self.clone();
        tokio::task::spawn_blocking(move || load.opened.wait()).await?;
        let failure = self.failure.lock().ok().and_then(|mut failure| failure.take());
        let start = *self.start.get_or_init(Instant::now);
        if failure.is_some() {
            self.stop();
        }
        let load = self.clone();
        tokio::task::spawn_blocking(move || load.released.wait()).await?;
        match failure {
            Some(error) => Err(error.context("the service under test can't be reached")),
            None => {
                self.keep_pace(start)?;
                Ok(start)
            }
        }
    }

    /// Open loop: another thread watches the clock. It ends with the schedule, or when it is stopped.
    fn keep_pace(self: &Arc<Self>, start: Instant) -> std::io::Result<()> {
        if let Pace::Open { .. } = self.plan.pace {
            let load = self.clone();
            let run = move || {
                release_when_due(load.plan.pace, start, load.total(), &load.due, &load.stopped);
                // A connection that waits for a request that won't come learns that there is none.
                load.due.add_permits(load.plan.connections);
            };
            std::thread::Builder::new().name("load-pace".to_owned()).spawn(run)?;
        }
        Ok(())
    }

    /// Number of requests; in a closed loop, only the clock bounds them.
    fn total(&self) -> u64 {
        let time = self.plan.warm_up + self.plan.measured;
        self.plan.pace.due_within(time).unwrap_or(u64::MAX)
    }

    fn is_measured(&self, due: Duration) -> bool {
        let end = self.plan.warm_up + self.plan.measured;
        matches!(self.plan.pace, Pace::All { .. }) || due >= self.plan.warm_up && due < end
    }

    /// When nothing is sent any more.
    fn end(&self) -> Duration {
        let end = self.plan.warm_up + self.plan.measured;
        if self.plan.pace == Pace::Closed { end } else { end + self.plan.late }
    }

    fn thread(self: Arc<Self>, connections: usize) -> Recorder {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime needs a few file descriptors");
        let opened = runtime.block_on(async {
            let mut opened = Vec::new();
            for _ in 0..connections {
                opened.push(Connection::open(&self.workload.address).await?);
            }
            anyhow::Ok(opened)
        });
        let opened = opened.unwrap_or_else(|error| {
            *self.failure.lock().expect("no task panics with it") = Some(error);
            Vec::new()
        });
        self.opened.wait();
        self.released.wait();
        let start = *self.start.get().expect("it is set before the release");
        let recorder = Rc::new(RefCell::new(Recorder::new()));
        let local = LocalSet::new();
        let tasks: Vec<_> = opened
            .into_iter()
            .map(|connection| {
                local.spawn_local(self.clone().drive(connection, start, recorder.clone()))
            })
            .collect();
        local.block_on(&runtime, async {
            for task in tasks {
                // A panic has been printed, and what it lost shows in the sums.
                let _ = task.await;
            }
        });
        Rc::into_inner(recorder).map(RefCell::into_inner).unwrap_or_else(Recorder::new)
    }

    /// The index of the next request for a free connection, once it is due.
    async fn next(&self, start: Instant) -> Option<u64> {
        if let Pace::Open { .. } = self.plan.pace {
            self.due.acquire().await.ok()?.forget();
        }
        let is_over = self.stopped.load(Ordering::Relaxed) || start.elapsed() >= self.end();
        let index = (!is_over).then(|| self.next.fetch_add(1, Ordering::Relaxed))?;
        (index < self.total()).then_some(index)
    }

    /// Sends requests on one connection until there are no more.
    async fn drive(
        self: Arc<Self>,
        connection: Connection,
        start: Instant,
        recorder: Rc<RefCell<Recorder>>,
    ) {
        let mut connection = Some(connection);
        let mut body = Vec::new();
        while let Some(index) = self.next(start).await {
            let Some(request) = self.workload.request(index) else {
                self.out_of_users.store(true, Ordering::Relaxed);
                return self.stop();
            };
            let sent = start.elapsed();
            self.sent.fetch_add(1, Ordering::Relaxed);
            let answer = match &mut connection {
                Some(open) => timeout(self.plan.timeout, open.exchange(request, &mut body)).await,
                None => Ok(Err(NoAnswer::Closed)),
            };
            let now = start.elapsed();
            self.done.fetch_add(1, Ordering::Relaxed);
            let due = self.plan.pace.due(index).unwrap_or(sent);
            let hoped = |answer: &Answer| self.workload.hoped.contains(&answer.status);
            let good = answer.as_ref().is_ok_and(|answer| answer.as_ref().is_ok_and(hoped));
            self.good.fetch_add(u64::from(good), Ordering::Relaxed);
            {
                let mut recorder = recorder.borrow_mut();
                match &answer {
                    Ok(Ok(answer)) => recorder.answered(*answer, &body),
                    Ok(Err(_)) => recorder.ended(0, "connection_failed"),
                    Err(_) => recorder.ended(0, "timed_out"),
                }
                if self.is_measured(due) {
                    let latency = self.plan.pace.latency(index, sent, now);
                    recorder.measured(latency, sent.saturating_sub(due), good);
                }
            }
            if let Ok(Ok(answer)) = answer {
                self.promise(answer.status, index, &body);
                continue;
            }
            connection = Connection::open(&self.workload.address).await.ok();
            if connection.is_none() {
                tokio::time::sleep(REOPEN_PAUSE).await;
            }
        }
    }

    fn promise(&self, status: u16, index: u64, body: &[u8]) {
        let Some(Sampling { every, promises }) = &self.sampling else { return };
        if status == 202
            && index.is_multiple_of(*every)
            && let Some(order) = order_id(body)
        {
            // The receiver is gone, and with it the wish to know.
            let _ = promises.send(Promise { order, answered: Instant::now() });
        }
    }

    /// Requests that no connection took have a latency, too: at least the time until the end.
    fn count_never_sent(&self, recorder: &mut Recorder) -> u64 {
        if self.plan.pace == Pace::Closed {
            return 0;
        }
        let taken = self.sent.load(Ordering::Relaxed).min(self.total());
        for index in taken..self.total() {
            let due = self.plan.pace.due(index).unwrap_or_default();
            if self.is_measured(due) {
                let waited = self.end().saturating_sub(due);
                recorder.measured(waited, waited, false);
            }
        }
        self.total() - taken
    }
}

/// The threads of a load. Dropped in the middle of it, they are told to stop.
pub struct Threads(Vec<std::thread::JoinHandle<Recorder>>, Arc<Load>);

impl Threads {
    pub fn of(load: &Arc<Load>) -> Self {
        Self(Vec::new(), load.clone())
    }

    /// Waits for their end.
    pub async fn join(mut self) -> anyhow::Result<Outcome> {
        let handles = std::mem::take(&mut self.0);
        let load = self.1.clone();
        let join = move || {
            let mut sum = Recorder::new();
            for handle in handles {
                sum.add(&handle.join().ok().context("a load thread has panicked")?);
            }
            anyhow::Ok(sum)
        };
        let mut recorder = tokio::task::spawn_blocking(join).await??;
        let never_sent = load.count_never_sent(&mut recorder);
        let out_of_users = load.out_of_users.load(Ordering::Relaxed);
        Ok(Outcome { recorder, never_sent, out_of_users })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.1.stop();
    }
}
