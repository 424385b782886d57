//! Money under crashes: payers, gateway faults and jobs in an order that a seed decides, while `serve` and the gateway
//! are killed (SIGKILL) and started again. At the end every cent that the gateway took is the accepted payment of
//! exactly one order, or went back once.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use flash_sale::store::ids::CouponId;
use private_servers::testing;
use sample_gateway::{Entry, Faults, Sample, Settings, State};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use crate::support::process::Process;
use crate::support::{Bounded, SECRET, TestApp, eventually};

/// Variable by which a child knows that it is the gateway: port, callback URL and file of the books.
const CHILD: &str = "SAMPLE_GATEWAY_OF_A_TEST";
const USERS: i64 = 8;
const STEPS: u64 = 40;

#[tokio::test]
async fn no_cent_is_lost_when_the_service_and_the_gateway_are_killed() {
    for seed in [1, 2, 3] {
        run(seed).await;
    }
}

#[tokio::test]
#[ignore = "long: make faults"]
async fn long_no_cent_is_lost_under_forty_more_seeds() {
    for seed in 100..140 {
        run(seed).await;
    }
}

/// The gateway of the tests above, in a process of its own.
#[tokio::test]
#[ignore = "a child of the tests above"]
async fn the_child_is_the_gateway() {
    let Some((port, callback_url, books)) = child() else {
        return;
    };
    let listener = loop {
        // Another test may have the port for a moment.
        match TcpListener::bind(("127.0.0.1", port)).await {
            Ok(listener) => break listener,
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    };
    let (secret, faults) = (SECRET.to_owned(), Faults::default());
    let settings = Settings { secret, callback_url, books: Some(books), faults };
    let gateway = Sample::start(listener, settings).expect("the books can be read");
    println!("child: takes requests at {}", gateway.url());
    std::future::pending::<()>().await;
}

#[expect(clippy::disallowed_methods, reason = "how a child knows that it is one")]
fn child() -> Option<(u16, String, PathBuf)> {
    let told = std::env::var(CHILD).ok()?;
    let mut words = told.splitn(3, ' ');
    let port = words.next()?.parse().ok()?;
    Some((port, words.next()?.to_owned(), words.next()?.into()))
}

/// Numbers that a seed decides (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).expect("less than the bound")
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// The gateway, as a process that can be killed.
struct Gateway {
    process: testing::Process,
    port: u16,
    books: PathBuf,
    faults: Faults,
}

impl Gateway {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let books = std::env::temp_dir().join(format!("books-{}.json", Uuid::new_v4().simple()));
        let process = Self::spawn(port, "http://127.0.0.1:9/", &books).await;
        Self { process, port, books, faults: Faults::default() }
    }

    async fn spawn(port: u16, callback_url: &str, books: &std::path::Path) -> testing::Process {
        let mut command = Command::new(std::env::current_exe().expect("this program runs"));
        let child = "payment::crashes::the_child_is_the_gateway";
        command.args(["--exact", child, "--ignored", "--nocapture"]);
        command.env(CHILD, format!("{port} {callback_url} {}", books.display()));
        let process = testing::Process::spawn(command);
        process.printed("child: takes requests").await;
        process
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// SIGKILL; the next one goes on with its books, and without its faults.
    async fn kill_and_start(&mut self, callback_url: &str) {
        self.process.kill();
        self.process = Self::spawn(self.port, callback_url, &self.books).await;
        self.faults = Faults::default();
    }

    async fn post(&self, app: &TestApp, path: &str, body: &serde_json::Value) {
        let request = app.client().post(self.url() + path).json(body);
        let reply = request.send().await.expect("the gateway answers");
        assert!(reply.status().is_success(), "{path}: {reply:?}");
    }

    async fn set_faults(&mut self, app: &TestApp, faults: Faults) {
        self.faults = faults;
        self.post(app, "/faults", &serde_json::to_value(faults).expect("a few flags")).await;
    }

    async fn entries(&self, app: &TestApp) -> Vec<Entry> {
        let reply = app.client().get(self.url() + "/books").send().await;
        reply.expect("the gateway answers").json().await.expect("a list")
    }

    /// Callbacks that the service has not answered, among them chargebacks, which no request asks for.
    async fn untold(&self, app: &TestApp) -> usize {
        let reply = app.client().get(self.url() + "/untold").send().await;
        reply.expect("the gateway answers").json().await.expect("a number")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.books);
    }
}

/// A shop whose service and gateway may be killed. The service under `app` is there for claims and for looks at the
/// stores, and the requests of payers and of the gateway go to the process.
struct Shop {
    // Ends before its stores.
    service: Process,
    gateway: Gateway,
    app: TestApp,
    coupon: CouponId,
    url: String,
    orders: Vec<(i64, i64)>,
    /// Requests on their way, which a kill may cut.
    requests: JoinSet<()>,
}

