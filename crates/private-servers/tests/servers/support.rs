//! Connections to a pair of servers, and keepers in processes of their own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use private_servers::PrivateServers;
use private_servers::testing::{Process, eventually};
use sqlx::{Connection, PgConnection};

/// Time for Redis to answer, on a slow machine too.
const ANSWER: Duration = Duration::from_secs(60);

/// Sets a key in Redis, and makes a table in Postgres.
pub async fn write(redis_url: &str, database_url: &str) {
    let _: () = command(redis_url, redis::cmd("SET").arg(&["kept", "yes"])).await;
    let mut connection = PgConnection::connect(database_url).await.expect("Postgres answers");
    let statement =
        sqlx::raw_sql("CREATE TABLE kept (value text); INSERT INTO kept VALUES ('yes')");
    statement.execute(&mut connection).await.expect("a new table");
}

/// Whether both stores have what [`write`] has written.
pub async fn has_kept(servers: &PrivateServers) -> bool {
    let in_redis: Option<String> =
        command(servers.redis_url(), redis::cmd("GET").arg("kept")).await;
    let mut connection =
        PgConnection::connect(servers.database_url()).await.expect("Postgres answers");
    let in_postgres: Result<String, _> =
        sqlx::query_scalar("SELECT value FROM kept").fetch_one(&mut connection).await;
    in_redis.as_deref() == Some("yes") && in_postgres.is_ok_and(|value| value == "yes")
}

/// The answer of a Redis to one command.
pub async fn command<T: redis::FromRedisValue>(url: &str, command: &redis::Cmd) -> T {
    let client = redis::Client::open(url).expect("a valid URL");
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    let mut connection = connection.expect("Redis answers");
    command.query_async(&mut connection).await.expect("Redis answers")
}

/// The command `private-servers` in a process of its own, whose input is a pipe. Killed when it is dropped.
pub struct Keeper {
    process: Process,
    /// The line that it has printed.
    line: String,
}

impl Keeper {
    /// Starts the command, and waits for its line.
    pub async fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped());
        let process = Process::spawn(command);
        let line = process.printed("redis_url").await;
        Self { process, line }
    }

    /// The text of a field of the line.
    pub fn text(&self, name: &str) -> String {
        let begin = format!("\"{name}\":\"");
        let (_, rest) = self.line.split_once(&begin).expect("the line has the field");
        rest.split('"').next().expect("a first part").to_owned()
    }

    /// Process ids of Redis and Postgres.
    pub fn servers(&self) -> [u32; 2] {
        ["\"redis_pid\":", "\"postgres_pid\":"].map(|begin| {
            let (_, rest) = self.line.split_once(begin).expect("the line has the field");
            let digits = rest.split([',', '}']).next().expect("a first part");
            digits.parse().expect("a process id")
        })
    }

    /// Closes the input, and returns the exit code.
    pub async fn close_input(&mut self) -> Option<i32> {
        self.process.close_input();
        self.process.ended().await.code()
    }

    /// Kills the keeper, and not its servers.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

/// The command `private-servers` with these arguments.
pub fn private_servers(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_private-servers"));
    command.args(arguments);
    command
}

/// Whether this process lives, which an ended one that has not been waited for does not.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Path::new("/proc").join(pid.to_string()).exists() && !stat.contains(") Z")
}

/// Waits for the end of processes that are not children of this one. A server is taken for gone when it has let its lock
/// go, which the system does a moment before the process ends.
pub async fn ended(pids: [u32; 2]) {
    eventually("the servers end", async || !pids.into_iter().any(is_alive)).await;
}
