//! A flash-sale of the test's own, and relays of its feed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use private_servers::testing::{Process, bounded_by, patience_of, run};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;

/// Time after which a test counts as hanging.
const HANGS_AFTER: Duration = Duration::from_secs(600);
const TOKEN_SECRET: &str = "a secret of the tests, 32 bytes or more";

pub struct Service {
    stores: Process,
    _serve: Process,
    client: Client,
    url: String,
    pub database_url: String,
    admin: String,
    pub integrator: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        // The servers stop with their keeper's input; killed, it would leave them behind.
        self.stores.close_input();
        while self.stores.is_running() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Waits until this is true, however slow the machine.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waits = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    bounded_by(patience_of(HANGS_AFTER), what, waits).await;
}

/// A program without the settings of whoever runs the tests.
fn program(path: impl Into<PathBuf>) -> Command {
    let mut command = Command::new(path.into());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FLASH_SALE_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn flash_sale() -> Command {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/debug/flash-sale");
    let path = std::env::var_os("FLASH_SALE_BINARY").map_or_else(|| built.into(), PathBuf::from);
    assert!(
        path.exists(),
        "run `cargo build` in the workspace first: {} is missing",
        path.display()
    );
    program(path)
}

/// Tokens for users 1 to `count`.
async fn tokens(count: usize, scope: &[&str]) -> Vec<String> {
    let mut command = flash_sale();
    command.args(["token", "--user", "1", "--token-secret", TOKEN_SECRET]).args(scope);
    command.args(["--count", &count.to_string()]);
    run(command).await.stdout.lines().map(str::to_owned).collect()
}

impl Service {
    pub async fn start() -> Self {
        let mut stores = flash_sale();
        stores.args(["private-servers", "--throw-away"]).stdin(Stdio::piped());
        let stores = Process::spawn(stores);
        let urls: Value = serde_json::from_str(&stores.printed("redis_url").await).expect("JSON");
        let url_of = |name: &str| urls[name].as_str().expect("a URL").to_owned();
        let mut migrate = flash_sale();
        migrate.args(["migrate", "--database-url", &url_of("database_url")]);
        assert_eq!(run(migrate).await.code, Some(0));
        let mut serve = flash_sale();
        serve.args(["serve", "--events", "--in-process-gateway", "--listen", "127.0.0.1:0"]);
        serve.args(["--token-secret", TOKEN_SECRET, "--redis-url", &url_of("redis_url")]);
        serve.args(["--database-url", &url_of("database_url")]);
        // Time-outs for a machine however busy; and small batches, so that there are many events.
        serve.args(["--redis-timeout-ms", "10000", "--claim-wait-ms", "9000"]);
        serve.args(["--database-timeout-ms", "10000", "--batch-orders-max", "50"]);
        let serve = Process::spawn(serve);
        let line = serve.logged("the API listens on http://").await;
        let (_, address) = line.split_once("http://").expect("a URL");
        Self {
            url: format!("http://{address}"),
            database_url: url_of("database_url"),
            stores,
            _serve: serve,
            client: Client::new(),
            admin: tokens(1, &["--admin"]).await.remove(0),
            integrator: tokens(1, &["--scope", "integrator"]).await.remove(0),
        }
    }

    /// A relay of this feed, with a short lease; arguments that come later win.
    pub fn relay(&self, arguments: &[String]) -> Process {
        Process::spawn(self.relay_command(arguments))
    }

    pub fn relay_command(&self, arguments: &[String]) -> Command {
        self.command(env!("CARGO_BIN_EXE_flash-sale-relay"), arguments)
    }

    /// The same by this program.
    pub fn command(&self, relay: impl Into<PathBuf>, arguments: &[String]) -> Command {
        let mut command = program(relay);
        command.env("FLASH_SALE_RELAY_TOKEN", &self.integrator);
        command.env("FLASH_SALE_RELAY_LEASE_S", "3");
        command.env("FLASH_SALE_RELAY_DATABASE_URL", &self.database_url);
        command.args(["--url", &self.url]).args(arguments);
        command
    }

    pub async fn sql(&self) -> PgConnection {
        PgConnection::connect(&self.database_url).await.expect("Postgres answers")
    }

    async fn ask(&self, method: Method, path: &str, token: &str, body: Value) -> (u16, Value) {
        let request = self.client.request(method, format!("{}/v1/{path}", self.url));
        let request = request.bearer_auth(token).json(&body);
        let reply = request.send().await.expect("the service answers");
        (reply.status().as_u16(), reply.json().await.unwrap_or_default())
    }

    async fn create_coupon(&self, total: usize) -> String {
        let sale = json!({"total": total, "opens_at": "2026-01-01T00:00:00Z", "closes_at": "2036-01-01T00:00:00Z"});
        let coupon = json!({"kind": "flash", "title": "Dinner", "pay_cents": 2500, "value_cents": 5000, "sale": sale});
        let (status, reply) = self.ask(Method::POST, "coupons", &self.admin, coupon).await;
        assert_eq!(status, 201, "{reply}");
        reply["id"].as_str().expect("an id").to_owned()
    }

    /// So many users claim one of three coupons each; a third of them pay, a third cancel.
    pub async fn sell(&self, orders: usize) {
        let mut coupons = Vec::new();
        for _ in 0..3 {
            coupons.push(self.create_coupon(orders).await);
        }
        let buyers = tokens(orders, &[]).await.into_iter().enumerate();
        let bought = stream::iter(buyers).for_each_concurrent(16, async |(n, token)| {
            self.buy(&token, &coupons[n % 3], ["pay", "cancel", ""][(n / 3) % 3]).await;
        });
        bought.await;
    }

    async fn buy(&self, token: &str, coupon: &str, then: &str) {
        // A claim whose outcome is unknown (503) is made again, and told its order (409).
        let claim = self.ask_until(&format!("coupons/{coupon}/claims"), token, [202, 409]).await;
        if !then.is_empty() {
            let order = claim["order_id"].as_str().expect("an id");
            // 404 until a worker has written the order; 409 if it has moved without our being told.
            self.ask_until(&format!("orders/{order}/{then}"), token, [200, 409]).await;
        }
    }

    /// Posts until one of these is the status.
    async fn ask_until(&self, path: &str, token: &str, done: [u16; 2]) -> Value {
        let mut last = Value::Null;
        until("the service does it", async || {
            let body = json!({"method": "balance"});
            let (status, reply) = self.ask(Method::POST, path, token, body).await;
            assert!(done.contains(&status) || [404, 503].contains(&status), "{status} {reply}");
            last = reply;
            done.contains(&status)
        })
        .await;
        last
    }

    /// The feed from its beginning to its end.
    pub async fn feed(&self) -> Vec<Value> {
        let mut feed: Vec<Value> = Vec::new();
        loop {
            let after = feed.last().map(|event| event["id"].as_str().expect("an id"));
            let path = match after {
                Some(after) => format!("events?after={after}"),
                None => "events".to_owned(),
            };
            let (status, page) = self.ask(Method::GET, &path, &self.integrator, json!({})).await;
            assert_eq!(status, 200, "{page}");
            match page.as_array().expect("a list") {
                page if page.is_empty() => return feed,
                page => feed.extend(page.iter().cloned()),
            }
        }
    }

    /// The feed, when it has so many claims.
    pub async fn feed_with_claims(&self, claims: usize) -> Vec<Value> {
        let mut feed = Vec::new();
        until("all claims are events", async || {
            feed = self.feed().await;
            let orders = feed.iter().filter_map(|event| event["data"]["orders"].as_array());
            orders.map(Vec::len).sum::<usize>() == claims
        })
        .await;
        feed
    }

    /// Waits until a relay has published this feed.
    pub async fn is_relayed(&self, feed: &[Value]) {
        let last = feed.last().expect("there are events")["id"].as_str();
        let mut sql = self.sql().await;
        until("the cursor is at the feed's end", async || {
            let cursor = sqlx::query_scalar("SELECT cursor FROM relays");
            // An error until the relay has made the table.
            let cursor: Option<String> = cursor.fetch_one(&mut sql).await.unwrap_or_default();
            cursor.as_deref() == last
        })
        .await;
    }
}
