//! Bounds for waiting. Only a bug exceeds them, however busy the machine.

use std::any::type_name;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::{self, Write};
use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, OnceLock};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Time for one event of a test.
pub const PATIENCE: Duration = Duration::from_secs(50);
/// Name of the environment variable with the seconds that [`eventually`] and [`bounded`] wait instead: a
/// run that plants bugs looks for tests that fail, and has no time to wait for them.
const EVENT_SECONDS_MAX: &str = "TEST_EVENT_SECONDS_MAX";
/// Time for one look of [`eventually`], which may do much, and for all [`tries()`].
const LOOK_MAX: Duration = Duration::from_secs(600);
/// Time between two looks.
const POLL: Duration = Duration::from_millis(10);
/// Name of the environment variable with the seconds that a test may take.
const TEST_SECONDS_MAX: &str = "TEST_SECONDS_MAX";
/// Seconds that a test may take, unless the variable says otherwise. The slowest takes 20 s on an idle machine, and took
/// 300 s beside four builds on two cores.
const SECONDS_MAX: Duration = Duration::from_secs(900);

/// Running tests, each with its deadline.
static RUNNING: Mutex<BTreeMap<String, std::time::Instant>> = Mutex::new(BTreeMap::new());
/// Futures that tasks wait for, by number, each with its deadline.
static AWAITED: Mutex<BTreeMap<u64, (std::time::Instant, Waker)>> = Mutex::new(BTreeMap::new());

/// Time for one event of a test: [`PATIENCE`], or the seconds in the variable `TEST_EVENT_SECONDS_MAX`.
///
/// # Panics
///
/// If the variable is not a number.
pub fn patience() -> Duration {
    patience_of(PATIENCE)
}

/// The same for an event that takes longer than others: this, or the seconds in the variable.
///
/// # Panics
///
/// If the variable is not a number.
pub fn patience_of(usual: Duration) -> Duration {
    static SAID: OnceLock<Option<Duration>> = OnceLock::new();
    SAID.get_or_init(|| seconds(EVENT_SECONDS_MAX)).unwrap_or(usual)
}

/// Waits until `holds` says yes, which another task or process brings about.
///
/// # Panics
///
/// If that takes longer than [`patience`], or one look takes 600 s; the text names the event `what`.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + patience();
    while !bounded_by(patience_of(LOOK_MAX), what, holds()).await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        sleep(POLL).await;
    }
}

/// The output of a future that has to complete, in time of the machine: the clock of a runtime may stand still.
///
/// # Panics
///
/// If that takes longer than [`patience`]; the text names the event `what`.
pub fn bounded<T>(what: &str, comes: impl Future<Output = T>) -> impl Future<Output = T> {
    bounded_by(patience(), what, comes)
}

/// The same, where only a hang takes longer than this.
///
/// # Panics
///
/// If that takes longer.
pub fn bounded_by<T>(
    time: Duration,
    what: &str,
    comes: impl Future<Output = T>,
) -> impl Future<Output = T> {
    // One future holds the other, and all of them together would fill the stack of a test.
    let mut comes = Box::pin(comes);
    async move {
        let alarm = Alarm::after(time);
        let ends = poll_fn(|context| {
            if let Poll::Ready(come) = comes.as_mut().poll(context) {
                return Poll::Ready(come);
            }
            assert!(!alarm.is_due(), "never came: {what}");
            alarm.wakes(context.waker());
            Poll::Pending
        });
        ends.await
    }
}

/// A future that has to complete, where its own name says enough.
pub trait Bounded: Future + Sized {
    /// Its output, as from [`bounded()`].
    fn bounded(self) -> impl Future<Output = Self::Output> {
        bounded(type_name::<Self>(), self)
    }
}

impl<F: Future> Bounded for F {}

