//! The binary as a process: started, listened to, signalled, and never left behind.
//!
//! Children get a clean environment: no `FLASH_SALE_*` of whoever runs the tests may decide them.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::process::{Command, Stdio};
use std::time::Instant;

use flash_sale::claim::outcome::ClaimOutcome;
use flash_sale::log::{GROUP, LogState};
use flash_sale::store::ids::CouponId;
use flash_sale::store::postgres;
use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_servers::testing;
pub use private_servers::testing::{Finished, run};
use serde_json::Value;

use super::{TestApp, lane, user};

/// Time-outs of children, for a machine however busy, where their arguments give no others.
const PATIENT: [(&str, &str); 3] = [
    ("FLASH_SALE_REDIS_TIMEOUT_MS", "10000"),
    ("FLASH_SALE_CLAIM_WAIT_MS", "9000"),
    ("FLASH_SALE_DATABASE_TIMEOUT_MS", "10000"),
];

/// The binary with these arguments and none of the settings in our own environment, patient with the stores.
pub fn flash_sale<S: AsRef<str>>(arguments: &[S]) -> Command {
    program(env!("CARGO_BIN_EXE_flash-sale"), arguments)
}

/// The same of another build.
pub fn program<S: AsRef<str>>(path: &str, arguments: &[S]) -> Command {
    let mut command = Command::new(path);
    command.args(arguments.iter().map(AsRef::as_ref));
    for (name, _) in std::env::vars_os() {
        let is_setting = name.to_string_lossy().starts_with("FLASH_SALE_");
        // By this one `.ci/run` finds what a test run leaves behind.
        if is_setting && name != "FLASH_SALE_CI_RUN" {
            command.env_remove(name);
        }
    }
    command.envs(PATIENT).stdin(Stdio::null());
    command
}

/// The same as its users have it: with the default time-outs.
pub fn flash_sale_by_default<S: AsRef<str>>(arguments: &[S]) -> Command {
    let mut command = flash_sale(arguments);
    for (name, _) in PATIENT {
        command.env_remove(name);
    }
    command
}

/// A `flash-sale` that runs. Killed when it is dropped.
pub struct Process(testing::Process);

impl Deref for Process {
    type Target = testing::Process;

    fn deref(&self) -> &testing::Process {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut testing::Process {
        &mut self.0
    }
}

impl Process {
    /// Starts a command.
    pub fn spawn(command: Command) -> Self {
        Self(testing::Process::spawn(command))
    }

    /// `flash-sale serve` on the data of `app`, on a port of its own; `arguments` win.
    pub fn serve(app: &TestApp, arguments: &[&str]) -> Self {
        let mut command = flash_sale(&["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--database-connections", "5"]);
        command.args(app.store_arguments()).args(arguments);
        Self::spawn(command)
    }

    /// Where its API listens.
    pub async fn url(&self) -> String {
        let line = self.logged("the API listens on http://").await;
        let (_, address) = line.split_once("http://").expect("the line has a URL");
        // A line in JSON goes on behind it.
        let address = address.split('"').next().unwrap_or(address);
        format!("http://{address}")
    }

    /// SIGTERM, and then it ends as it should: with exit code 0, and with every task finished. How long
    /// that took is printed, for whoever compares machines.
    pub async fn assert_stops(&mut self) {
        self.signal(Signal::SIGTERM);
        let began = Instant::now();
        assert_eq!(self.ended().await.code(), Some(0));
        println!("stopped after {:.1?}", began.elapsed());
        let lines = self.said_so_far();
        assert!(!lines.contains("didn't finish in time"), "{lines}");
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

/// A Postgres that hangs, until this is dropped: the processes of these connections, and the one that takes new
/// connections. For a server of the test's own.
pub struct HangingPostgres(Vec<i32>);

impl HangingPostgres {
    pub async fn of(app: &TestApp) -> Self {
        let mut connection = app.app.stores.pool.acquire().await.expect("Postgres answers");
        let postmaster: i32 = sqlx::query_scalar(
            "SELECT split_part(pg_read_file('postmaster.pid'), chr(10), 1)::int",
        )
        .fetch_one(&mut *connection)
        .await
        .expect("Postgres answers");
        let mut hanging = Self(vec![postmaster]);
        // Before the others, so that no connection is opened after they have been listed.
        hanging.signal(Signal::SIGSTOP);
        let connections: Vec<i32> = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .fetch_all(&mut *connection)
        .await
        .expect("Postgres answers");
        hanging.0.extend(connections);
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
    let log = app.log(lane());
    let summary: (i64, redis::Value, redis::Value, redis::Value) =
        app.redis(&["XPENDING", &log, GROUP]).await;
    summary.0
}

/// Orders of entries that are not acknowledged.
pub async fn in_flight(app: &TestApp) -> i64 {
    let state = LogState::of(app.app.stores.fleet.first(), app.keys(), lane()).await;
    i64::try_from(state.expect("Redis answers").unwritten).expect("a few")
}

/// Holds every row of `flash_sales`: a worker's batch gets as far as its rows, and then waits.
pub async fn lock_sales(app: &TestApp) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut lock = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    sqlx::raw_sql(
        "SET LOCAL idle_in_transaction_session_timeout = 0; SELECT FROM flash_sales FOR UPDATE",
    )
    .execute(&mut *lock)
    .await
    .expect("Postgres answers");
    lock
}

/// Transactions of write jobs that wait for a lock. Other jobs of a worker may wait at any time, before it has read
/// an entry, too.
pub async fn waiting_writers(app: &TestApp) -> i64 {
    app.number(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock'
           AND (query LIKE 'INSERT INTO orders %' OR query LIKE 'UPDATE flash_sales SET sold = sold + %')",
    )
    .await
}
