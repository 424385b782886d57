//! The binary as a process: started, listened to, signalled, and never left behind.
//!
//! Children get a clean environment: no `FLASH_SALE_*` of whoever runs the tests may decide them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flash_sale::sale::claim::outcome::ClaimOutcome;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::log::GROUP;
use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_servers::testing::bound_this_test;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{TestApp, eventually, lane, user};

/// A start with private servers makes a Postgres cluster, on a machine that runs many tests at once.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A `flash-sale` that runs. Killed when it is dropped, so a test that fails leaves nothing behind.
pub struct Process {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

/// What a process has written so far.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

/// A `flash-sale` that has ended by itself.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The binary with these arguments and none of the settings in our own environment.
pub fn flash_sale<S: AsRef<str>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash-sale"));
    command.args(arguments.iter().map(AsRef::as_ref));
    for (name, _) in std::env::vars_os() {
        let is_setting = name.to_string_lossy().starts_with("FLASH_SALE_");
        // By this one `.ci/run` finds what a test run leaves behind.
        if is_setting && name != "FLASH_SALE_CI_RUN" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub async fn run(command: Command) -> Finished {
    let mut process = Process::spawn(command);
    let status = process.ended().await;
    Finished {
        code: status.code(),
        stdout: process.stdout.to_end().await,
        stderr: process.stderr.to_end().await,
    }
}

impl Finished {
    /// The last line on standard error, which says why it failed.
    pub fn last_words(&self) -> &str {
        self.stderr.lines().last().unwrap_or("")
    }
}

impl Process {
    /// Starts it.
    pub fn spawn(mut command: Command) -> Self {
        bound_this_test();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary has been built");
        let stdout = Lines::read(child.stdout.take().expect("piped"));
        let stderr = Lines::read(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    /// `flash-sale serve` on the data of `app`, on a port of its own. Patient with Redis; `arguments` win.
    pub fn serve(app: &TestApp, arguments: &[&str]) -> Self {
        let mut command = flash_sale(&["serve", "--listen", "127.0.0.1:0"]);
        command.env("FLASH_SALE_REDIS_TIMEOUT_MS", "10000");
        command.env("FLASH_SALE_CLAIM_WAIT_MS", "9000");
        command.args(["--database-connections", "5", "--order-id-block", "10"]);
        command.args(app.store_arguments()).args(arguments);
        Self::spawn(command)
    }

    /// Where its API listens.
    pub async fn url(&self) -> String {
        let line = self.logged("the API listens on http://").await;
        let (_, address) = line.split_once("http://").expect("the line has a URL");
        format!("http://{address}")
    }

    /// The first line on standard error that contains `text`, waited for.
    pub async fn logged(&self, text: &str) -> String {
        self.stderr.containing(text).await
    }

    /// The first line on standard output that contains `text`, waited for.
    pub async fn printed(&self, text: &str) -> String {
        self.stdout.containing(text).await
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Every line on standard output so far.
    pub fn printed_so_far(&self) -> Vec<String> {
        self.stdout.so_far()
    }

    /// Writes to its standard input, which has to be a pipe.
    pub fn type_in(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("its input is a pipe");
        input.write_all(text.as_bytes()).expect("it runs");
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // Our child until it is reaped, so the id is its own.
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("it is our child");
    }

    /// SIGKILL; gone when this returns.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Waits until nobody can write to its standard output any more, its children included.
    pub async fn output_ended(&self) {
        self.stdout.to_end().await;
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "it never ended:\n{}",
                self.stderr.so_far().join("\n")
            );
            sleep(POLL).await;
        }
    }

    /// SIGTERM, and then it ends as it should: with exit code 0, and with every task finished. How long
    /// that took is printed, for whoever compares machines.
    pub async fn assert_stops(&mut self) {
        self.signal(Signal::SIGTERM);
        let began = Instant::now();
        assert_eq!(self.ended().await.code(), Some(0));
        println!("stopped after {:.1?}", began.elapsed());
        let lines = self.stderr.so_far().join("\n");
        assert!(!lines.contains("didn't finish in time"), "{lines}");
    }

    /// What it has written to standard error so far.
    pub fn said_so_far(&self) -> String {
        self.stderr.so_far().join("\n")
    }

    /// All that it has written to standard error, when it has ended.
    pub async fn said(&self) -> String {
        self.stderr.to_end().await
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Closes its standard input, if that is a pipe.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only for one that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lines {
    /// Reads in a thread of its own, which ends with the pipe.
    fn read(pipe: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let read = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                read.0.lock().expect("nobody panics with it").push(line);
            }
        });
        lines
    }

    fn so_far(&self) -> Vec<String> {
        self.0.lock().expect("nobody panics with it").clone()
    }

    /// Everything; the process has ended, and the reading thread drops its share when it has read all.
    async fn to_end(&self) -> String {
        eventually("the output ends", async || Arc::strong_count(&self.0) == 1).await;
        self.so_far().join("\n")
    }

    async fn containing(&self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines = self.so_far();
            if let Some(line) = lines.iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            assert!(Instant::now() < deadline, "{text:?} never appeared in:\n{}", lines.join("\n"));
            sleep(POLL).await;
        }
    }
}

/// What a claim at the API under `url` is answered; `None` without a complete reply, which means *unknown*.
pub async fn try_claim(
    app: &TestApp,
    url: &str,
    user: i64,
    coupon: CouponId,
) -> Option<(u16, Value)> {
    let request =
        app.client().post(format!("{url}/v1/coupons/{coupon}/claims")).bearer_auth(app.token(user));
    let reply = request.send().await.ok()?;
    let status = reply.status().as_u16();
    Some((status, reply.json().await.ok()?))
}

/// The order id in the body of a 202 or of `already_claimed`.
pub fn order_id(body: &Value) -> i64 {
    let id = body["order_id"].as_str().and_then(|id| id.parse().ok());
    id.unwrap_or_else(|| panic!("no order id in {body}"))
}

/// User id -> order id, as Postgres has them.
pub async fn written(app: &TestApp) -> BTreeMap<i64, i64> {
    let rows: Vec<(i64, i64)> = sqlx::query_as("SELECT user_id, id FROM orders ORDER BY id DESC")
        .fetch_all(&app.app.stores.pool)
        .await
        .expect("Postgres answers");
    rows.into_iter().collect()
}

/// Backends of Postgres that are stopped, until this is dropped.
pub struct HangingPostgres(Vec<i32>);

impl HangingPostgres {
    pub async fn of(app: &TestApp) -> Self {
        let pids: Vec<i32> = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .fetch_all(&app.app.stores.pool)
        .await
        .expect("Postgres answers");
        let hanging = Self(pids);
        hanging.signal(Signal::SIGSTOP);
        hanging
    }

