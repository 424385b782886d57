//! Private servers for the tests, kept by `flash-sale private-servers --throw-away`.
//!
//! The keeper ends with its standard input, and the kernel closes that however the test run ends: nothing
//! is left behind, not even by SIGKILL. (A test that kills its own keeper is the exception, until it brings
//! the servers back or ends: the folder of durable servers ends them then. So only these can be killed.)

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::statvfs;
use nix::unistd::Pid;
use private_servers::testing::{DataFolder, bound_this_test};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use sqlx::{Connection, PgConnection};
use tokio::sync::OnceCell;

/// Time for one statement of the set-up; only a hang exceeds it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Triggers that find an UPDATE which doesn't say when it happened.
const UPDATED_AT: &str = include_str!("updated_at.sql");

/// Tests that write rows by hand name only the columns that they are about.
const FOR_ROWS_BY_HAND: &str = "
    ALTER TABLE coupons ALTER currency SET DEFAULT 'CNY';
    ALTER TABLE orders ALTER pay_cents SET DEFAULT 1, ALTER currency SET DEFAULT 'CNY',
                       ALTER pay_by SET DEFAULT now() + interval '15 min'";

/// A folder in memory.
const MEMORY: &str = "/dev/shm";
/// Bytes that have to be free there.
const MEMORY_BYTES_MIN: u128 = 4 << 30;

/// Environment variable that names a pair of servers for [`shared`].
const GIVEN_SERVERS: &str = "TEST_SERVERS";

/// Servers for one test that is going to break them.
pub struct OwnServers {
    keeper: Child,
    /// Where they are.
    pub at: Addresses,
    /// Their folder, if they are to come back with what they had; it outlives the keeper.
    folder: Option<DataFolder>,
}

/// Where a pair of servers is.
#[derive(Clone, Debug, Deserialize)]
pub struct Addresses {
    pub redis_url: String,
    pub database_url: String,
    pub redis_pid: i32,
    pub postgres_pid: i32,
}

/// The servers that the tests share; nobody breaks these. Where one process runs after the other, `TEST_SERVERS` names
/// a migrated pair for all of them, in the keeper's words: a pair takes longer to start than most tests.
pub fn shared() -> &'static Addresses {
    bound_this_test();
    static GIVEN: OnceLock<Option<Addresses>> = OnceLock::new();
    static SHARED: OnceLock<OwnServers> = OnceLock::new();
    let given = GIVEN.get_or_init(|| std::env::var_os(GIVEN_SERVERS).map(given));
    given.as_ref().unwrap_or_else(|| &SHARED.get_or_init(OwnServers::start).at)
}

fn given(line: OsString) -> Addresses {
    let line = line.into_string().expect("the keeper writes text");
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("{GIVEN_SERVERS} says {line:?}"))
}

impl OwnServers {
    /// Throw-away ones: nothing waits for the disk, and what is killed is gone.
    pub fn start() -> Self {
        Self::kept(None)
    }

    /// Such as `serve` starts: every write is on disk before it is answered, and whatever is killed can be
    /// [brought back](Self::bring_back).
    pub fn durable() -> Self {
        Self::kept(Some(DataFolder::new()))
    }

    /// With the migrated database that test databases are copied from.
    fn kept(folder: Option<DataFolder>) -> Self {
        let (keeper, at) = keep(folder.as_ref());
        let servers = Self { keeper, at, folder };
        let url = servers.at.database_url.clone();
        on_a_runtime_of_its_own(move || migrate(url));
        servers
    }

    /// The folder of durable ones.
    pub fn folder(&self) -> &DataFolder {
        self.folder.as_ref().expect("they are durable")
    }

    /// SIGKILL for Redis, and for its keeper, who might notice. As the next one, for [durable](Self::durable) servers only.
    pub fn kill_redis(&mut self) {
        self.kill(self.at.redis_pid);
    }

    /// SIGKILL for the first process of Postgres, whose children end with it, and for its keeper.
    pub fn kill_postgres(&mut self) {
        self.kill(self.at.postgres_pid);
    }

    fn kill(&mut self, server: i32) {
        assert!(
            self.folder.is_some(),
            "without a keeper, nothing would end the other server of a throw-away pair"
        );
        self.keeper.kill().expect("it is our child");
        self.keeper.wait().expect("it is our child");
        kill(Pid::from_raw(server), Signal::SIGKILL).expect("it runs");
    }

