//! Bounds for waiting. Only a bug exceeds them, however busy the machine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::exit;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// Time for one event of a test.
pub const PATIENCE: Duration = Duration::from_secs(50);
/// Name of the environment variable with the seconds that [`eventually`] and [`bounded`] wait instead: `make mutants` looks
/// for tests that fail, and has no time to wait for them.
const EVENT_SECONDS_MAX: &str = "TEST_EVENT_SECONDS_MAX";
/// Time between two looks.
const POLL: Duration = Duration::from_millis(10);
/// Name of the environment variable with the seconds that a test may take.
const TEST_SECONDS_MAX: &str = "TEST_SECONDS_MAX";
/// Seconds that a test may take, unless the variable says otherwise. The slowest takes 20 s on an idle machine, and took
/// 300 s beside four builds on two cores.
const SECONDS_MAX: Duration = Duration::from_secs(900);

/// Running tests, each with its deadline.
type Running = Mutex<BTreeMap<String, std::time::Instant>>;

/// Time for one event of a test: [`PATIENCE`], or the seconds in the variable `TEST_EVENT_SECONDS_MAX`.
///
/// # Panics
///
/// If the variable is not a number.
pub fn patience() -> Duration {
    static SAID: OnceLock<Duration> = OnceLock::new();
    *SAID.get_or_init(|| seconds(EVENT_SECONDS_MAX).unwrap_or(PATIENCE))
}

/// Waits until `holds` says yes, which another task or process brings about.
///
/// # Panics
///
/// If that takes longer than [`patience`]; the text names the event `what`.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + patience();
    while !holds().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        sleep(POLL).await;
    }
}

/// The output of a future that has to complete.
///
/// # Panics
///
/// If that takes longer than [`patience`]; the text names the event `what`.
pub async fn bounded<T>(what: &str, comes: impl Future<Output = T>) -> T {
    match timeout(patience(), comes).await {
        Ok(come) => come,
        Err(_) => panic!("never came: {what}"),
    }
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
        running().lock().expect("no holder panics").insert(test.clone(), deadline);
        Self(test)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        running().lock().expect("no holder panics").remove(&self.0);
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

fn running() -> &'static Running {
    static RUNNING: OnceLock<Running> = OnceLock::new();
    RUNNING.get_or_init(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(Duration::from_secs(1));
                give_up_what_hangs();
            }
        });
        Running::default()
    })
}

fn give_up_what_hangs() {
    let now = std::time::Instant::now();
    let running = running().lock().expect("no holder panics");
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
