//! The service in this process, on a database and a key prefix of its own. Speaks the words of the
//! business, and checks the law of conservation at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use clap::Parser;
use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::base::config::{Config, Demo, StoreConfig};
use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::http;
use flash_sale::http::state::HttpState;
use flash_sale::kit::jwt::{Grants, Scope, Tokens};
use flash_sale::log::{Entry, EntryId, LogState, LoggedClaim};
use flash_sale::recovery::leader::Leader;
use flash_sale::recovery::reconcile::job::Asked;
use flash_sale::recovery::reconcile::runs::Run;
use flash_sale::recovery::reconcile::{self, Report};
use flash_sale::store::Stores;
use flash_sale::store::fleet::Fleet;
use flash_sale::store::ids::{CouponId, Lane, UserId};
use flash_sale::store::keys::Keys;
use flash_sale::store::postgres;
use flash_sale::store::redis::Redis;
use flash_sale::worker::LaneWorker;
use flash_sale::worker::write::WriteReport;
use futures_util::future::join_all;
use private_servers::testing::{RedisProxy, ask_each_time};
use redis::{FromRedisValue, RedisResult};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::sleep;
use uuid::Uuid;

use super::client::{Events, Reply};
use super::servers::{Addresses, on_a_runtime_of_its_own, shared};
use super::{bounded, bounded_by, eventually, patience, patience_of};

/// The time-outs of an installation for Redis, for tests of what a Redis that hangs does to users.
pub const IMPATIENT_WITH_REDIS: [&str; 4] = ["--redis-timeout-ms", "500", "--claim-wait-ms", "400"];

/// The time-out of an installation for Postgres, for tests of what a Postgres that hangs does to users.
pub const IMPATIENT_WITH_POSTGRES: [&str; 2] = ["--database-timeout-ms", "1000"];

/// Time-outs for a machine however busy, and no bounds that a fast one would meet. A test that is about one gives its
/// own, which counts because it comes last.
const PATIENT: [&str; 12] = [
    "--redis-timeout-ms",
    "10000",
    "--database-timeout-ms",
    "10000",
    "--claim-wait-ms",
    "9000",
    "--user-claims-per-second",
    "0",
    "--user-requests-per-second",
    "0",
    "--anonymous-requests-per-second",
    "0",
];

/// Time for which a sold-out sale is believed, in ms; no setting of the service, and among those of a test.
const SOLD_OUT_MEMORY: &str = "--sold-out-memory-ms";

/// Code of the one link of a demo.
pub const CODE: &str = "0123456789abcdef";

pub const SECRET: &str = "a secret that is only good for tests";

/// The service under test.
pub struct TestApp {
    pub app: Arc<App>,
    /// Where it listens.
    pub url: String,
    pub config: Config,
    place: Place,
    client: reqwest::Client,
    /// Cleared by a test that breaks something on purpose.
    check_at_end: AtomicBool,
}

/// Where a test app keeps its data.
#[derive(Clone)]
struct Place {
    servers: Addresses,
    database: String,
    prefix: String,
}

#[derive(Parser)]
#[command(args_override_self = true)]
struct Command {
    #[command(flatten)]
    config: Config,
}

impl TestApp {
    /// With the default settings, and few connections.
    pub async fn start() -> Self {
        Self::configured(&[]).await
    }

    /// With this many lanes.
    pub async fn with_lanes(lanes: i32) -> Self {
        Self::configured(&["--lanes", &lanes.to_string()]).await
    }

    /// With settings given as on the command line.
    pub async fn configured(arguments: &[&str]) -> Self {
        Self::on(shared(), arguments, Clock::System).await
    }

    /// On servers of the test's own, or with a clock of its own.
    pub async fn on(servers: &Addresses, arguments: &[&str], clock: Clock) -> Self {
        let config = Self::config(&[&["--in-process-gateway"], arguments].concat());
        Self::with(servers, config, clock).await
    }

