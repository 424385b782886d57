//! Shoppers that arrive evenly and send claims over HTTP until they have an answer. They are counted in the order of
//! their answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::body::{Body, to_bytes};
use axum::http::uri::Authority;
use axum::http::{Request, StatusCode, header};
use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use futures_util::future::OptionFuture;
use futures_util::{StreamExt, stream};
use garde::Validate;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use utoipa::ToSchema;

use super::naive::Naive;
use crate::base::limits;
use crate::kit::jwt::Grants;
use crate::store::ids::{CouponId, OrderId, UserId};

/// A storm as it is asked for.
#[derive(Args, Clone, Copy, Debug, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Shoppers, each a user of their own.
    #[arg(long, default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::STORM_SHOPPERS_MAX)))]
    #[garde(range(min = 1, max = limits::STORM_SHOPPERS_MAX))]
    #[schema(minimum = 1, maximum = 100_000)]
    pub shoppers: u32,
    /// Units on sale.
    #[arg(long, default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::STORM_SHOPPERS_MAX)))]
    #[garde(range(min = 1, max = limits::STORM_SHOPPERS_MAX))]
    #[schema(minimum = 1, maximum = 100_000)]
    pub stock: u32,
    /// Seconds in which the shoppers arrive, evenly; 0: all at once.
    #[arg(long = "over", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(..=i64::from(limits::STORM_SECONDS_MAX)))]
    #[garde(range(max = limits::STORM_SECONDS_MAX))]
    #[schema(maximum = 60)]
    pub over_s: u32,
    /// Shoppers of a hundred that ask once more after their answer.
    #[arg(long = "twice", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=100))]
    #[garde(range(max = 100))]
    #[schema(maximum = 100)]
    pub twice_percent: u32,
}

/// Issues a token that the service accepts.
pub type Issue = Arc<dyn Fn(Grants, DateTime<Utc>) -> String + Send + Sync>;

pub struct Crowd {
    client: Client<HttpConnector, Body>,
    url: String,
    issue: Issue,
    plan: Plan,
    began_at: DateTime<Utc>,
    told: Mutex<Told>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Got an order.
    Won,
    SoldOut,
    /// Was asked to come back until its patience ended.
    ComeBack,
    /// Never learnt whether its claim was accepted.
    Unknown,
    /// Was refused for another reason.
    Refused,
}

/// Answers to shoppers that repeated their claim after the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repeats {
    /// Shoppers that got the same answer again.
    pub same: u64,
    /// Shoppers that were told a different order than before. That breaks a promise.
    pub other: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Accepted orders, each with its shopper.
    pub orders: Vec<(OrderId, UserId)>,
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Outcomes in the order of the answers, run-length encoded.
    pub runs: Vec<(Outcome, u32)>,
    pub repeats: Repeats,
    /// Order of the last traced winner, whose claim can be followed through the service.
    pub followed: Option<OrderId>,
    /// Time from the first shopper to the first "sold out".
    pub sold_out_ms: Option<u64>,
    /// Time from each shopper's planned arrival to its final answer, in microseconds.
    pub waited_us: Vec<u64>,
}

enum Answer {
    Order(OrderId),
    SoldOut,
    /// Come back after this time. The claim was not executed.
    ComeBack(Duration),
    /// There was no answer, or none that says whether the claim was executed. Retry after this time.
    Unknown(Duration),
    Refused,
}

/// Pause before a request without an answer is repeated.
const PAUSE: Duration = Duration::from_millis(250);

/// Traced claims: those of the first shoppers, and then one in this many. So among the newest winners of any storm
/// there is a claim that can be followed.
const TRACED: (u32, u32) = (limits::STORM_CONNECTIONS_MAX as u32, 100);

impl Crowd {
    /// A crowd for the service at this address.
    pub fn new(service: &Authority, issue: Issue, plan: Plan, began_at: DateTime<Utc>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(limits::STORM_CONNECTIONS_MAX)
            .build(connector);
        let url = format!("http://{service}");
        Self { client, url, issue, plan, began_at, told: Mutex::default() }
    }

