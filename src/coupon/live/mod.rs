//! Live states of sales, for clients that watch.
//!
//! # Model
//!
//! In each process, a watched sale has one producer, however many clients watch it. Once a second the producer asks
//! Redis for the time and the sale, in one round trip. It puts the newest state into a `watch` channel: a new watcher
//! sees it at once, and a slow one skips to it. A state is sent when it has changed, and after
//! [`limits::LIVE_HEARTBEAT`] in any case, so that a client and each proxy in between can tell a quiet stream from a
//! dead one. Words and prices come from Postgres: at first, when Redis has another revision, and with each heartbeat.
//!
//! A producer ends when its last watcher has gone. So a sale without watchers costs no store a question.
//!
//! # Authority
//!
//! Redis decides claims. So the time is Redis's, and while Redis has the sale, so are its state, window and units left.
//! While Redis doesn't answer, the time and the units left are unknown. No other clock takes its place, because a
//! client's countdown must not end before the sale opens.
//!
//! # What is not promised
//!
//! A state is up to a second old. A watcher may miss states in between, but never the last one.

pub mod places;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::RedisResult;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use utoipa::ToSchema;

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::coupon::create::Coupons;
use crate::coupon::live::places::{Place, Places};
use crate::coupon::model::{Coupon, CouponState, Sale};
use crate::store::fleet::Fleet;
use crate::store::ids::CouponId;
use crate::store::keys::Keys;
use crate::store::{Failure, Stores};

/// Hands out live states. Clones share the producers.
#[derive(Clone)]
pub struct LiveSales(Arc<Shared>);

struct Shared {
    fleet: Fleet,
    keys: Keys,
    coupons: Arc<Coupons>,
    /// Time that an order may stay unpaid.
    payment_window: Duration,
    /// Sales with a producer. A producer without a watcher leaves the map under its lock.
    watched: Mutex<HashMap<CouponId, watch::Sender<Check>>>,
    places: Places,
    shutdown: Shutdown,
}

/// What the last check of a sale has found.
#[derive(Clone, Debug)]
enum Check {
    Awaited,
    Seen(Seen),
    NoCoupon,
    NoSale,
    /// A store didn't answer at the first check.
    Failed(Arc<Failure>),
}

/// A state, and when it was seen.
#[derive(Clone, Debug)]
struct Seen {
    sale: Arc<SaleState>,
    /// Time of Redis, in ms since 1970, and the moment at which its answer arrived here.
    time: Option<(i64, Instant)>,
}

/// State of a sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SaleState {
    /// The coupon.
    coupon_id: CouponId,
    /// Headline.
    title: String,
    /// Second line.
    sub_title: String,
    /// Terms, in words.
    rules: String,
    /// Price, in minor units.
    pay_cents: i64,
    /// Worth, in minor units.
    value_cents: i64,
    /// Currency of price and worth (ISO 4217).
    currency: String,
    /// Whether it can be claimed at all, within its window.
    state: CouponState,
    /// Units on offer.
    total: i64,
    /// Units left; null while Redis can't tell.
    left: Option<i64>,
    /// Start of the window, in ms since 1970.
    opens_ms: i64,
    /// End of the window, in ms since 1970; not part of it.
    closes_ms: i64,
    /// Time that an order may stay unpaid, in seconds after it was written.
    pay_within_s: u64,
    /// Revision of these values.
    revision: i64,
}

/// An event of the stream: the whole state, and the time at which it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SaleEvent {
    /// Time of Redis, whose clock opens and closes the sale, in ms since 1970; null while Redis can't tell.
    pub now: Option<i64>,
    #[serde(flatten)]
    sale: SaleState,
}

/// Answer to a client that wants to watch.
pub enum Watch {
    /// The states, from the newest on.
    Watching(Watching),
    NoCoupon,
    /// A regular coupon has no sale to watch.
    NoSale,
    /// No place is free, at all or for the network of the client.
    Full,
}

/// States of a sale, for one watcher.
pub struct Watching {
    states: watch::Receiver<Check>,
    _place: Place,
}