    /// As it is installed: the service itself is no gateway.
    pub async fn without_in_process_gateway(arguments: &[&str]) -> Self {
        Self::with(shared(), Self::config(arguments), Clock::System).await
    }

    /// With the pages, and tokens for shoppers, as `flash-sale demo` has them.
    pub async fn demo() -> Self {
        Self::demo_on(shared()).await
    }

    /// The same, on servers of the test's own.
    pub async fn demo_on(servers: &Addresses) -> Self {
        let config = Self::config(&["--in-process-gateway", "--pages", "shop,board"]);
        let demo = Demo { codes: vec![CODE.into()] };
        Self::with(servers, Config { demo: Some(demo), ..config }, Clock::System).await
    }

    fn config(arguments: &[&str]) -> Config {
        let defaults = ["flash-sale", "--database-connections", "5"];
        let (memory, arguments) = match arguments.iter().position(|word| *word == SOLD_OUT_MEMORY) {
            Some(at) => {
                let ms = arguments[at + 1].parse().expect("a number");
                let rest = [&arguments[..at], &arguments[at + 2..]].concat();
                (Some(Duration::from_millis(ms)), rest)
            }
            None => (None, arguments.to_vec()),
        };
        let all = defaults.iter().chain(&PATIENT).chain(&arguments);
        let mut config = Command::parse_from(all).config;
        config.sold_out_memory = memory.unwrap_or(config.sold_out_memory);
        config
    }

    async fn with(servers: &Addresses, config: Config, clock: Clock) -> Self {
        ask_each_time();
        let name = format!("t{}", Uuid::new_v4().simple());
        let place = Place { servers: servers.clone(), database: name.clone(), prefix: name };
        bounded("a database", place.servers.create_database(&place.database)).await;
        let app = place.assemble(&config, clock).await;
        let listener = http::server::bind("127.0.0.1:0".parse().unwrap()).expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let shutdown = app.shutdown.clone();
        let routes = http::api(&http_state(app.clone(), &config), true);
        let served = http::server::run(listener, routes, config.connections_max, app.clone());
        shutdown.spawn(served);
        Self { app, url, config, place, client: client(), check_at_end: AtomicBool::new(true) }
    }

    /// A second instance of the service on the same data.
    pub async fn another_instance(&self) -> Arc<App> {
        self.place.assemble(&self.config, Clock::System).await
    }

    /// The same, by another clock.
    pub async fn another_instance_at(&self, clock: Clock) -> Arc<App> {
        self.place.assemble(&self.config, clock).await
    }

    /// A second instance, with Redis behind a proxy.
    pub async fn another_instance_behind(&self, proxy: &RedisProxy) -> Arc<App> {
        self.another_instance_on(proxy.url()).await
    }

    /// A second instance, with another list of servers.
    pub async fn another_instance_on(&self, redis_url: &str) -> Arc<App> {
        let mut place = self.place.clone();
        redis_url.clone_into(&mut place.servers.redis_url);
        place.assemble(&self.config, Clock::System).await
    }

    /// The address of this app's Redis.
    pub fn redis_url(&self) -> &str {
        &self.place.servers.redis_url
    }

    /// The address of this app's database.
    pub fn database_url(&self) -> String {
        self.place.servers.database(&self.place.database)
    }

    /// The arguments that make the binary use this app's data.
    pub fn store_arguments(&self) -> Vec<String> {
        let Place { servers, database, prefix } = &self.place;
        let stores = &self.config.stores;
        let sentinels: Vec<_> = stores.redis_sentinels.iter().map(ToString::to_string).collect();
        let sentinels = (!sentinels.is_empty()).then(|| ("--redis-sentinels", sentinels.join(",")));
        [
            ("--redis-url", servers.redis_url.clone()),
            ("--database-url", servers.database(database)),
            ("--key-prefix", prefix.clone()),
            ("--token-secret", SECRET.to_owned()),
        ]
        .into_iter()
        .chain(sentinels)
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    }

