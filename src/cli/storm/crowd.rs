//! Shoppers that arrive evenly, ask until they have an answer, and are counted in the order of their answers.

use std::sync::Mutex;
use std::time::Duration;

use axum::http::HeaderValue;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::{Answer, Client};
use crate::base::limits;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::storm::lines::{Answers, End, Outcome, append};

/// The shoppers of a storm.
pub struct Crowd<'a> {
    client: &'a Client,
    /// Path of a claim.
    path: String,
    /// User id of the first shopper; the others follow.
    first: i64,
    /// Token of a shopper.
    token: &'a (dyn Fn(u32) -> String + Send + Sync),
    shoppers: u32,
    /// Time in which they arrive.
    over: Duration,
    /// Shoppers of a hundred that ask once more.
    twice: u32,
    start: Instant,
    tally: Mutex<Tally>,
}

/// The first shoppers ask for the times of their claims, and of the others one in so many: among the newest winners of
/// any storm there is a claim that can be followed.
const TRACED: (u32, u32) = (limits::STORM_CONNECTIONS_MAX as u32, 100);

/// Number of shoppers, and when they ask.
pub struct Habits {
    pub shoppers: u32,
    /// Time in which they arrive.
    pub over: Duration,
    /// Shoppers of a hundred that ask once more.
    pub twice: u32,
}

/// Answers so far.
#[derive(Default)]
struct Tally {
    /// Answers that have not been printed.
    fresh: Answers,
    /// Time that each shopper has waited, in microseconds.
    waited_us: Vec<u64>,
    sold_out: Option<Duration>,
    last: Duration,
}

impl<'a> Crowd<'a> {
    pub fn new(
        client: &'a Client,
        coupon: CouponId,
        (first, token): (i64, &'a (dyn Fn(u32) -> String + Send + Sync)),
        Habits { shoppers, over, twice }: Habits,
    ) -> Self {
        Self {
            client,
            path: format!("/v1/coupons/{coupon}/claims"),
            first,
            token,
            shoppers,
            over,
            twice,
            start: Instant::now(),
            tally: Mutex::default(),
        }
    }

    /// Lets all shoppers ask, as many at a time as there are connections.
    pub async fn shop(&self) {
        let shoppers = stream::iter(0..self.shoppers);
        shoppers.for_each_concurrent(self.client.connections, |number| self.shopper(number)).await;
    }

    /// The answers since the last call.
    pub fn take(&self) -> Answers {
        std::mem::take(&mut self.tally.lock().expect("no holder of this lock panics").fresh)
    }

    /// Figures of all answers.
    pub fn end(&self) -> End {
        let mut tally = self.tally.lock().expect("no holder of this lock panics");
        tally.waited_us.sort_unstable();
        let waited = &tally.waited_us;
        let of_100 = |count: usize| waited.get(waited.len() * count / 100).copied().unwrap_or(0);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        End {
            took_ms: ms(tally.last),
            sold_out_ms: tally.sold_out.map(ms),
            p50_us: of_100(50),
            p99_us: of_100(99),
        }
    }

    async fn shopper(&self, number: u32) {
        let due = self.start + self.over.mul_f64(f64::from(number) / f64::from(self.shoppers));
        sleep_until(due).await;
        let header = format!("Bearer {}", (self.token)(number));
        let header = HeaderValue::try_from(header).expect("a token is plain ASCII");
        let is_traced = number < TRACED.0 || number.is_multiple_of(TRACED.1);
        let (outcome, order) = self.ask(&header, is_traced).await;
        self.note(due, outcome, self.promise(number, order));
        // Spread over the crowd.
        if number.wrapping_mul(37) % 100 >= self.twice {
            return;
        }
        let again = self.ask(&header, false).await;
        let mut tally = self.tally.lock().expect("no holder of this lock panics");
        match (order, again) {
            // No answer, twice or once, contradicts none.
            (_, (Outcome::ComeBack | Outcome::Unknown, _)) => {}
            (Some(_), (_, later)) if later != order => tally.fresh.repeats.other += 1,
            // A unit has come back, or the first answer was none.
            (None, (Outcome::Won, later)) => tally.fresh.told.extend(self.promise(number, later)),
            _ => tally.fresh.repeats.same += 1,
        }
    }

    fn promise(&self, number: u32, order: Option<OrderId>) -> Option<(OrderId, UserId)> {
        let user = UserId::new(self.first + i64::from(number)).expect("it is positive");
        order.map(|order| (order, user))
    }

    /// Asks until there is an answer, or patience ends.
    async fn ask(&self, token: &HeaderValue, is_traced: bool) -> (Outcome, Option<OrderId>) {
        let mut unknown = false;
        while self.start.elapsed() < self.over + limits::STORM_PATIENCE {
            let pause = match self.client.claim(&self.path, token.clone(), is_traced).await {
                Answer::Order(order) => return (Outcome::Won, Some(order)),
                Answer::SoldOut => return (Outcome::SoldOut, None),
                Answer::Refused => return (Outcome::Refused, None),
                Answer::ComeBack(pause) => pause,
                Answer::Unknown(pause) => {
                    unknown = true;
                    pause
                }
            };
            sleep(pause).await;
        }
        (if unknown { Outcome::Unknown } else { Outcome::ComeBack }, None)
    }

    fn note(&self, due: Instant, outcome: Outcome, promise: Option<(OrderId, UserId)>) {
        let mut tally = self.tally.lock().expect("no holder of this lock panics");
        append(&mut tally.fresh.outcomes, (outcome, 1));
        tally.fresh.told.extend(promise);
        tally.waited_us.push(u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX));
        tally.last = self.start.elapsed();
        if outcome == Outcome::SoldOut {
            tally.sold_out.get_or_insert(self.start.elapsed());
        }
    }
}
