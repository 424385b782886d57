//! A crowd that claims at all live APIs while these are replaced, and remembers the last word about each claim.
//!
//! A client takes one user after the other, and claims each of the coupons for that user. A client stays with a claim
//! until an API has told its outcome: after no answer, and after 503, the client asks again, at the next API. Every
//! fourth buyer asks once more, at the next API, and has to be told the same order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::process::order_id;
use crate::support::{eventually, token};

/// Clients at one time.
const CLIENTS: i64 = 8;
/// First user of the crowd.
pub const USER_MIN: i64 = 1_000;
/// Of so many buyers one asks again.
const REPEAT_EVERY: i64 = 4;
/// Pause of a client between two users: the load is steady and leaves room for the processes under test.
const PACE: Duration = Duration::from_millis(4);
/// Pause before a client asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Time in which an API has to tell the outcome of a claim; only a bug exceeds it.
const OUTCOME_MAX: Duration = Duration::from_secs(120);

/// Clients at work.
pub struct Crowd {
    shared: Arc<Shared>,
    clients: JoinSet<Vec<Told>>,
}

struct Shared {
    coupons: Vec<i64>,
    client: reqwest::Client,
    /// Addresses of the APIs that get the next claims, in turn.
    urls: Mutex<Vec<String>>,
    turn: AtomicUsize,
    stop: AtomicBool,
    accepted: AtomicUsize,
    sold_out: AtomicUsize,
    repeated: AtomicUsize,
    /// Requests without an outcome, by the reason.
    failed: Mutex<BTreeMap<String, usize>>,
}

/// The last word of the service about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    pub coupon: i64,
    pub user: i64,
    /// Id of the order; none for "sold out".
    pub order: Option<i64>,
}

/// All that the crowd was told.
pub struct History {
    pub told: Vec<Told>,
    /// Answers 202.
    pub accepted: usize,
    /// Questions of buyers that knew their order, each of which was told the same order again.
    pub repeated: usize,
    /// Requests without an outcome, by the reason.
    pub failed: BTreeMap<String, usize>,
}

impl Crowd {
    /// Clients that claim these coupons at these APIs.
    pub fn start(urls: Vec<String>, coupons: &[i64]) -> Self {
        let shared = Arc::new(Shared {
            coupons: coupons.to_vec(),
            client: crate::support::client(),
            urls: Mutex::new(urls),
            turn: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            sold_out: AtomicUsize::new(0),
            repeated: AtomicUsize::new(0),
            failed: Mutex::default(),
        });
        let mut clients = JoinSet::new();
        for first in USER_MIN..USER_MIN + CLIENTS {
            clients.spawn(shared.clone().claim_for_users_from(first));
        }
        Self { shared, clients }
    }

    /// From now on claims go to these; to the former ones if there are none.
    pub fn send_to(&self, urls: Vec<String>) {
        if !urls.is_empty() {
            *self.shared.urls.lock().expect("no holder panics") = urls;
        }
    }

    /// Claims that were answered 202 so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Requests without an outcome so far.
    pub fn failed(&self) -> usize {
        self.shared.failed.lock().expect("no holder panics").values().sum()
    }

    /// Waits until so many more have been accepted.
    pub async fn accepts(&self, more: usize) {
        let before = self.accepted();
        eventually("claims are accepted", async || self.accepted() >= before + more).await;
    }

    /// Waits until a coupon is sold out.
    pub async fn meets_a_sold_out_sale(&self) {
        let sold_out = &self.shared.sold_out;
        eventually("a sale is sold out", async || sold_out.load(Ordering::SeqCst) > 0).await;
    }

    /// Lets every client finish the user it has in hand.
    pub async fn finish(self) -> History {
        self.shared.stop.store(true, Ordering::SeqCst);
        let told = self.clients.join_all().await.into_iter().flatten().collect();
        let failed = self.shared.failed.lock().expect("no holder panics").clone();
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        let accepted = count(&self.shared.accepted);
        History { told, accepted, repeated: count(&self.shared.repeated), failed }
    }
}

impl Shared {
    async fn claim_for_users_from(self: Arc<Self>, first: i64) -> Vec<Told> {
        let mut told = Vec::new();
        let step = usize::try_from(CLIENTS).expect("a few");
        for user in (first..).step_by(step) {
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
            for coupon in &self.coupons {
                told.push(self.claim(*coupon, user).await);
            }
            sleep(PACE).await;
        }
        told
    }

    async fn claim(&self, coupon: i64, user: i64) -> Told {
        let order = self.ask_until_told(coupon, user).await;
        if order.is_some() && user % REPEAT_EVERY == 0 {
            let again = self.ask_until_told(coupon, user).await;
            assert_eq!(again, order, "user {user} of coupon {coupon} was told another order");
            self.repeated.fetch_add(1, Ordering::SeqCst);
        }
        Told { coupon, user, order }
    }

    /// The order id of a claim; none if its sale is sold out.
    async fn ask_until_told(&self, coupon: i64, user: i64) -> Option<i64> {
        let deadline = Instant::now() + OUTCOME_MAX;
        while Instant::now() < deadline {
            let why = match self.ask(coupon, user).await {
                Some((202, body)) => {
                    self.accepted.fetch_add(1, Ordering::SeqCst);
                    return Some(order_id(&body));
                }
                Some((409, body)) if body["code"] == "already_claimed" => {
                    return Some(order_id(&body));
                }
                Some((410, body)) if body["code"] == "sold_out" => {
                    self.sold_out.fetch_add(1, Ordering::SeqCst);
                    return None;
                }
                Some((503, body)) => format!("503 {}", body["code"].as_str().unwrap_or_default()),
                None => "no answer".to_owned(),
                Some((status, body)) => panic!("user {user} was told {status} {body}"),
            };
            *self.failed.lock().expect("no holder panics").entry(why).or_default() += 1;
            sleep(RETRY_PAUSE).await;
        }
        panic!("user {user} was never told the outcome of a claim on coupon {coupon}");
    }

    /// Status and body of the reply to a claim at the next API; none without a complete reply.
    async fn ask(&self, coupon: i64, user: i64) -> Option<(u16, Value)> {
        let url = {
            let urls = self.urls.lock().expect("no holder panics");
            urls[self.turn.fetch_add(1, Ordering::SeqCst) % urls.len()].clone()
        };
        let request = self.client.post(format!("{url}/v1/coupons/{coupon}/claims"));
        let reply = request.timeout(OUTCOME_MAX / 4).bearer_auth(token(user)).send().await.ok()?;
        let status = reply.status().as_u16();
        Some((status, reply.json().await.ok()?))
    }
}