    /// Tells the end of the test that disagreements were the point.
    pub fn expect_disagreements(&self) {
        self.check_at_end.store(false, Ordering::SeqCst);
    }

    // ---- the business, over HTTP ----

    /// Creates a flash coupon that is on sale for an hour.
    pub async fn create_flash(&self, stock: i64) -> CouponId {
        let now = now();
        self.create_sale(stock, now - TimeDelta::seconds(1), now + TimeDelta::hours(1)).await
    }

    /// Creates a flash coupon with this window.
    pub async fn create_sale(
        &self,
        stock: i64,
        opens_at: DateTime<Utc>,
        closes_at: DateTime<Utc>,
    ) -> CouponId {
        let sale = json!({"total": stock, "opens_at": opens_at, "closes_at": closes_at});
        self.create(
            json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale}),
        )
        .await
    }

    /// Creates a regular coupon.
    pub async fn create_regular(&self) -> CouponId {
        self.create(json!({"kind": "regular", "title": "t", "pay_cents": 1, "value_cents": 2}))
            .await
    }

    async fn create(&self, coupon: Value) -> CouponId {
        let reply = self.post("/v1/coupons", &self.admin_token(), &coupon).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.text("id").parse().expect("a coupon id")
    }

    /// `user` claims `coupon`.
    pub async fn claim(&self, user: i64, coupon: CouponId) -> Reply {
        self.claim_preferring(user, coupon, "").await
    }

    /// `user` claims `coupon` with this `Prefer` header.
    pub async fn claim_preferring(&self, user: i64, coupon: CouponId, prefer: &str) -> Reply {
        let path = format!("/v1/coupons/{coupon}/claims");
        let request = self.client.post(self.url.clone() + &path).bearer_auth(self.token(user));
        self.send(request.header("prefer", prefer), "POST", &path).await
    }

    /// `user` claims `coupon` with this `X-Trace` header.
    pub async fn claim_traced(&self, user: i64, coupon: CouponId, value: &str) -> Reply {
        let path = format!("/v1/coupons/{coupon}/claims");
        let request = self.client.post(self.url.clone() + &path).bearer_auth(self.token(user));
        self.send(request.header("x-trace", value), "POST", &path).await
    }

    /// What became of `user`'s claim.
    pub async fn my_claim(&self, user: i64, coupon: CouponId) -> Reply {
        self.get(&format!("/v1/coupons/{coupon}/claims/me"), &self.token(user)).await
    }

    /// Watches `coupon`.
    pub async fn watch(&self, coupon: CouponId) -> Events {
        let path = format!("{}/v1/coupons/{coupon}/live", self.url);
        let reply = bounded("the reply", self.client.get(path).send()).await;
        Events::of(reply.expect("the service answers"))
    }

    /// GET with a token; "" for none.
    pub async fn get(&self, path: &str, token: &str) -> Reply {
        let request = self.client.get(self.url.clone() + path);
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        self.send(request, "GET", path).await
    }

    /// POST a JSON body with a token.
    pub async fn post(&self, path: &str, token: &str, body: &Value) -> Reply {
        let request = self.client.post(self.url.clone() + path).bearer_auth(token).json(body);
        self.send(request, "POST", path).await
    }

    /// Sends any request, and checks the reply against `/openapi.json`.
    pub async fn send(&self, request: reqwest::RequestBuilder, method: &str, path: &str) -> Reply {
        // The same for every app.
        static DOCUMENT: OnceCell<Value> = OnceCell::const_new();
        let document = DOCUMENT.get_or_init(|| async {
            let document = self.client.get(format!("{}/openapi.json", self.url)).send().await;
            document.expect("the document is served").json().await.expect("it is JSON")
        });
        let document = bounded("the document", document).await;
        let response = bounded("the reply", request.send()).await.expect("the service answers");
        Reply::read(response, method, path, document).await
    }

    /// Compares the stores, and waits for the end however long it takes.
    pub async fn compare(&self) -> Reply {
        let reply = self.post("/v1/reconcile", &self.admin_token(), &Value::Null).await;
        if reply.status == 202 { self.finished(reply).await } else { reply }
    }

    /// Record of a comparison.
    pub async fn compared(&self) -> Run {
        let asked = bounded("the record", self.app.reconciler.ask()).await;
        match asked.expect("both stores answer") {
            Asked::Compared(run) => run,
            refused => panic!("{refused:?}"),
        }
    }

    /// The record of a comparison that has taken longer than a request waits, once it has ended.
    pub async fn finished(&self, mut reply: Reply) -> Reply {
        let path = reply.header("location").to_owned();
        eventually("the comparison ends", async || {
            reply = self.get(&path, &self.admin_token()).await;
            reply.body["finished_at"].is_string()
        })
        .await;
        reply
    }

    /// A client for requests that the methods above can't say.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// A user's token.
    pub fn token(&self, user: i64) -> String {
        token(user)
    }

    /// An administrator's token.
    pub fn admin_token(&self) -> String {
        admin_token()
    }

    // ---- the worker, job by job ----

    /// A worker of one lane that runs only when it is told to.
    pub fn worker(&self, lane: Lane) -> LaneWorker {
        worker_of(&self.app, &self.config, lane)
    }

    /// Number of lanes that it was started with.
    pub fn lanes(&self) -> i32 {
        self.config.lanes.unwrap_or(1)
    }

    /// Workers for all lanes.
    pub fn workers(&self) -> Vec<LaneWorker> {
        Lane::all(self.lanes()).map(|lane| self.worker(lane)).collect()
    }

    /// Writes everything that is in the log. Returns what all jobs did together.
    pub async fn write_orders(&self) -> WriteReport {
        let mut sum = WriteReport::default();
        for mut worker in self.workers() {
            bounded("the group", worker.ensure_group()).await.expect("Redis answers");
            add(&mut sum, write_all(&mut worker).await);
        }
        sum
    }

    /// Looks after the lanes, and writes orders, until Redis has been compared with Postgres and all lanes are open.
    pub async fn recover(&self) {
        self.recover_within(patience()).await;
    }

    /// The same, with so many buyers that only a hang takes longer than this.
    pub async fn recover_within(&self, time: Duration) {
        let keeping = async {
            loop {
                let jobs = join_all(self.app.leaders.each().map(Leader::run_once)).await;
                if jobs.iter().all(Result::is_ok) && self.app.lanes.recovering().is_empty() {
                    return;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let writing = async {
            let mut workers = self.workers();
            loop {
                self.app.unwritten_job().await;
                for worker in &mut workers {
                    // A worker whose lane has a new epoch begins again.
                    let _ = worker.ensure_group().await;
                    let _ = worker.write_job().await;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = bounded_by(time, "all lanes open", keeping) => {}
            () = writing => {}
        }
    }

    // ---- behind the curtain ----

    /// What Redis and Postgres say about each other.
    pub async fn reconcile(&self) -> Report {
        self.reconcile_within(patience()).await
    }

    /// The same, with so many buyers that only a hang takes longer than this.
    pub async fn reconcile_within(&self, time: Duration) -> Report {
        let comparison = reconcile::check(&self.app.stores);
        let report = bounded_by(time, "the end of the comparison", comparison).await;
        report.expect("both stores answer")
    }

    /// One Redis command, given as words.
    pub async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        let done = bounded(words[0], self.app.stores.fleet.first().query(&command)).await;
        done.expect("Redis does it")
    }

    /// Appends an entry to the log by hand; a claim as the claim script does, numbered. Returns its id.
    pub async fn append(&self, lane: Lane, fields: &[&str]) -> String {
        self.append_as(lane, "*", fields).await
    }

    /// The same, with this id.
    pub async fn append_as(&self, lane: Lane, id: &str, fields: &[&str]) -> String {
        let (log, of_lane) = (self.log(lane), self.keys().lane(lane));
        let &["coupon", coupon, "user", user, "order", order] = fields else {
            return self.redis(&[&["XADD", &log, id], fields].concat()).await;
        };
        self.redis(&["EVAL", APPEND, "2", &log, &of_lane, id, coupon, order, user]).await
    }

    /// Key of the log of a lane.
    pub fn log(&self, lane: Lane) -> String {
        self.keys().log(lane)
    }

    /// One SQL statement of the test's, by another name than the service's (`support/updated_at.sql`).
    pub async fn execute(&self, statement: &str) {
        let mut connection = self.app.stores.pool.acquire().await.expect("Postgres answers");
        for statement in
            ["SET application_name TO 'flash-sale test'", statement, "RESET application_name"]
        {
            let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()));
            statement.execute(&mut *connection).await.expect("Postgres does it");
        }
    }

    /// A number from Postgres.
    pub async fn number(&self, query: &str) -> i64 {
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned()));
        let number = bounded("a number", query.fetch_one(&self.app.stores.pool)).await;
        number.expect("Postgres answers")
    }

    /// Names of the keys.
    pub fn keys(&self) -> &Keys {
        &self.app.stores.keys
    }
}

