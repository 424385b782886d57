//! A holder that sleeps past its lease (SIGSTOP), in a process of its own: this test binary, started anew.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::lock::reentrant::ReentrantLocks;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use crate::support::any_lock::fresh_name;
use crate::support::{patient_redis, shared};

const LEASE: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;
/// The name of the lock, for the child.
const CHILD: &str = "FLASH_SALE_TEST_HOLD";

/// What the lock protects: a value that remembers the largest fencing token that it has seen.
const WRITE: &str =
    "if tonumber(redis.call('HGET', KEYS[1], 'token') or 0) > tonumber(ARGV[1]) then return 0 end
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2]) return 1";

fn locks() -> ReentrantLocks {
    let redis = patient_redis(&url());
    ReentrantLocks::new(redis, LEASE, Shutdown::default())
}

/// The child is told; everybody else has the shared servers.
fn url() -> String {
    child().map_or_else(|| shared().redis_url.clone(), |(url, _)| url)
}

#[expect(clippy::disallowed_methods, reason = "how a child knows that it is one")]
fn child() -> Option<(String, String)> {
    let told = std::env::var(CHILD).ok()?;
    let (url, name) = told.split_once(' ')?;
    Some((url.to_owned(), name.to_owned()))
}

async fn write(name: &str, token: u64, value: &str) -> bool {
    let redis = patient_redis(&url());
    let mut eval = redis::cmd("EVAL");
    eval.arg(WRITE).arg(1).arg(format!("{name}:protected")).arg(token).arg(value);
    redis.query(&eval).await.expect("Redis answers")
}

/// The child, which holds a lock.
pub struct Holder {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Holder {
    fn start(name: &str) -> Self {
        Self::on(&shared().redis_url, name)
    }

    /// Holds this lock, on this server.
    pub fn on(url: &str, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("we run"));
        command.args([
            "--exact",
            "lock_paused::the_child_holds_the_lock",
            "--ignored",
            "--nocapture",
        ]);
        command.env(CHILD, format!("{url} {name}")).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it is this program");
        let lines = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, lines }
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is our child");
        self.process.wait().expect("it is our child");
    }

    /// The next thing that it says as a child, without what the test runner says.
    pub fn says(&mut self, what: &str) -> u64 {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                self.lines.read_line(&mut line).expect("readable") > 0,
                "it ended before {what}"
            );
            if let Some((_, said)) = line.split_once(what) {
                return said.trim().parse().expect("a number");
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("it is our child");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn a_holder_that_slept_is_told_and_its_late_write_is_refused() {
    let mut told = Vec::new();
    for _ in 0..ROUNDS {
        let name = fresh_name();
        let (locks, mut sleeper) = (locks(), Holder::start(&name));
        let old = sleeper.says("child: token ");
        sleeper.signal(Signal::SIGSTOP);
        let (lock, holder) = (locks.fenced_lock(name.as_str()), locks.holder());
        let guard = lock.acquire(&holder, 100 * LEASE).await.unwrap().expect("its lease ends");
        let token = guard.fencing_token().expect("a fenced lock");
        assert!(token > old);
        assert!(write(&name, token, "ours").await);

        sleeper.signal(Signal::SIGCONT);
        assert_eq!(sleeper.says("child: wrote "), 0, "its token is older than ours");
        told.push(Duration::from_micros(sleeper.says("child: told after us ")));
        assert!(!guard.lost().is_cancelled(), "it is ours");
        guard.release().await.unwrap();
    }
    println!("told after waking up: {told:.1?}");
}

/// Not a test: what the test above starts in a process of its own. Alone it does nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other half of the test above"]
async fn the_child_holds_the_lock() {
    let Some((_, name)) = child() else { return };
    let (looks, is_looking) = mpsc::channel();
    let woke_up = std::thread::spawn(move || waking_up(&looks));
    is_looking.recv().expect("it looks before it may fall asleep");
    let locks = locks();
    let holder = locks.holder();
    let guard = locks.fenced_lock(name.as_str()).try_acquire(&holder).await.unwrap().unwrap();
    let token = guard.fencing_token().unwrap();
    println!("\nchild: token {token}");
    let (woke_up, told) = tokio::join!(
        async {
            let woke_up = tokio::task::spawn_blocking(|| woke_up.join().unwrap()).await.unwrap();
            // As somebody would who has looked before they fell asleep, and looks no more.
            println!("\nchild: wrote {}", u8::from(write(&name, token, "late").await));
            woke_up
        },
        async {
            guard.lost().cancelled().await;
            Instant::now()
        }
    );
    println!("\nchild: told after us {}", told.saturating_duration_since(woke_up).as_micros());
}

/// Returns when the process has slept for half a lease or longer.
fn waking_up(looks: &Sender<()>) -> Instant {
    let mut last = Instant::now();
    looks.send(()).expect("somebody waits for it");
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let now = Instant::now();
        if now - last > LEASE / 2 {
            return now;
        }
        last = now;
    }
}
