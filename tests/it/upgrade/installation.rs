//! An installation that is being upgraded: two real stores, and processes of two binaries on them.

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use private_servers::testing::{Finished, Process, run};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use super::api::Api;
use crate::support::process::program;
use crate::support::servers::connection;
use crate::support::{OwnServers, SECRET, eventually};

/// Name of the environment variable with the path of the older binary.
const OLDER_BINARY: &str = "UPGRADE_FROM";
/// Name of the database, and prefix of the keys.
const NAME: &str = "upgrade";
/// Lanes of the installation; each flash coupon of the shop gets one.
pub const LANES: usize = 3;
/// Seconds that an order may stay unpaid while processes are replaced.
pub const PAYMENT_WINDOW_S: i64 = 3_600;

/// Settings of all processes, older and present. The service itself is no gateway.
const SETTINGS: [(&str, &str); 5] = [
    ("--lanes", "3"),
    ("--database-connections", "5"),
    ("--unpaid-orders-max", "3"),
    ("--stop-delay-ms", "1000"),
    ("--payment-callback-secret", SECRET),
];
/// Settings that the older binary doesn't know, as variables, which it overlooks: patience with a slow machine.
const PATIENT: [(&str, &str); 2] =
    [("FLASH_SALE_REDIS_TIMEOUT_MS", "10000"), ("FLASH_SALE_CLAIM_WAIT_MS", "9000")];

/// The binary of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// Of the commit that is upgraded from.
    Older,
    /// Of this tree.
    Present,
}

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Api,
    Worker,
}

/// A process that runs.
struct Member {
    binary: Binary,
    role: Role,
    process: Process,
    /// Address of the API, or of a worker's `/readyz`.
    url: String,
}

/// The stores, and the processes that run.
pub struct Installation {
    servers: OwnServers,
    /// The database. No session of the pool looks like one of the service.
    pub pool: PgPool,
    client: reqwest::Client,
    members: Vec<Member>,
    /// Addresses of APIs that a balancer asks, also of one that is stopping.
    apis: Vec<String>,
    /// Log lines with ALARM of processes that have ended.
    alarms: Vec<(Binary, String)>,
}

impl Installation {
    /// Durable stores with the schema of the older binary, and no process.
    pub async fn new() -> Self {
        let servers = OwnServers::durable();
        servers.at.create_empty_database(NAME).await;
        let pool = PgPoolOptions::new().max_connections(4);
        let pool = pool.connect(&servers.at.database(NAME)).await.expect("Postgres answers");
        let client = crate::support::client();
        let (members, apis, alarms) = (Vec::new(), Vec::new(), Vec::new());
        let new = Self { servers, pool, client, members, apis, alarms };
        let migrated = new.run(Binary::Older, &["migrate"]).await;
        assert_eq!(migrated.code, Some(0), "{}", migrated.stderr);
        new
    }

    /// Starts a process, and waits until it says that it is ready.
    pub async fn start(&mut self, binary: Binary, role: Role) {
        self.start_with(binary, role, &["--payment-window-s", &PAYMENT_WINDOW_S.to_string()]).await;
    }

    /// The same with settings of its own.
    pub async fn start_with(&mut self, binary: Binary, role: Role, settings: &[&str]) {
        let listen: &[&str] = match role {
            Role::Api => &["--roles", "api", "--listen", "127.0.0.1:0"],
            Role::Worker => &["--roles", "worker", "--admin-listen", "127.0.0.1:0"],
        };
        let mut arguments = vec!["serve"];
        arguments.extend(SETTINGS.iter().flat_map(|(flag, value)| [flag, value]));
        arguments.extend(listen.iter().chain(settings));
        let mut command = self.command(binary, &arguments);
        command.envs(PATIENT);
        let process = Process::spawn(command);
        let line = process.logged(" on http://").await;
        let (_, address) = line.split_once("http://").expect("the line has a URL");
        let url = format!("http://{}", address.trim());
        eventually("the process is ready", async || self.is_ready(&url).await).await;
        if role == Role::Api {
            self.apis.push(url.clone());
        }
        self.members.push(Member { binary, role, process, url });
    }