/// Time for all jobs that empty a log, however long it is.
const WRITTEN_MAX: Duration = Duration::from_secs(600);
/// Time for the end of a test, which writes and compares all that it has left behind.
const SETTLED_MAX: Duration = Duration::from_secs(600);

/// Appends a claim, and numbers it.
const APPEND: &str = "
    local first = redis.call('HINCRBY', KEYS[2], 'accepted', 1)
    return redis.call('XADD', KEYS[1], ARGV[1], 'coupon', ARGV[2], 'revision', 1, 'epoch', 1, 'first', first,
        'order', ARGV[3], 'users', ARGV[4])";

pub fn claims_in(entries: &[Entry]) -> Vec<LoggedClaim> {
    entries.iter().flat_map(|entry| entry.claims.clone()).collect()
}

/// These entries, to be acknowledged.
pub fn done(entries: &[Entry]) -> Vec<(EntryId, u64)> {
    entries.iter().map(|entry| (entry.id, entry.counted())).collect()
}

/// Runs write jobs until nothing is left, and fails if something stays.
pub async fn write_all(worker: &mut LaneWorker) -> WriteReport {
    let mut sum = WriteReport::default();
    bounded_by(patience_of(WRITTEN_MAX), "the log is empty", async {
        loop {
            let written = bounded("the end of the job", worker.write_job()).await;
            let report = written.expect("both stores answer");
            if report.positions == 0 {
                return sum;
            }
            add(&mut sum, report);
        }
    })
    .await
}