    /// Starts what was killed, with the data that it had and at the addresses that it had.
    pub fn bring_back(&mut self) {
        let (keeper, at) = keep(Some(self.folder()));
        assert_eq!((&at.redis_url, &at.database_url), (&self.at.redis_url, &self.at.database_url));
        (self.keeper, self.at) = (keeper, at);
    }
}

/// Whether there is enough memory for files of throw-away servers. On a disk a test's copy of a database costs twice as much.
fn has_memory() -> bool {
    statvfs(MEMORY).is_ok_and(|free| {
        u128::from(free.blocks_available()) * u128::from(free.fragment_size()) >= MEMORY_BYTES_MIN
    })
}

/// A keeper, and the servers that it has started or taken over.
fn keep(folder: Option<&DataFolder>) -> (Child, Addresses) {
    bound_this_test();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash-sale"));
    command.args(["private-servers", "--log", "error"]);
    match folder {
        Some(folder) => command.args(["--data-dir", folder.text()]),
        None => command.arg("--throw-away").envs(has_memory().then_some(("TMPDIR", MEMORY))),
    };
    let mut keeper = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary has been built");
    let mut line = String::new();
    let output = keeper.stdout.as_mut().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("the keeper says where the servers are");
    let at = serde_json::from_str(&line).unwrap_or_else(|_| panic!("the keeper said {line:?}"));
    (keeper, at)
}

impl Drop for OwnServers {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().expect("the keeper ends with its input");
    }
}

impl Addresses {
    /// The URL of another database on the same Postgres.
    pub fn database(&self, name: &str) -> String {
        self.database_url.replacen("/flash_sale?", &format!("/{name}?"), 1)
    }

    /// Makes a migrated, empty database. A copy of its files costs Postgres a third of the processor time that its own
    /// choice takes, a copy through its log.
    pub async fn create_database(&self, name: &str) {
        let as_files = if self.copies_files().await { " STRATEGY FILE_COPY" } else { "" };
        self.administrate(&format!("CREATE DATABASE {name} TEMPLATE flash_sale{as_files}")).await;
    }

    /// True for a Postgres that lets its caller choose; before 15 it copies files always.
    async fn copies_files(&self) -> bool {
        static CHOOSES: OnceCell<bool> = OnceCell::const_new();
        let ask = async || {
            let mut connection =
                PgConnection::connect(&self.database("postgres")).await.expect("Postgres answers");
            let version = "SELECT current_setting('server_version_num')::integer >= 150000";
            sqlx::query_scalar(version).fetch_one(&mut connection).await.expect("a number")
        };
        *CHOOSES.get_or_init(ask).await
    }

    /// Makes a database without a schema.
    pub async fn create_empty_database(&self, name: &str) {
        self.administrate(&format!("CREATE DATABASE {name}")).await;
    }

    /// Drops a database, with whoever is connected to it.
    pub async fn drop_database(&self, name: &str) {
        self.administrate(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
    }

    async fn administrate(&self, statement: &str) {
        let mut connection =
            PgConnection::connect(&self.database("postgres")).await.expect("Postgres answers");
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()));
        statement.execute(&mut connection).await.expect("an administrator may do that");
        connection.close().await.expect("Postgres answers");
    }
}

async fn migrate(url: String) {
    let pool = flash_sale::store::postgres::pool(&url, 1, PATIENCE, false).expect("a valid URL");
    flash_sale::store::schema::migrate(&pool).await.expect("the migrations fit");
    sqlx::raw_sql(UPDATED_AT).execute(&pool).await.expect("triggers can be made");
    sqlx::raw_sql(FOR_ROWS_BY_HAND).execute(&pool).await.expect("columns can be altered");
    pool.close().await;
}

/// Connections belong to the runtime that opened them, so what happens outside of a test's runtime (before
/// it, or when a test app is dropped) needs one of its own.
pub fn on_a_runtime_of_its_own<T, F>(work: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let done = std::thread::spawn(move || runtime().block_on(work())).join();
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A connection to a Redis server that waits for its answers however busy the machine is.
pub async fn connection(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = redis::Client::open(url).expect("a valid URL");
    client.get_multiplexed_async_connection_with_config(&config).await.expect("it answers")
}
