//! A service to measure, and the commands of the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::kit::jwt::{Grants, Tokens};
use flash_sale::sale::buyers::shards::Shards;
use flash_sale::sale::ids::{CouponId, UserId};
use flash_sale::sale::keys::Keys;
use private_servers::testing::{DataFolder, Finished, Process, run, run_within};
use private_servers::{PrivateServers, Settings, Sync};
use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

/// The secret that signs the tokens of the tests.
pub const SECRET: &str = "a secret that is only good for tests";
/// Beginning of the keys in Redis.
const KEY_PREFIX: &str = "fs";

/// The bench with these arguments and no settings of the environment.
pub fn bench(arguments: &[&str]) -> Command {
    let mut command = clean(Command::new(env!("CARGO_BIN_EXE_flash-sale-bench")));
    command.args(arguments);
    command
}

/// A folder that is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes it.
    pub fn new() -> Self {
        let name = format!("flash-sale-test-{}", Uuid::new_v4().simple());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a temporary folder can be made");
        Self(folder)
    }

    /// A path in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names of all that lies in it.
    pub fn entries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Time for a measurement: several services start and stop in it, on a machine that runs other tests.
const MEASURED_WITHIN: Duration = Duration::from_secs(240);

/// Runs a measurement to its end.
pub async fn measured(command: Command) -> Finished {
    run_within(command, MEASURED_WITHIN).await
}

/// A short run.
pub fn short(arguments: &[&str]) -> Command {
    let mut command = bench(&[]);
    command.args(["--warm-up-seconds", "0.2", "--connections", "8"]);
    if !arguments.contains(&"--seconds") {
        command.args(["--seconds", "0.6"]);
    }
    command.args(arguments);
    command
}

/// A path as text.
pub fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The JSON in a file.
pub fn read_json(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("it has been written");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Requests of a slice with this status.
pub fn answered(slice: &Value, status: u64) -> u64 {
    let endings = slice["endings"].as_array().expect("a slice says how its requests ended");
    let with_status = endings.iter().filter(|ending| ending["status"] == status);
    with_status.map(|ending| ending["count"].as_u64().expect("a number")).sum()
}

/// Fails with all output unless the exit code is this one.
pub fn assert_exit_code(finished: &Finished, code: i32) {
    let Finished { stdout, stderr, .. } = finished;
    assert_eq!(finished.code, Some(code), "{stdout}\n{stderr}");
}

/// The service's binary, which stands beside the bench.
///
/// # Panics
///
/// If it has not been built.
pub fn service_binary() -> PathBuf {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_flash-sale-bench")).with_file_name("flash-sale");
    assert!(binary.is_file(), "{} is missing: `cargo build --bin flash-sale`", binary.display());
    binary
}

fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let is_setting = name.to_string_lossy().starts_with("FLASH_SALE_");
        // By this one `.ci/run` finds processes that a test run leaves behind.
        if is_setting && name != "FLASH_SALE_CI_RUN" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A service that runs on servers of the test.
pub struct Service {
    // Fields drop in this order: the service ends before its servers.
    _process: Process,
    servers: PrivateServers,
    _folder: DataFolder,
    /// The address of its API.
    pub url: String,
    client: reqwest::Client,
}

impl Service {
    /// Starts servers and a service with these further arguments.
    pub async fn start(arguments: &[&str]) -> Self {
        let folder = DataFolder::new();
        let servers = PrivateServers::start(folder.path(), &Settings::new(Sync::Off)).await;
        let servers = servers.expect("the servers start");
        let stores = store_arguments(&servers);
        let mut migrate = clean(Command::new(service_binary()));
        migrate.arg("migrate").args(&stores[..4]);
        let migrated = run(migrate).await;
        assert_eq!(migrated.code, Some(0), "{migrated:?}");
        let mut serve = clean(Command::new(service_binary()));
        serve.args(["serve", "--listen", "127.0.0.1:0"]).args(&stores).args(arguments);
        let process = Process::spawn(serve);
        let line = process.logged("the API listens on http://").await;
        let (_, address) = line.split_once("http://").expect("the line has a URL");
        let url = format!("http://{address}");
        let client = reqwest::Client::new();
        Self { _process: process, servers, _folder: folder, url, client }
    }

    /// Arguments that name the service's stores.
    pub fn store_arguments(&self) -> Vec<String> {
        store_arguments(&self.servers)
    }

    /// Creates a flash coupon that is on sale for an hour.
    pub async fn create_flash(&self, stock: i64) -> CouponId {
        let now = Clock::System.now();
        let (opens_at, closes_at) =
            (now - chrono::TimeDelta::seconds(1), now + chrono::TimeDelta::hours(1));
        let sale = json!({"total": stock, "opens_at": opens_at, "closes_at": closes_at});
        let coupon =
            json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale});
        let request = self.client.post(format!("{}/v1/coupons", self.url));
        let reply = request.bearer_auth(token(1, true)).json(&coupon).send().await;
        let reply: Value = reply.expect("an answer").json().await.expect("JSON");
        reply["id"].as_str().and_then(|id| id.parse().ok()).expect("a coupon id")
    }

    /// The status of a claim.
    pub async fn claim(&self, user: i64, coupon: CouponId) -> u16 {
        let request = self.client.post(format!("{}/v1/coupons/{coupon}/claims", self.url));
        let reply = request.bearer_auth(token(user, false)).send().await.expect("an answer");
        reply.status().as_u16()
    }

    /// Status, type and body of the answer of a route that does nothing, here or elsewhere.
    pub async fn no_op(&self, url: &str) -> (u16, Option<String>, String) {
        let request = self.client.post(format!("{url}/v1/no-op")).bearer_auth(token(1, false));
        let reply = request.send().await.expect("an answer");
        let content_type = reply.headers().get("content-type");
        let content_type = content_type.and_then(|name| Some(name.to_str().ok()?.to_owned()));
        (reply.status().as_u16(), content_type, reply.text().await.expect("a body"))
    }

    /// Takes a buyer out of Redis.
    pub async fn forget_buyer(&self, coupon: CouponId, user: i64) {
        let keys = Keys::new(KEY_PREFIX);
        let client = redis::Client::open(self.servers.redis_url()).expect("a valid URL");
        let mut connection = client.get_multiplexed_async_connection().await.expect("Redis");
        let mut count = redis::cmd("HGET");
        count.arg(keys.coupon(coupon)).arg("shards");
        let count: u32 = count.query_async(&mut connection).await.expect("the sale is loaded");
        let shards = Shards::new(count).expect("a sale has shards");
        let shard = shards.of(UserId::new(user).expect("a user id"));
        let mut forget = redis::cmd("HDEL");
        forget.arg(keys.buyers(coupon, shard)).arg(user);
        let forgotten: i64 = forget.query_async(&mut connection).await.expect("Redis answers");
        assert_eq!(forgotten, 1);
    }
}

fn store_arguments(servers: &PrivateServers) -> Vec<String> {
    [
        ("--redis-url", servers.redis_url()),
        ("--database-url", servers.database_url()),
        ("--key-prefix", KEY_PREFIX),
        ("--token-secret", SECRET),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value.to_owned()])
    .collect()
}

fn token(subject: i64, admin: bool) -> String {
    let tokens = Tokens::new(&SecretString::from(SECRET));
    let grants = if admin { Grants::administrator(subject) } else { Grants::user(subject) };
    tokens.issue(grants, Clock::System.now() + chrono::TimeDelta::hours(1))
}