impl LiveSales {
    pub fn new(
        stores: &Stores,
        coupons: Arc<Coupons>,
        watchers_max: u32,
        payment_window: Duration,
        shutdown: Shutdown,
    ) -> Self {
        let Stores { fleet, keys, .. } = stores.clone();
        let watched = Mutex::default();
        let places = usize::try_from(watchers_max).unwrap_or(usize::MAX);
        let places = Places::new(places);
        Self(Arc::new(Shared { fleet, keys, coupons, payment_window, watched, places, shutdown }))
    }

    /// Lets a client at this address watch a sale, from its newest state on.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, and no other client watches the sale.
    pub async fn watch(&self, coupon: CouponId, client: Option<IpAddr>) -> Result<Watch, Failure> {
        let Some(place) = self.0.places.take(client) else {
            return Ok(Watch::Full);
        };
        let mut states = self.states(coupon);
        let first = states.wait_for(|check| !matches!(check, Check::Awaited)).await;
        let first = first.map(|check| check.clone()).unwrap_or(Check::Awaited);
        Ok(match first {
            Check::Seen(_) => {
                states.mark_changed();
                Watch::Watching(Watching { states, _place: place })
            }
            Check::NoCoupon => Watch::NoCoupon,
            Check::NoSale => Watch::NoSale,
            Check::Failed(failure) => return Err(failure.into()),
            // The producer was stopped before its first check ended.
            Check::Awaited => return Err(Failure::NoReply),
        })
    }

    /// Places of watchers, for other streams under the same bound.
    pub fn places(&self) -> Places {
        self.0.places.clone()
    }

    /// Number of sales that have a producer.
    pub fn watched(&self) -> usize {
        self.0.watched.lock().expect("no holder of this lock panics").len()
    }

    /// The states of a sale, from its producer or a new one.
    fn states(&self, coupon: CouponId) -> watch::Receiver<Check> {
        let mut watched = self.0.watched.lock().expect("no holder of this lock panics");
        if let Some(producer) = watched.get(&coupon) {
            return producer.subscribe();
        }
        let (sender, states) = watch::channel(Check::Awaited);
        watched.insert(coupon, sender.clone());
        let (this, stop) = (self.0.clone(), self.0.shutdown.stop_token().clone());
        self.0.shutdown.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => this.forget(coupon),
                () = this.produce(coupon, &sender) => {}
            }
        });
        states
    }
}

