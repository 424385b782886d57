//! The crowd: users that claim, ask, pay and cancel, and ask again when an outcome is unknown.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::http::Http;
use crate::facts::{Event, Ms, Op, Outcome};
use crate::plan::{APIS, Plan};
use crate::world::Installation;

/// First user; administrators are below.
const FIRST_USER: i64 = 1_000;
/// Pause before a client asks again, in milliseconds.
const RETRY_MS: std::ops::Range<u64> = 20..120;
/// Times that a client asks again.
const RETRIES: usize = 60;

/// Clients at work.
pub struct Crowd {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

struct Shared {
    installation: Arc<Installation>,
    http: Http,
    coupons: Vec<i64>,
    history: Mutex<Vec<Event>>,
    is_over: AtomicBool,
    pause_ms: u32,
}

/// A client: one request at a time, or two of the same user.
struct Client {
    number: usize,
    users: Vec<i64>,
    random: ChaCha8Rng,
    shared: Arc<Shared>,
    /// Orders that its users were told, by user and coupon.
    orders: BTreeMap<(i64, i64), i64>,
}

impl Crowd {
    /// Sets the clients of a plan to work on these coupons.
    pub fn start(
        plan: &Plan,
        installation: &Arc<Installation>,
        http: &Http,
        coupons: &[i64],
    ) -> Self {
        let shared = Arc::new(Shared {
            installation: installation.clone(),
            http: http.clone(),
            coupons: coupons.to_vec(),
            history: Mutex::default(),
            is_over: AtomicBool::new(false),
            pause_ms: plan.pause_ms,
        });
        let mut clients = JoinSet::new();
        for number in 0..plan.clients {
            let first = FIRST_USER + i64::try_from(number * plan.users).unwrap_or(0);
            let users = (first..).take(plan.users).collect();
            // A seed of its own for each client.
            let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
            random.set_stream(1 + number as u64);
            let client =
                Client { number, users, random, shared: shared.clone(), orders: BTreeMap::new() };
            clients.spawn(client.work());
        }
        Self { shared, clients }
    }

    /// True once a claim that was asked after this time has been answered.
    pub fn was_told_since(&self, since: Ms) -> bool {
        let history = self.shared.history.lock().expect("no holder of this lock panics");
        let told = |event: &Event| event.op == Op::Claim && event.outcome != Outcome::Unknown;
        // In the order of their completion, so older ones end the search.
        let mut since_then = history.iter().rev().take_while(|event| event.completed > since);
        since_then.any(|event| event.invoked > since && told(event))
    }

    /// Lets each client finish its request, and returns all requests with their answers.
    pub async fn finish(mut self) -> Vec<Event> {
        self.shared.is_over.store(true, Ordering::SeqCst);
        while self.clients.join_next().await.is_some() {}
        std::mem::take(&mut *self.shared.history.lock().expect("no holder of this lock panics"))
    }
}

impl Client {
    async fn work(mut self) {
        while !self.shared.is_over.load(Ordering::SeqCst) {
            self.step().await;
            let pause = self.random.random_range(0..=2 * self.shared.pause_ms);
            sleep(Duration::from_millis(u64::from(pause))).await;
        }
    }

    async fn step(&mut self) {
        let user = self.users[self.random.random_range(0..self.users.len())];
        let coupon = self.shared.coupons[self.random.random_range(0..self.shared.coupons.len())];
        let known = self.orders.get(&(user, coupon)).copied();
        let dice = self.random.random_range(0..100);
        match (known, dice) {
            (Some(order), 0..25) => self.ask(user, coupon, Op::Cancel, Some(order)).await,
            (Some(order), 25..45) => self.ask(user, coupon, Op::Pay, Some(order)).await,
            (_, 45..55) => self.ask(user, coupon, Op::Me, None).await,
            // The same user at two doors at one time.
            (_, 55..60) => self.claim_twice(user, coupon).await,
            _ => self.ask(user, coupon, Op::Claim, None).await,
        }
    }

    /// Asks until the outcome is known.
    async fn ask(&mut self, user: i64, coupon: i64, op: Op, order: Option<i64>) {
        for _ in 0..RETRIES {
            let door = self.random.random_range(0..APIS);
            let outcome =
                self.shared.clone().once(self.number, door, user, coupon, op, order).await;
            self.learn(user, coupon, op, &outcome);
            if outcome != Outcome::Unknown || self.shared.is_over.load(Ordering::SeqCst) {
                return;
            }
            sleep(Duration::from_millis(self.random.random_range(RETRY_MS))).await;
        }
    }

