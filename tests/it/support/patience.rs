//! Bounds for waiting. Only a bug exceeds them, on a machine however busy.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::exit;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use flash_sale::kit::redis::Redis;
use tokio::time::{Instant, sleep, timeout};

/// Time for one thing to happen.
pub const PATIENCE: Duration = Duration::from_secs(50);
/// Time for a server to answer one command, for tests whose leases are longer.
const ANSWER: Duration = Duration::from_secs(3);
/// Time between two looks.
const POLL: Duration = Duration::from_millis(10);
/// Environment variable: seconds that a test may take.
const TEST_SECONDS_MAX: &str = "TEST_SECONDS_MAX";
/// Seconds that a test may take, unless the variable says otherwise. The slowest takes 20 s on an idle machine.
const SECONDS_MAX: u64 = 300;

/// Tests that are running, and when each has to have ended.
type Running = Mutex<BTreeMap<String, std::time::Instant>>;

/// Waits for something that another task or process does.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        sleep(POLL).await;
    }
}

/// A client of this server that waits for its answers however busy the machine is.
pub fn patient_redis(url: &str) -> Redis {
    Redis::with_timeout(url, ANSWER).expect("a valid URL")
}

/// What comes of it, which has to come.
pub async fn bounded<T>(what: &str, comes: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, comes).await {
        Ok(come) => come,
        Err(_) => panic!("never came: {what}"),
    }
}

/// From now on the test of this thread has so much time. One that takes longer hangs: it is named as failed, and ends the
/// whole run, because nothing else ends a future that never comes.
pub fn bound_this_test() {
    thread_local!(static BOUND: RefCell<Option<Bound>> = const { RefCell::new(None) });
    BOUND.with_borrow_mut(|bound| {
        let thread = thread::current();
        if let (None, Some(name)) = (&bound, thread.name()) {
            *bound = Some(Bound::new(name.to_owned()));
        }
    });
}

/// Of one test; ends with its thread.
struct Bound(String);

impl Bound {
    fn new(test: String) -> Self {
        let deadline = std::time::Instant::now() + seconds_max();
        running().lock().expect("nobody panics with it").insert(test.clone(), deadline);
        Self(test)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        running().lock().expect("nobody panics with it").remove(&self.0);
    }
}

#[expect(clippy::disallowed_methods, reason = "a setting of the tests, not of the service")]
fn seconds_max() -> Duration {
    let said = std::env::var(TEST_SECONDS_MAX).ok();
    let said = said.map(|said| said.parse().expect("TEST_SECONDS_MAX is a number of seconds"));
    Duration::from_secs(said.unwrap_or(SECONDS_MAX))
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
    let running = running().lock().expect("nobody panics with it");
    let mut hanging = running.iter().filter(|(_, deadline)| now >= **deadline).peekable();
    if hanging.peek().is_none() {
        return;
    }
    for (test, _) in hanging {
        println!("test {test} ... FAILED");
        eprintln!(
            "{test} hangs: it has taken {:?}, which {TEST_SECONDS_MAX} can raise",
            seconds_max()
        );
    }
    exit(101);
}