/// Numbers of the tries of a test that says something only on a machine that is quick for a moment.
///
/// # Panics
///
/// If there is another try after 600 s, or the seconds in the variable `TEST_EVENT_SECONDS_MAX`.
pub fn tries() -> impl Iterator<Item = i64> {
    let deadline = std::time::Instant::now() + patience_of(LOOK_MAX);
    (1..).inspect(move |_| {
        assert!(std::time::Instant::now() < deadline, "the machine was never quick enough");
    })
}

/// Bounds the test of this thread: 900 s from the first call, or the seconds in the variable `TEST_SECONDS_MAX`. A test
/// that takes longer hangs. It is named as failed and ends the whole process, because nothing else ends a future that
/// never completes.
///
/// # Panics
///
/// If `TEST_SECONDS_MAX` is not a number.
pub fn bound_this_test() {
    thread_local!(static BOUND: RefCell<Option<Bound>> = const { RefCell::new(None) });
    BOUND.with_borrow_mut(|bound| {
        let thread = thread::current();
        if let (None, Some(name)) = (&bound, thread.name()) {
            *bound = Some(Bound::new(name.to_owned()));
        }
    });
}

/// The bound of one test, which ends with its thread.
struct Bound(String);

impl Bound {
    fn new(test: String) -> Self {
        let deadline = std::time::Instant::now() + seconds_max();
        watch();
        RUNNING.lock().expect("no holder panics").insert(test.clone(), deadline);
        Self(test)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        RUNNING.lock().expect("no holder panics").remove(&self.0);
    }
}

/// Wakes a task whose time is up.
struct Alarm {
    number: u64,
    deadline: std::time::Instant,
}

impl Alarm {
    fn after(time: Duration) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number, deadline: std::time::Instant::now() + time }
    }

    fn is_due(&self) -> bool {
        std::time::Instant::now() >= self.deadline
    }

    fn wakes(&self, waker: &Waker) {
        watch();
        let entry = (self.deadline, waker.clone());
        // Dropped behind the lock: a waker may be the last owner of its task.
        let _before = AWAITED.lock().expect("no holder panics").insert(self.number, entry);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let _last = AWAITED.lock().expect("no holder panics").remove(&self.number);
    }
}

fn seconds_max() -> Duration {
    seconds(TEST_SECONDS_MAX).unwrap_or(SECONDS_MAX)
}

#[expect(clippy::disallowed_methods, reason = "a setting of the tests, not of the service")]
fn seconds(variable: &str) -> Option<Duration> {
    let said = std::env::var(variable).ok();
    let seconds = said
        .map(|said| said.parse().unwrap_or_else(|_| panic!("{variable} is a number of seconds")));
    seconds.map(Duration::from_secs)
}

/// From the first call on, looks once a second at all that has a deadline.
fn watch() {
    static BEGINS: Once = Once::new();
    BEGINS.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_secs(1));
                wake_what_is_late();
                give_up_what_hangs();
            }
        });
    });
}

fn wake_what_is_late() {
    let now = std::time::Instant::now();
    let awaited = AWAITED.lock().expect("no holder panics");
    let late = awaited.values().filter(|(deadline, _)| now >= *deadline);
    let late: Vec<Waker> = late.map(|(_, waker)| waker.clone()).collect();
    drop(awaited);
    late.into_iter().for_each(Waker::wake);
}

fn give_up_what_hangs() {
    let now = std::time::Instant::now();
    let running = RUNNING.lock().expect("no holder panics");
    let mut hanging = running.iter().filter(|(_, deadline)| now >= **deadline).peekable();
    if hanging.peek().is_none() {
        return;
    }
    // Past the macros: the output of a thread that a test has started is kept with that test, and lost here.
    let (mut out, mut err) = (io::stdout(), io::stderr());
    for (test, _) in hanging {
        let _ = writeln!(out, "test {test} ... FAILED");
        let _ = writeln!(
            err,
            "{test} hangs: it has taken {:?}, which {TEST_SECONDS_MAX} can raise",
            seconds_max()
        );
    }
    exit(101);
}