    async fn claim_twice(&mut self, user: i64, coupon: i64) {
        let shared = &self.shared;
        let one = shared.clone().once(self.number, 0, user, coupon, Op::Claim, None);
        let two = shared.clone().once(self.number, 1, user, coupon, Op::Claim, None);
        let (one, two) = tokio::join!(one, two);
        for outcome in [one, two] {
            self.learn(user, coupon, Op::Claim, &outcome);
        }
    }

    fn learn(&mut self, user: i64, coupon: i64, op: Op, outcome: &Outcome) {
        let pair = (user, coupon);
        match (op, outcome) {
            (Op::Claim | Op::Me, Outcome::Ok(order) | Outcome::Refused(_, Some(order))) => {
                self.orders.insert(pair, *order);
            }
            // A cancelled order is claimed again some day; a refused move means that it has moved on.
            (Op::Cancel, Outcome::Ok(_)) | (Op::Cancel | Op::Pay, Outcome::Refused(..)) => {
                self.orders.remove(&pair);
            }
            _ => {}
        }
    }
}

impl Shared {
    /// One request, noted with its answer.
    async fn once(
        self: Arc<Self>,
        client: usize,
        door: usize,
        user: i64,
        coupon: i64,
        op: Op,
        order: Option<i64>,
    ) -> Outcome {
        let time = &self.installation.time;
        let Some((url, life)) = self.installation.doors()[door].address() else {
            return Outcome::Unknown;
        };
        let order = order.unwrap_or_default();
        let (method, path, body) = match op {
            Op::Claim => (Method::POST, format!("/v1/coupons/{coupon}/claims"), None),
            Op::Me => (Method::GET, format!("/v1/coupons/{coupon}/claims/me"), None),
            Op::Pay => {
                let body = json!({"method": "balance"});
                (Method::POST, format!("/v1/orders/{order}/pay"), Some(body))
            }
            Op::Cancel => (Method::POST, format!("/v1/orders/{order}/cancel"), None),
        };
        let token = self.http.signer.user(user);
        let invoked = time.now();
        let answer = self.http.send(method, url + &path, &token, body.as_ref()).await;
        let completed = time.now();
        let outcome = answer.map_or(Outcome::Unknown, |answer| answer.outcome());
        let told = outcome.clone();
        let door = (door, life);
        let event = Event { client, user, coupon, op, door, invoked, completed, outcome };
        self.history.lock().expect("no holder of this lock panics").push(event);
        told
    }
}

/// Asks `claims/me` for each of these users and coupons until the answer is known. Returns user, coupon and order; `None`
/// for "not claimed". An answer that never came is missing.
pub async fn ask_all(
    installation: &Arc<Installation>,
    http: &Http,
    pairs: &[(i64, i64)],
) -> Vec<(i64, i64, Option<i64>)> {
    const AT_A_TIME: usize = 8;
    let mut told = Vec::with_capacity(pairs.len());
    let mut asking = JoinSet::new();
    for (user, coupon) in pairs.iter().copied() {
        let (installation, http) = (installation.clone(), http.clone());
        asking.spawn(async move { ask_one(&installation, &http, user, coupon).await });
        if asking.len() >= AT_A_TIME
            && let Some(Ok(Some(answer))) = asking.join_next().await
        {
            told.push(answer);
        }
    }
    while let Some(answer) = asking.join_next().await {
        told.extend(answer.ok().flatten());
    }
    told
}

async fn ask_one(
    installation: &Installation,
    http: &Http,
    user: i64,
    coupon: i64,
) -> Option<(i64, i64, Option<i64>)> {
    let token = http.signer.user(user);
    for door in (0..APIS).cycle().take(RETRIES) {
        if let Some((url, _)) = installation.doors()[door].address() {
            let url = format!("{url}/v1/coupons/{coupon}/claims/me");
            let answer = http.send(Method::GET, url, &token, None).await;
            match answer.map(|answer| (answer.outcome(), answer)) {
                Some((Outcome::Ok(order), _)) => return Some((user, coupon, Some(order))),
                Some((Outcome::Refused(code, _), _)) if code == "not_claimed" => {
                    return Some((user, coupon, None));
                }
                _ => {}
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
    None
}