fn add(sum: &mut WriteReport, report: WriteReport) {
    sum.positions += report.positions;
    sum.inserted += report.inserted;
    sum.repeated += report.repeated;
    sum.dead_letters += report.dead_letters;
    sum.contended += report.contended;
}

impl Place {
    async fn assemble(&self, config: &Config, clock: Clock) -> Arc<App> {
        let url = self.servers.database(&self.database);
        let stores = &config.stores;
        let (connections, timeout) = (stores.database_connections, stores.database_timeout());
        let pool = postgres::pool(&url, connections, timeout, stores.events);
        let pool = pool.expect("a valid URL");
        let urls = match &self.servers.redis_url {
            url if url.contains("+cluster") => vec![url.as_str()],
            urls => urls.split(',').collect(),
        };
        let urls = urls.into_iter();
        let fleet = Fleet::new(urls.map(|url| redis(url, stores).expect("a valid URL")));
        let stores = Stores { pool, fleet, keys: Keys::new(&self.prefix) };
        let app = App::assemble(config, stores, clock, Shutdown::default());
        bounded("the parts of the app", app).await.expect("both stores answer")
    }

    /// Lets a new worker write whatever is in flight, and compares the stores; then releases units
    /// what is due, and compares them again.
    async fn settle(self, mut config: Config) -> Report {
        // As many as are in use here at one time; Postgres makes a process for each.
        config.stores.database_connections = 2;
        let app = self.assemble(&config, Clock::System).await;
        for lane in Lane::all(config.lanes.unwrap_or(1)) {
            let mut worker = worker_of(&app, &config, lane);
            worker.ensure_group().await.expect("Redis answers");
            // As long as it takes the locks of a worker that was killed to run out.
            eventually("everything is written", async || {
                write_all(&mut worker).await;
                let state = LogState::of(app.stores.redis(lane), &app.stores.keys, lane).await;
                state.is_ok_and(|state| state.is_settled())
            })
            .await;
        }
        let mut report = reconcile::check(&app.stores).await.expect("both stores answer");
        if app.stock_returns.run_once().await.expect("both stores answer").items > 0 {
            let after = reconcile::check(&app.stores).await.expect("both stores answer");
            report.disagreements.extend(after.disagreements);
        }
        app.stores.pool.close().await;
        self.servers.drop_database(&self.database).await;
        report
    }
}