impl Shared {
    /// Looks at the sale once a second, until it has no watcher.
    async fn produce(&self, coupon: CouponId, sender: &watch::Sender<Check>) {
        let mut ticks = interval(limits::LIVE_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known: Option<Known> = None;
        let mut quiet = limits::LIVE_HEARTBEAT;
        while self.is_watched(coupon, sender) {
            ticks.tick().await;
            let is_due = quiet >= limits::LIVE_HEARTBEAT;
            let check = self.check(coupon, &mut known, is_due).await;
            if is_due || differ(&sender.borrow(), &check) {
                sender.send_replace(check);
                quiet = Duration::ZERO;
            }
            quiet += limits::LIVE_PERIOD;
        }
    }

    /// Whether a client watches; if none does, the sale is forgotten.
    fn is_watched(&self, coupon: CouponId, sender: &watch::Sender<Check>) -> bool {
        let mut watched = self.watched.lock().expect("no holder of this lock panics");
        if sender.receiver_count() == 0 {
            watched.remove(&coupon);
        }
        sender.receiver_count() > 0
    }

    fn forget(&self, coupon: CouponId) {
        self.watched.lock().expect("no holder of this lock panics").remove(&coupon);
    }

    async fn check(&self, coupon: CouponId, known: &mut Option<Known>, renew: bool) -> Check {
        let asked = self.ask_redis(coupon).await;
        if let Err(error) = &asked {
            tracing::debug!(%coupon, %error, "the state of a watched sale can't be read");
        }
        let (time, in_redis) = asked.map_or((None, None), |(time, sale)| (Some(time), sale));
        let revision = in_redis.as_ref().map(|sale| sale.revision);
        if renew || known.as_ref().is_none_or(|known| known.redis_revision != revision) {
            match self.coupons.get(coupon).await {
                Ok(None) => return Check::NoCoupon,
                Ok(Some(Coupon { sale: None, .. })) => return Check::NoSale,
                Ok(Some(stored)) => *known = Some(Known { stored, redis_revision: revision }),
                Err(error) if known.is_none() => return Check::Failed(error.into()),
                // The values from before stay.
                Err(error) => tracing::debug!(%coupon, %error, "a watched sale can't be read"),
            }
        }
        match known.as_ref().and_then(|known| known.state(in_redis, time, self.payment_window)) {
            Some(sale) => Check::Seen(Seen { sale: Arc::new(sale), time }),
            None => Check::NoSale,
        }
    }

    /// Time of Redis, and the sale if Redis has it.
    async fn ask_redis(
        &self,
        coupon: CouponId,
    ) -> RedisResult<((i64, Instant), Option<RedisSale>)> {
        let mut commands = redis::pipe();
        commands.cmd("TIME");
        commands.cmd("HMGET").arg(self.keys.coupon(coupon)).arg(RedisSale::FIELDS);
        let redis = self.fleet.of(coupon.lane());
        let replies: Vec<Vec<Option<String>>> = redis.query_all(&commands).await?;
        let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
        let time = match &replies[..] {
            [time, _] => time.iter().map(number).collect::<Option<Vec<i64>>>(),
            _ => None,
        };
        let Some([seconds, microseconds]) = time.as_deref() else {
            return Err(redis::RedisError::from((
                redis::ErrorKind::UnexpectedReturnType,
                "this is no time",
            )));
        };
        let now_ms = seconds * 1_000 + microseconds / 1_000;
        Ok(((now_ms, Instant::now()), RedisSale::read(&replies[1])))
    }
}

/// The coupon, as Postgres had it.
struct Known {
    stored: Coupon,
    /// Revision in Redis at that time.
    redis_revision: Option<i64>,
}

impl Known {
    /// State of the sale. Where Redis has the sale, Redis's values replace those of Postgres.
    fn state(
        &self,
        in_redis: Option<RedisSale>,
        time: Option<(i64, Instant)>,
        payment_window: Duration,
    ) -> Option<SaleState> {
        let Coupon { id, row, sale } = &self.stored;
        let sale: &Sale = sale.as_ref()?;
        let stored = RedisSale {
            state: row.state,
            // These were read a while ago: while Redis is away, the units left are unknown.
            stock: sale.left.filter(|_| time.is_some()),
            total: sale.total,
            opens_ms: sale.opens_at.timestamp_millis(),
            closes_ms: sale.closes_at.timestamp_millis(),
            revision: row.revision,
        };
        let RedisSale { state, stock, total, opens_ms, closes_ms, revision } =
            in_redis.unwrap_or(stored);
        Some(SaleState {
            coupon_id: *id,
            title: row.title.clone(),
            sub_title: row.sub_title.clone(),
            rules: row.rules.clone(),
            pay_cents: row.pay_cents,
            value_cents: row.value_cents,
            currency: row.currency.clone(),
            state,
            total,
            left: stock,
            opens_ms,
            closes_ms,
            pay_within_s: payment_window.as_secs(),
            revision,
        })
    }
}

/// The fields of a sale that decide claims, as Redis has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RedisSale {
    pub state: CouponState,
    pub stock: Option<i64>,
    pub total: i64,
    pub opens_ms: i64,
    /// Not part of the window.
    pub closes_ms: i64,
    pub revision: i64,
}

impl RedisSale {
    pub const FIELDS: &[&str] = &["state", "stock", "total", "opens_ms", "closes_ms", "revision"];

    /// The sale in a reply; `None` if it isn't loaded, or not whole.
    pub fn read(reply: &[Option<String>]) -> Option<Self> {
        let [state, stock, total, opens_ms, closes_ms, revision] = reply else {
            return None;
        };
        let states = [CouponState::Active, CouponState::Paused, CouponState::Ended];
        let number = |text: &Option<String>| text.as_ref()?.parse().ok();
        Some(Self {
            state: states.into_iter().find(|known| state.as_deref() == Some(known.as_str()))?,
            stock: Some(number(stock)?),
            total: number(total)?,
            opens_ms: number(opens_ms)?,
            closes_ms: number(closes_ms)?,
            revision: number(revision)?,
        })
    }
}