    /// Stops a process of this binary and role by SIGTERM, and does something again and again until the process ends.
    pub async fn stop(&mut self, binary: Binary, role: Role, meanwhile: impl AsyncFn(&Self)) {
        let is_it = |member: &Member| (member.binary, member.role) == (binary, role);
        let at = self.members.iter().position(is_it).expect("one of them runs");
        let mut member = self.members.remove(at);
        member.process.signal(Signal::SIGTERM);
        eventually("the process ends", async || {
            meanwhile(self).await;
            !member.process.is_running()
        })
        .await;
        self.apis.retain(|url| *url != member.url);
        let status = member.process.ended().await;
        let said = self.note_alarms(&member).await;
        assert_eq!(status.code(), Some(0), "{said}");
    }

    /// Stops all processes by SIGTERM, one after the other.
    pub async fn stop_all(&mut self) {
        while let Some(Member { binary, role, .. }) = self.members.first() {
            self.stop(*binary, *role, async |_| {}).await;
        }
    }

    /// Kills all processes by SIGKILL. Returns their number.
    pub async fn kill_all(&mut self) -> usize {
        let mut killed = std::mem::take(&mut self.members);
        self.apis.clear();
        for member in &killed {
            member.process.signal(Signal::SIGKILL);
        }
        for member in &mut killed {
            member.process.ended().await;
            self.note_alarms(member).await;
        }
        killed.len()
    }

    /// Notes the alarms of a process that has ended. Returns its log.
    async fn note_alarms(&mut self, member: &Member) -> String {
        let said = member.process.said().await;
        let lines = said.lines().filter(|line| line.contains("ALARM"));
        self.alarms.extend(lines.map(|line| (member.binary, line.to_owned())));
        said
    }

    /// Log lines with ALARM of processes that have ended and had this binary.
    pub fn alarms(&self, binary: Binary) -> Vec<&str> {
        let alarms = self.alarms.iter().filter(|(its, _)| *its == binary);
        alarms.map(|(_, line)| line.as_str()).collect()
    }

    /// Addresses of the API processes that say that they are ready: all that a balancer knows.
    pub async fn ready(&self) -> Vec<String> {
        let asked = self.apis.iter().map(async |url| self.is_ready(url).await.then(|| url.clone()));
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn is_ready(&self, url: &str) -> bool {
        let reply = self.client.get(format!("{url}/readyz")).send().await;
        reply.is_ok_and(|reply| reply.status() == 200)
    }

    /// The API of the first API process.
    pub async fn api(&self) -> Api {
        Api::at(self.apis.first().expect("an API process runs"), &self.client).await
    }

    /// The API of an API process of this binary.
    pub async fn api_of(&self, binary: Binary) -> Api {
        let is_it = |member: &&Member| (member.binary, member.role) == (binary, Role::Api);
        let member = self.members.iter().find(is_it).expect("one of them runs");
        Api::at(&member.url, &self.client).await
    }

    /// Redis loses everything.
    pub async fn empty_redis(&self) {
        let mut connection = connection(&self.servers.at.redis_url).await;
        let flushed = redis::cmd("FLUSHALL").query_async(&mut connection).await;
        let () = flushed.expect("it does that");
    }

    /// A number from Postgres.
    pub async fn number(&self, query: &str) -> i64 {
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned()));
        query.fetch_one(&self.pool).await.expect("Postgres answers")
    }

    /// Runs a sub-command on the stores to its end.
    pub async fn run(&self, binary: Binary, arguments: &[&str]) -> Finished {
        run(self.command(binary, arguments)).await
    }

    fn command(&self, binary: Binary, arguments: &[&str]) -> std::process::Command {
        let path = match binary {
            Binary::Older => older_binary(),
            Binary::Present => env!("CARGO_BIN_EXE_flash-sale").to_owned(),
        };
        let mut command = program(&path, arguments);
        command.args(["--redis-url", &self.servers.at.redis_url]);
        command.args(["--database-url", &self.servers.at.database(NAME)]);
        command.args(["--key-prefix", NAME, "--token-secret", SECRET]);
        command
    }
}

#[expect(clippy::disallowed_methods, reason = "a setting of the tests, not of the service")]
fn older_binary() -> String {
    std::env::var(OLDER_BINARY).unwrap_or_else(|_| {
        panic!("{OLDER_BINARY} names no older binary: run `make upgrade`, which builds one")
    })
}
