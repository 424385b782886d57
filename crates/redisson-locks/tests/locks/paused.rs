//! A holder that sleeps past its lease (SIGSTOP), in a process of its own: this test binary, started anew.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_servers::testing::Bounded;
use redisson_locks::ReentrantLocks;
use tokio::time::Instant;

use crate::support::{connection, fresh_name, reentrant, shared};

const LEASE: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;
/// The name of the lock, for the child.
const CHILD: &str = "TEST_HOLD_LOCK";

/// Write to the resource that the lock protects: a value that remembers the largest fencing token that it has seen.
const WRITE: &str =
    "if tonumber(redis.call('HGET', KEYS[1], 'token') or 0) > tonumber(ARGV[1]) then return 0 end
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2]) return 1";

async fn locks() -> ReentrantLocks {
    reentrant(&url(), LEASE).await
}

/// The server that the child is told, or the shared one.
fn url() -> String {
    child().map_or_else(shared, |(url, _)| url)
}

#[expect(clippy::disallowed_methods, reason = "how a child knows that it is one")]
fn child() -> Option<(String, String)> {
    let told = std::env::var(CHILD).ok()?;
    let (url, name) = told.split_once(' ')?;
    Some((url.to_owned(), name.to_owned()))
}

async fn write(name: &str, token: u64, value: &str) -> bool {
    let mut one = connection(&url()).await;
    let mut eval = redis::cmd("EVAL");
    eval.arg(WRITE).arg(1).arg(format!("{name}:protected")).arg(token).arg(value);
    eval.query_async(&mut one).await.expect("Redis answers")
}

/// The child, which holds a lock.
pub struct Holder {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Holder {
    fn start(name: &str) -> Self {
        Self::on(&shared(), name)
    }

    /// Holds this lock, on this server.
    pub fn on(url: &str, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("we run"));
        command.args(["--exact", "paused::the_child_holds_the_lock", "--ignored", "--nocapture"]);
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

    /// The next line of the child that contains `what`; the test runner prints others.
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
        let locks = locks().await;
        let mut sleeper = Holder::start(&name);
        let old = sleeper.says("child: token ");
        sleeper.signal(Signal::SIGSTOP);
        let lock = locks.fenced_lock(name.as_str());
        let holder = locks.holder();
        let guard =
            lock.acquire(&holder, 100 * LEASE).bounded().await.unwrap().expect("its lease ends");
        let token = guard.fencing_token().expect("a fenced lock");
        assert!(token > old);
        assert!(write(&name, token, "ours").await);

        sleeper.signal(Signal::SIGCONT);
        assert_eq!(sleeper.says("child: wrote "), 0, "its token is older than ours");
        told.push(Duration::from_micros(sleeper.says("child: told after us ")));
        assert!(!guard.lost().is_cancelled(), "it is ours");
        guard.release().bounded().await.unwrap();
    }
    println!("told after waking up: {told:.1?}");
}

/// Not a test: the test above starts it in a process of its own. Alone it does nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other half of the test above"]
async fn the_child_holds_the_lock() {
    let Some((_, name)) = child() else { return };
    let (looks, is_looking) = mpsc::channel();
    let woke_up = std::thread::spawn(move || waking_up(&looks));
    is_looking.recv().expect("it looks before it may fall asleep");
    let locks = locks().await;
    let holder = locks.holder();
    let guard =
        locks.fenced_lock(name.as_str()).try_acquire(&holder).bounded().await.unwrap().unwrap();
    let token = guard.fencing_token().unwrap();
    println!("\nchild: token {token}");
    let (woke_up, told) = tokio::join!(
        async {
            let woke_up = tokio::task::spawn_blocking(|| woke_up.join().unwrap()).await.unwrap();
            // As a holder would that looked before it fell asleep, and looks no more.
            println!("\nchild: wrote {}", u8::from(write(&name, token, "late").await));
            woke_up
        },
        async {
            guard.lost().cancelled().bounded().await;
            Instant::now()
        }
    );
    println!("\nchild: told after us {}", told.saturating_duration_since(woke_up).as_micros());
}

/// Returns when the process has slept for half a lease or longer.
fn waking_up(looks: &Sender<()>) -> Instant {
    let mut last = Instant::now();
    looks.send(()).expect("the test waits for it");
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let now = Instant::now();
        if now - last > LEASE / 2 {
            return now;
        }
        last = now;
    }
}