/// Whether a watcher would notice the difference.
fn differ(before: &Check, now: &Check) -> bool {
    match (before, now) {
        (Check::Seen(before), Check::Seen(now)) => {
            before.sale != now.sale || before.time.is_some() != now.time.is_some()
        }
        _ => true,
    }
}

impl Watching {
    /// Waits for a state that this watcher hasn't seen, and returns the newest one. `None` when there will be no
    /// further one.
    pub async fn next(&mut self) -> Option<SaleEvent> {
        loop {
            self.states.changed().await.ok()?;
            if let Check::Seen(seen) = &*self.states.borrow_and_update() {
                return Some(seen.event());
            }
        }
    }
}

impl Seen {
    /// The event, to be sent now.
    fn event(&self) -> SaleEvent {
        let now = self.time.map(|(now_ms, at)| {
            now_ms + i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX)
        });
        SaleEvent { now, sale: SaleState::clone(&self.sale) }
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    fn reply(fields: [&str; 6]) -> Vec<Option<String>> {
        fields.map(|field| Some(field.to_owned()).filter(|field| !field.is_empty())).into()
    }

    /// An active sale of five units, with so many left.
    fn sale(left: Option<i64>) -> SaleState {
        SaleState {
            coupon_id: CouponId::compose(1, 1),
            title: String::new(),
            sub_title: String::new(),
            rules: String::new(),
            pay_cents: 1,
            value_cents: 2,
            currency: "CNY".to_owned(),
            state: CouponState::Active,
            total: 5,
            left,
            opens_ms: 1_000,
            closes_ms: 2_000,
            pay_within_s: 900,
            revision: 1,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_has_the_time_at_which_it_is_sent() {
        bound_this_test();
        let seen = Seen { sale: Arc::new(sale(Some(5))), time: Some((1_000, Instant::now())) };
        assert_eq!(seen.event().now, Some(1_000));
        tokio::time::advance(Duration::from_millis(2_500)).await;
        assert_eq!(seen.event().now, Some(3_500));
        assert_eq!(Seen { time: None, ..seen }.event().now, None);
    }

    #[test]
    fn a_sale_is_read_only_if_it_is_whole() {
        let whole = ["active", "3", "5", "1000", "2000", "7"];
        let expected = RedisSale {
            state: CouponState::Active,
            stock: Some(3),
            total: 5,
            opens_ms: 1_000,
            closes_ms: 2_000,
            revision: 7,
        };
        assert_eq!(RedisSale::read(&reply(whole)), Some(expected));
        for missing in 0..whole.len() {
            let mut fields = whole;
            fields[missing] = "";
            assert_eq!(RedisSale::read(&reply(fields)), None, "without field {missing}");
        }
        let mut loading = whole;
        loading[0] = "loading";
        assert_eq!(RedisSale::read(&reply(loading)), None);
    }

    /// A watcher notices another state, and whether Redis can tell the time, but not that time goes on.
    #[tokio::test(start_paused = true)]
    async fn looks_differ_by_their_state_and_by_whether_redis_answers() {
        bound_this_test();
        let seen = |left, time: Option<i64>| {
            let time = time.map(|ms| (ms, Instant::now()));
            Check::Seen(Seen { sale: Arc::new(sale(left)), time })
        };
        let before = seen(Some(5), Some(1));
        for (now, is_noticed) in [
            (seen(Some(5), Some(1)), false),
            (seen(Some(5), Some(2)), false),
            (seen(Some(4), Some(1)), true),
            (seen(Some(5), None), true),
            (Check::NoCoupon, true),
            (Check::NoSale, true),
            (Check::Awaited, true),
        ] {
            assert_eq!(differ(&before, &now), is_noticed, "{now:?}");
        }
        assert!(!differ(&seen(None, None), &seen(None, None)));
        assert!(differ(&Check::Awaited, &before));
    }
}