    /// Creates the sale of the storm, as an administrator. Its window outlasts the patience of any crowd. It is still
    /// short, so that the sale of a storm that was killed isn't offered to shoppers for long.
    pub async fn open_sale(&self) -> anyhow::Result<CouponId> {
        let (opens_at, closes_at) = (self.began_at, self.began_at + TimeDelta::minutes(5));
        let sale = json!({"total": self.plan.stock, "opens_at": opens_at, "closes_at": closes_at});
        let coupon = json!({
            "kind": "flash", "title": "A storm", "pay_cents": 100, "value_cents": 200, "sale": sale,
        });
        let sent = self.post("/v1/coupons", &coupon).await;
        let (status, body) = sent.with_context(|| format!("no service answers at {}", self.url))?;
        if status != StatusCode::CREATED {
            bail!("the sale could not be made: {status} {}", body["detail"]);
        }
        Ok(serde_json::from_value(body["id"].clone())?)
    }

    /// Ends the sale, so that no later buyer comes across it.
    pub async fn end_sale(&self, coupon: CouponId) -> anyhow::Result<()> {
        let (status, body) = self.post(&format!("/v1/coupons/{coupon}/end"), &json!({})).await?;
        if !status.is_success() {
            bail!("{status} {}", body["detail"]);
        }
        Ok(())
    }

    /// Runs all shoppers, at most [`limits::STORM_CONNECTIONS_MAX`] at a time. Each also asks the naive design, at the
    /// same moment.
    pub async fn shop(&self, coupon: CouponId, naive: Option<&Naive>) {
        let (path, start) = (format!("/v1/coupons/{coupon}/claims"), Instant::now());
        let shoppers = stream::iter(0..self.plan.shoppers);
        let shop = |number| self.shopper(&path, number, start, naive);
        shoppers.for_each_concurrent(limits::STORM_CONNECTIONS_MAX, shop).await;
    }

    /// Everything that the crowd has been told so far.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("no holder of this lock panics")
    }

    async fn shopper(&self, path: &str, number: u32, start: Instant, naive: Option<&Naive>) {
        let over = Duration::from_secs(self.plan.over_s.into());
        let due = start + over.mul_f64(f64::from(number) / f64::from(self.plan.shoppers));
        sleep_until(due).await;
        // Ids that no other crowd and no shopper of a demo has used.
        let first = self.began_at.timestamp_millis() * i64::from(limits::STORM_SHOPPERS_MAX);
        let user = UserId::new(first + i64::from(number)).expect("it is positive");
        let token = self.token(Grants::user(user.get()));
        let until = start + over + limits::STORM_PATIENCE;
        let is_traced = number < TRACED.0 || number.is_multiple_of(TRACED.1);
        let naive = OptionFuture::from(naive.map(Naive::buy));
        let ((outcome, order), _) = tokio::join!(self.ask(path, &token, is_traced, until), naive);
        {
            let mut told = self.told();
            told.note(outcome, order.map(|order| (order, user)));
            told.waited_us.push(micros(due.elapsed()));
            if outcome == Outcome::SoldOut {
                told.sold_out_ms.get_or_insert(micros(start.elapsed()) / 1_000);
            }
            told.followed = order.filter(|_| is_traced).or(told.followed);
        }
        // Spreads the shoppers that repeat their claim over the crowd.
        if number.wrapping_mul(37) % 100 >= self.plan.twice_percent {
            return;
        }
        let again = self.ask(path, &token, false, until).await;
        self.told().note_repeat(order, again, user);
    }

    /// Claims until there is an answer, or patience ends.
    async fn ask(
        &self,
        path: &str,
        token: &str,
        is_traced: bool,
        until: Instant,
    ) -> (Outcome, Option<OrderId>) {
        let mut outcome = Outcome::ComeBack;
        while Instant::now() < until {
            let pause = match self.claim(path, token, is_traced).await {
                Answer::Order(order) => return (Outcome::Won, Some(order)),
                Answer::SoldOut => return (Outcome::SoldOut, None),
                Answer::Refused => return (Outcome::Refused, None),
                Answer::ComeBack(pause) => pause,
                Answer::Unknown(pause) => {
                    outcome = Outcome::Unknown;
                    pause
                }
            };
            sleep(pause).await;
        }
        (outcome, None)
    }

    async fn claim(&self, path: &str, token: &str, is_traced: bool) -> Answer {
        let trace = if is_traced { "1" } else { "0" };
        let request = Request::post(format!("{}{path}", self.url)).header("x-trace", trace);
        let Ok((status, body)) = self.send(request, token, Body::empty()).await else {
            return Answer::Unknown(PAUSE);
        };
        if let Ok(order) = serde_json::from_value(body["order_id"].clone()) {
            return Answer::Order(order);
        }
        let again = body["retry_after_ms"].as_u64().map_or(PAUSE, Duration::from_millis);
        let again = again.min(limits::STORM_PAUSE_MAX);
        match (status.as_u16(), body["code"].as_str().unwrap_or_default()) {
            (_, "sold_out") => Answer::SoldOut,
            (_, "overloaded" | "rate_limited" | "sale_not_started") => Answer::ComeBack(again),
            (500.., _) => Answer::Unknown(again),
            _ => Answer::Refused,
        }
    }

    fn token(&self, grants: Grants) -> String {
        (self.issue)(grants, self.began_at + TimeDelta::hours(1))
    }

    /// Sends a request as an administrator.
    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<(StatusCode, Value)> {
        let request = Request::post(format!("{}{path}", self.url))
            .header(header::CONTENT_TYPE, "application/json");
        self.send(request, &self.token(Grants::administrator(1)), body.to_string().into()).await
    }

    async fn send(
        &self,
        request: axum::http::request::Builder,
        token: &str,
        body: Body,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let request =
            request.header(header::AUTHORIZATION, format!("Bearer {token}")).body(body)?;
        timeout(limits::STORM_REQUEST_MAX, async {
            let reply = self.client.request(request).await?;
            let status = reply.status();
            let bytes = to_bytes(Body::new(reply.into_body()), limits::BODY_BYTES_MAX).await?;
            Ok((status, serde_json::from_slice(&bytes)?))
        })
        .await?
    }
}

