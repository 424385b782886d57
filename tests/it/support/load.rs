//! Clients that go on claiming while something is done to the service, and remember what they were told.
//!
//! Each client takes one user after the other, and stays with a user until the service has said what became
//! of the claim: no answer, and 503, mean *unknown*, and it asks again. So at the end every user of the
//! history has an order, and what was unknown on the way is counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flash_sale::store::ids::CouponId;
use reqwest::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::process::order_id;
use super::{eventually, patience_of, token};

/// Between two claims of a client: the load is steady and leaves room for what is under test.
const PACE: Duration = Duration::from_millis(2);
/// Before a client asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long a service may leave a user without an answer; only a bug takes this long.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Clients at work.
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<BTreeMap<i64, i64>>,
}

struct Shared {
    coupon: CouponId,
    client: Client,
    /// Where the next claims go, in turn.
    urls: Mutex<Vec<String>>,
    stop: AtomicBool,
    accepted: AtomicUsize,
    unknown: AtomicUsize,
    /// The answers that told something: when they came, and after what time.
    told: Mutex<Vec<(Instant, Duration)>>,
}

/// What all clients together were told.
pub struct History {
    /// User id -> order id.
    pub promised: BTreeMap<i64, i64>,
    /// Claims that were answered 202.
    pub accepted: usize,
    /// Claims that were answered 503, or not at all.
    pub unknown: usize,
    /// The slowest answer of the others.
    pub slowest: Duration,
    /// The time within which 99 of 100 of them came.
    pub p99: Duration,
}

impl Load {
    /// `clients` clients claim `coupon` at the API under `url`, for users 1, 2, 3 ...
    pub fn start(url: &str, coupon: CouponId, clients: i64) -> Self {
        let shared = Arc::new(Shared {
            coupon,
            client: Client::builder().timeout(patience_of(ANSWER_MAX)).build().expect("a client"),
            urls: Mutex::new(vec![url.to_owned()]),
            stop: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            unknown: AtomicUsize::new(0),
            told: Mutex::default(),
        });
        let step = usize::try_from(clients).expect("a few");
        let mut tasks = JoinSet::new();
        for first in 1..=clients {
            let shared = shared.clone();
            tasks.spawn(async move {
                let mut promised = BTreeMap::new();
                for user in (first..).step_by(step) {
                    if shared.stop.load(Ordering::SeqCst) {
                        break;
                    }
                    promised.insert(user, shared.claim_until_told(user).await);
                    sleep(PACE).await;
                }
                promised
            });
        }
        Self { shared, clients: tasks }
    }

    /// From now on claims go to these.
    pub fn send_to(&self, urls: Vec<String>) {
        assert!(!urls.is_empty(), "somebody has to answer");
        *self.shared.urls.lock().expect("no holder of this lock panics") = urls;
    }

    /// Claims that were answered 202 so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Claims that were answered 503 so far, or not at all.
    pub fn unknown(&self) -> usize {
        self.shared.unknown.load(Ordering::SeqCst)
    }

    /// The longest time without an answer that told something, from the last one before `from` on until now.
    pub fn silence_since(&self, from: Instant) -> Duration {
        let told = self.shared.told.lock().expect("no holder of this lock panics");
        let mut times: Vec<Instant> = told.iter().map(|(at, _)| *at).collect();
        times.push(Instant::now());
        times.sort_unstable();
        let gaps = times.windows(2).filter(|gap| gap[1] > from).map(|gap| gap[1] - gap[0]);
        gaps.max().unwrap_or_default()
    }

    /// Waits until so many more have been accepted.
    pub async fn accepts(&self, more: usize) {
        let before = self.accepted();
        eventually("claims are accepted", async || self.accepted() >= before + more).await;
    }

    /// Lets every client finish the user it has in hand.
    pub async fn finish(self) -> History {
        self.shared.stop.store(true, Ordering::SeqCst);
        let promised = self.clients.join_all().await.into_iter().flatten().collect();
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        let told = self.shared.told.lock().expect("no holder of this lock panics");
        let mut times: Vec<Duration> = told.iter().map(|(_, time)| *time).collect();
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 100).or(times.last());
        History {
            promised,
            accepted: count(&self.shared.accepted),
            unknown: count(&self.shared.unknown),
            slowest: at(100).copied().unwrap_or_default(),
            p99: at(99).copied().unwrap_or_default(),
        }
    }
}

impl Shared {
    /// The order id that this user gets; whatever is unknown on the way is asked again.
    async fn claim_until_told(&self, user: i64) -> i64 {
        let deadline = Instant::now() + patience_of(ANSWER_MAX);
        while Instant::now() < deadline {
            let asked = Instant::now();
            let reply = self.claim(user).await;
            if let Some((202 | 409, _)) = reply {
                let told = (Instant::now(), asked.elapsed());
                self.told.lock().expect("no holder of this lock panics").push(told);
            }
            match reply {
                Some((202, body)) => {
                    self.accepted.fetch_add(1, Ordering::SeqCst);
                    return order_id(&body);
                }
                Some((409, body)) => {
                    assert_eq!(body["code"], "already_claimed", "user {user}");
                    return order_id(&body);
                }
                None | Some((503, _)) => {
                    self.unknown.fetch_add(1, Ordering::SeqCst);
                    sleep(RETRY_PAUSE).await;
                }
                Some((status, body)) => panic!("user {user} was told {status} {body}"),
            }
        }
        panic!("user {user} was never told");
    }

    /// Status and body; `None` without a complete reply.
    async fn claim(&self, user: i64) -> Option<(u16, Value)> {
        let url = {
            let urls = self.urls.lock().expect("no holder of this lock panics");
            urls[usize::try_from(user).expect("positive") % urls.len()].clone()
        };
        let request = self.client.post(format!("{url}/v1/coupons/{}/claims", self.coupon));
        let reply = request.bearer_auth(token(user)).send().await.ok()?;
        let status = reply.status().as_u16();
        Some((status, reply.json().await.ok()?))
    }
}