fn arguments(gateway: &Gateway) -> Vec<String> {
    let url = gateway.url();
    let words =
        ["--payment-callback-secret", SECRET, "--gateway-url", &url, "--gateway-timeout-ms"];
    words.into_iter().chain(["10000"]).map(str::to_owned).collect()
}

impl Shop {
    async fn open() -> Self {
        let gateway = Gateway::start().await;
        let arguments = arguments(&gateway);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let app = TestApp::without_in_process_gateway(&words).await;
        let coupon = app.create_flash(USERS).await;
        let service = Process::serve(&app, &words);
        let url = service.url().await;
        let (orders, requests) = (Vec::new(), JoinSet::new());
        let shop = Self { service, gateway, app, coupon, url, orders, requests };
        shop.tell_the_gateway().await;
        shop
    }

    fn callback_url(&self) -> String {
        format!("{}/v1/payments/callback", self.url)
    }

    async fn tell_the_gateway(&self) {
        self.gateway.post(&self.app, "/callback-url", &json!(self.callback_url())).await;
    }

    async fn kill_the_service(&mut self) {
        self.service.kill();
        let arguments = arguments(&self.gateway);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.service = Process::serve(&self.app, &words);
        self.url = self.service.url().await;
        self.tell_the_gateway().await;
    }

    /// Sends a request, and waits for no answer.
    fn send(&mut self, request: reqwest::RequestBuilder) {
        self.requests.spawn(async move {
            let _ = request.send().await;
        });
    }

    fn act(&mut self, (user, order): (i64, i64), action: &str) {
        let path = format!("{}/v1/orders/{order}/{action}", self.url);
        let request = self.app.client().post(path).bearer_auth(self.app.token(user));
        let request = match action {
            "pay" => request.json(&json!({"method": "balance"})),
            _ => request,
        };
        self.send(request);
    }

    /// One job over payments, as if each were due.
    async fn run_once(&self) {
        self.app.let_postponed_be_due().await;
        self.app
            .execute(
                "UPDATE opened_payments SET next_check_at = now();
                 UPDATE payments SET next_check_at = now() WHERE next_check_at < 'infinity';
                 UPDATE payments SET refund_asked_at = now() - interval '1 hour'
                 WHERE status = 'refunding' AND refund_asked_at IS NOT NULL",
            )
            .await;
        let _ = self.app.app.payments.refund_job().bounded().await;
    }

    async fn step(&mut self, dice: &mut Dice) {
        let order = match self.orders.is_empty() {
            true => None,
            false => Some(self.orders[dice.below(self.orders.len())]),
        };
        match (dice.below(21), order) {
            (0..=1, _) | (_, None) => self.claim().await,
            (2..=6, Some(order)) => self.act(order, "pay"),
            (7..=9, _) => self.pay_at_the_gateway(dice).await,
            (10, Some(order)) => self.act(order, "cancel"),
            (11, Some(order)) => self.act(order, "refund"),
            (12, Some((_, order))) => {
                self.app.let_time_pass_for(order).await;
                self.app.expire().await;
            }
            (13, _) => self.charge_back(dice).await,
            (20, _) => self.close_at_the_gateway(dice).await,
            (14, Some((_, order))) => self.pay_unopened(order).await,
            (15..=16, _) => self.gateway.set_faults(&self.app, faults(dice)).await,
            (17, _) => self.kill_the_service().await,
            (18, _) => {
                let callback_url = self.callback_url();
                self.gateway.kill_and_start(&callback_url).await;
            }
            (_, _) => self.run_once().bounded().await,
        }
        // A kill cuts what is under way then.
        if dice.flip() {
            while self.requests.join_next().await.is_some() {}
        }
    }

    async fn claim(&mut self) {
        let user = i64::try_from(self.orders.len()).expect("a few") + 1;
        if user <= USERS {
            let claimed = self.app.claim(user, self.coupon).await;
            assert_eq!(claimed.status, 202, "{claimed:?}");
            self.orders.push((user, claimed.order_id()));
        }
    }

    async fn pay_at_the_gateway(&mut self, dice: &mut Dice) {
        let entries = self.gateway.entries(&self.app).await;
        let open: Vec<_> = entries.iter().filter(|entry| entry.state == State::Open).collect();
        if !open.is_empty() {
            let page = format!("/pay/{}", open[dice.below(open.len())].payment_id);
            self.send(self.app.client().get(self.gateway.url() + &page));
        }
    }