/// A worker of one lane that runs only when it is told to.
pub fn worker_of(app: &Arc<App>, config: &Config, lane: Lane) -> LaneWorker {
    let batch_orders_max = usize::try_from(config.batch_orders_max).expect("it fits");
    LaneWorker::new(app.clone(), lane, batch_orders_max)
}

fn redis(url: &str, stores: &StoreConfig) -> RedisResult<Redis> {
    let timeout = stores.redis_timeout();
    if url.contains("+cluster://") {
        return Redis::in_cluster(url, "0", timeout);
    }
    match stores.redis_sentinels.is_empty() {
        true => Redis::with_timeout(url, timeout),
        false => Redis::behind_sentinels(url, &stores.redis_sentinels, timeout),
    }
}

impl Drop for TestApp {
    /// At the end of every test: whatever was in flight gets written, and then the stores agree.
    fn drop(&mut self) {
        if std::thread::panicking() || !self.check_at_end.load(Ordering::SeqCst) {
            return;
        }
        let place = self.place.clone();
        let config = self.config.clone();
        let report = on_a_runtime_of_its_own(move || {
            bounded_by(patience_of(SETTLED_MAX), "agreement of the stores", place.settle(config))
        });
        assert_eq!(report.in_flight, 0, "something stays in the log");
        let named: Vec<String> = report.disagreements.iter().map(ToString::to_string).collect();
        assert!(named.is_empty(), "Redis and Postgres disagree:\n{}", named.join("\n"));
    }
}

/// The time, for test data; what is under test gets its clock passed in.
pub fn now() -> DateTime<Utc> {
    Clock::System.now()
}

/// State that the doors of a process share, by these settings; its tokens are those of the tests.
pub fn http_state(app: Arc<App>, config: &Config) -> HttpState {
    let tokens = Tokens::configured(&config.stores, &SecretString::from(SECRET));
    HttpState::new(app, config, tokens)
}

/// A client of any service, whose requests have a bound.
pub fn client() -> reqwest::Client {
    // A connection that has been idle for long is about to be closed by the service, and a request that meets the close
    // has no reply.
    let idle = limits::HEADER_READ_TIMEOUT / 2;
    let client = reqwest::Client::builder().timeout(patience()).pool_idle_timeout(idle);
    client.build().expect("a client")
}

/// A user's token.
pub fn token(user: i64) -> String {
    issue(Grants::user(user))
}

/// An administrator's token.
pub fn admin_token() -> String {
    admin_token_of(1)
}

/// The same, of this administrator.
pub fn admin_token_of(subject: i64) -> String {
    issue(Grants::administrator(subject))
}

pub fn scoped_token(subject: i64, scope: Scope) -> String {
    issue(Grants { subject, scope: Some(scope) })
}

fn issue(grants: Grants) -> String {
    let tokens = Tokens::new(&SecretString::from(SECRET));
    tokens.issue(grants, now() + TimeDelta::hours(1))
}

pub fn user(id: i64) -> UserId {
    UserId::new(id).expect("a positive number")
}