impl Told {
    /// Shoppers that have their final answer.
    pub fn answered(&self) -> u64 {
        self.outcomes.values().sum()
    }

    fn note(&mut self, outcome: Outcome, promise: Option<(OrderId, UserId)>) {
        *self.outcomes.entry(outcome).or_default() += 1;
        match self.runs.last_mut() {
            Some((last, count)) if *last == outcome => *count += 1,
            _ => self.runs.push((outcome, 1)),
        }
        self.orders.extend(promise);
    }

    /// Records the answer to a repeated claim.
    fn note_repeat(
        &mut self,
        order: Option<OrderId>,
        again: (Outcome, Option<OrderId>),
        user: UserId,
    ) {
        match (order, again) {
            // A missing answer, now or before, contradicts nothing.
            (_, (Outcome::ComeBack | Outcome::Unknown, _)) => {}
            (Some(_), (_, later)) if later != order => self.repeats.other += 1,
            // A unit came back, or the first answer was missing.
            (None, (Outcome::Won, later)) => {
                self.orders.extend(later.map(|order| (order, user)));
            }
            _ => self.repeats.same += 1,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_that_is_told_another_order_breaks_a_promise_and_one_without_an_answer_breaks_none()
    {
        let order = |number| OrderId::new(number).ok();
        let user = UserId::new(1).expect("an id");
        let mut told = Told::default();
        for (first, again) in [
            (order(7), (Outcome::Won, order(7))),
            (None, (Outcome::SoldOut, None)),
            (order(7), (Outcome::Won, order(8))),
            (order(7), (Outcome::SoldOut, None)),
            (order(7), (Outcome::Unknown, None)),
            (None, (Outcome::Won, order(9))),
        ] {
            told.note_repeat(first, again, user);
        }
        assert_eq!(told.repeats, Repeats { same: 2, other: 2 });
        assert_eq!(told.orders, [(order(9).expect("an id"), user)]);
    }
}