    async fn close_at_the_gateway(&mut self, dice: &mut Dice) {
        let entries = self.gateway.entries(&self.app).await;
        let open: Vec<_> = entries.iter().filter(|entry| entry.state == State::Open).collect();
        if !open.is_empty() {
            let path = format!("/close/{}", open[dice.below(open.len())].payment_id);
            self.gateway.post(&self.app, &path, &json!({})).await;
        }
    }

    /// A chargeback of which nothing is told can't be known.
    async fn charge_back(&mut self, dice: &mut Dice) {
        let entries = self.gateway.entries(&self.app).await;
        let paid: Vec<_> = entries.iter().filter(|entry| entry.state == State::Paid).collect();
        if !paid.is_empty() && !self.gateway.faults.confirms_nothing {
            let path = format!("/charge-back/{}", paid[dice.below(paid.len())].payment_id);
            self.gateway.post(&self.app, &path, &json!({})).await;
        }
    }

    async fn pay_unopened(&mut self, order: i64) {
        let key = Uuid::new_v4().to_string();
        let body = json!({"key": key, "order_id": order.to_string(), "method": "wechat", "amount_cents": 1,
                          "currency": "CNY"});
        self.gateway.post(&self.app, "/unopened", &body).await;
    }

    /// All callbacks are answered, all that the gateway took has its row, and nothing waits any more.
    async fn comes_to_rest(&mut self) {
        while self.requests.join_next().await.is_some() {}
        self.gateway.set_faults(&self.app, Faults::default()).await;
        for (user, order) in self.orders.clone() {
            let is_written = async || self.app.show(user, order).await.status == 200;
            eventually("the order is written", is_written).await;
        }
        eventually("the end of all refunds", async || {
            self.run_once().bounded().await;
            if self.gateway.untold(&self.app).await > 0 {
                return false;
            }
            let entries = self.gateway.entries(&self.app).await;
            let taken = entries.iter().filter(|entry| entry.state.was_paid()).count();
            let noted = self.app.number("SELECT count(*) FROM payments").await;
            let waiting = "SELECT count(*) FROM payments WHERE status IN ('refunding', 'held')";
            usize::try_from(noted) == Ok(taken) && self.app.number(waiting).await == 0
        })
        .await;
    }

    async fn assert_no_cent_is_lost(&self, seed: u64) {
        for entry in self.gateway.entries(&self.app).await {
            let Entry { payment_id, order_id, state, amount_cents, refunds, .. } = &entry;
            assert!(*refunds <= 1, "seed {seed}: {payment_id} went back {refunds} times");
            let of_it = format!(
                "FROM payments JOIN orders ON orders.id = order_id
                 WHERE gateway_payment_id = '{payment_id}' AND order_id = {order_id}
                   AND amount_cents = {amount_cents}"
            );
            let accepted = "AND payments.status = 'accepted' AND orders.status = 'paid'";
            let accepted = self.app.number(&format!("SELECT count(*) {of_it} {accepted}")).await;
            let back = "AND payments.status = 'refunded'";
            let back = self.app.number(&format!("SELECT count(*) {of_it} {back}")).await;
            let wanted = match state {
                State::Open | State::Closed => (0, 0),
                State::Paid => (1, 0),
                State::Refunding | State::Refunded => (0, 1),
            };
            assert_eq!((accepted, back), wanted, "seed {seed}: {entry:?}");
        }
        let twice = "SELECT count(*) FROM (SELECT order_id FROM payments WHERE status = 'accepted'
                                           GROUP BY order_id HAVING count(*) > 1) AS twice";
        assert_eq!(self.app.number(twice).await, 0, "seed {seed}");
    }
}

/// Some faults. Money that was taken without a request of the shop is known by its callback only, so faults that take
/// such money come without the one that keeps silent.
fn faults(dice: &mut Dice) -> Faults {
    let is_silent = dice.below(3) == 0;
    Faults {
        slow_ms: [0, 0, 20][dice.below(3)],
        loses_answers: dice.below(3) == 0,
        fails_at: [None, None, Some(1 + dice.below(8))][dice.below(3)],
        signs_wrongly: dice.below(6) == 0,
        refuses: dice.below(6) == 0,
        takes_twice: !is_silent && dice.below(4) == 0,
        takes_more: dice.below(6) == 0,
        takes_foreign: dice.below(6) == 0,
        takes_unopened: !is_silent && dice.flip(),
        confirms_early: dice.below(3) == 0,
        confirms_twice: dice.below(3) == 0,
        confirms_nothing: is_silent,
        refunds_later: dice.flip(),
    }
}

async fn run(seed: u64) {
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut shop = Shop::open().await;
    for _ in 0..STEPS {
        shop.step(&mut dice).await;
    }
    shop.comes_to_rest().await;
    shop.assert_no_cent_is_lost(seed).await;
    shop.service.kill();
}