    fn signal(&self, signal: Signal) {
        for pid in &self.0 {
            let _ = kill(Pid::from_raw(*pid), signal);
        }
    }
}

impl Drop for HangingPostgres {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
    }
}

/// A sale of `claims` units that users 1 to `claims` have bought; nothing of it is written yet. Returns
/// the order id of each.
pub async fn backlog(app: &TestApp, claims: i64) -> BTreeMap<i64, i64> {
    let coupon = app.create_flash(claims).await;
    let users: Vec<i64> = (1..=claims).collect();
    let mut promised = BTreeMap::new();
    for some in users.chunks(500) {
        let accepted = join_all(some.iter().map(|id| accepted(app, *id, coupon))).await;
        promised.extend(accepted);
    }
    promised
}

async fn accepted(app: &TestApp, id: i64, coupon: CouponId) -> (i64, i64) {
    match app.app.claims.claim(coupon, user(id)).await {
        Ok(ClaimOutcome::Accepted(order)) => (id, order.get()),
        other => panic!("{other:?}"),
    }
}

/// A worker that takes many batches for a backlog, so that it can be met in the middle of it.
pub fn small_batches(app: &TestApp) -> Process {
    Process::serve(app, &["--roles", "worker", "--batch-orders-max", "20"])
}

pub async fn rows(app: &TestApp) -> i64 {
    app.number("SELECT count(*) FROM orders").await
}

/// Entries delivered to a worker and not acknowledged.
pub async fn pending(app: &TestApp) -> i64 {
    let log = app.keys().log(lane());
    let summary: (i64, redis::Value, redis::Value, redis::Value) =
        app.redis(&["XPENDING", &log, GROUP]).await;
    summary.0
}

/// Holds every row of `flash_sales`: a worker's batch gets as far as its rows, and then waits.
pub async fn lock_sales(app: &TestApp) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut lock = app.app.stores.pool.begin().await.expect("Postgres answers");
    sqlx::raw_sql(
        "SET LOCAL idle_in_transaction_session_timeout = 0; SELECT FROM flash_sales FOR UPDATE",
    )
    .execute(&mut *lock)
    .await
    .expect("Postgres answers");
    lock
}

/// Transactions of write passes that wait for a lock. Other passes of a worker may wait at any time, before it has read
/// an entry, too.
pub async fn waiting_writers(app: &TestApp) -> i64 {
    app.number(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock'
           AND (query LIKE 'INSERT INTO orders %' OR query LIKE 'UPDATE flash_sales SET sold = sold + %')",
    )
    .await
}

/// Consumers in the group.
pub async fn consumers(app: &TestApp) -> usize {
    let log = app.keys().log(lane());
    let consumers: Vec<redis::Value> = app.redis(&["XINFO", "CONSUMERS", &log, GROUP]).await;
    consumers.len()
}
