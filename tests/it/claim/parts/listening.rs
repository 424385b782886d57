//! Listening to units that come back: begun, kept up, told, and ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::postgres;
use flash_sale::kit::redis::{Redis, ServerId};
use flash_sale::sale::Stores;
use flash_sale::sale::claim::memory::Memories;
use flash_sale::sale::claim::memory::listener::listen;
use flash_sale::sale::claim::memory::listening::Edition;
use flash_sale::sale::coupon::cache::CouponCache;
use flash_sale::sale::coupon::read::CouponReader;
use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::sale::keys::Keys;
use tokio::time::Instant;
use uuid::Uuid;

use crate::support::lines::Lines;
use crate::support::played::{Play, Played, Still, soon, text};
use crate::support::{TestApp, bounded, shared, user};

const HAS_ENDED: &str = "the connection that tells of units that come back has ended";
const REFUSED: &str = "units that come back can't be listened for";

/// A process that listens, and whose subscriptions and questions can be refused.
struct Listener {
    played: Played,
    redis: Redis,
    keys: Keys,
    server: ServerId,
    memories: Memories,
    shutdown: Shutdown,
    refused: Arc<AtomicBool>,
    /// Set while Redis refuses to answer on the connection.
    fails: Arc<AtomicBool>,
    /// Set while Redis is a replica.
    demoted: Arc<AtomicBool>,
    still: Still,
}

impl Listener {
    async fn start(refuse: bool) -> Self {
        let refused = Arc::new(AtomicBool::new(refuse));
        let fails = Arc::new(AtomicBool::new(false));
        let demoted = Arc::new(AtomicBool::new(false));
        let (refuses, is_failing) = (refused.clone(), fails.clone());
        let is_replica = demoted.clone();
        let redis = Redis::new(&shared().redis_url).expect("a URL");
        let info = bounded("an answer", redis.query::<String>(&redis::cmd("INFO"))).await;
        let info = info.expect("Redis answers");
        let played = Played::before(&shared().redis_url, move |command| match command {
            [name, ..] if name == "INFO" && is_failing.load(Ordering::SeqCst) => {
                Play::Reply("-ERR it says\r\n".to_owned())
            }
            [name, ..] if name == "INFO" && is_replica.load(Ordering::SeqCst) => {
                Play::Reply(text(&info.replace("role:master", "role:slave")))
            }
            [name, ..] if name == "INFO" => Play::Reply(text(&info)),
            [name, ..] if name == "SUBSCRIBE" && refuses.load(Ordering::SeqCst) => {
                Play::Reply("-NOPERM this user may not\r\n".to_owned())
            }
            _ => Play::Real,
        })
        .await;
        let keys = Keys::new(&Uuid::new_v4().simple().to_string());
        let shutdown = Shutdown::default();
        let link = bounded("a connection", redis.link()).await.expect("Redis answers");
        let server = link.server().clone();
        let pool = postgres::pool(&shared().database_url, 1, Duration::from_secs(9));
        let pool = pool.expect("a valid URL");
        let stores = Stores { pool, redis: redis.clone(), keys: keys.clone() };
        let coupons = CouponCache::new(&stores, CouponReader::new(&stores), shutdown.clone());
        let memory = Duration::from_secs(600);
        let memories = Memories::new(redis.clone(), keys.clone(), memory, shutdown.clone());
        let still = Still::begin();
        let own = played.redis(Duration::from_secs(10));
        listen(own, &keys, memories.clone(), coupons, &shutdown);
        Self { played, redis, keys, server, memories, shutdown, refused, fails, demoted, still }
    }

    /// Questions on connections that have begun: each begins with such a one.
    fn questions(&self) -> usize {
        self.asked("INFO").saturating_sub(self.played.connections())
    }

    /// Commands of this name that the test has played.
    fn asked(&self, name: &str) -> usize {
        self.played.asked().iter().filter(|command| command[0] == name).count()
    }

    /// Notes the order of user 1. True if it is believed then.
    fn notes(&self, sequence: i64) -> bool {
        let edition = Edition { server: self.server.clone(), epoch: 1, additions: 0 };
        let orders = [(user(1), OrderId::new(77).expect("an id"))].into_iter();
        let coupon = CouponId::compose(sequence, 1);
        self.memories.promised.note(coupon, edition, Instant::now(), orders);
        self.believes(sequence)
    }

    fn believes(&self, sequence: i64) -> bool {
        self.memories.promised.order_of(CouponId::compose(sequence, 1), user(1)).is_some()
    }

    async fn publish(&self, channel: String, message: &str) {
        let mut command = redis::cmd("PUBLISH");
        let heard =
            bounded("an answer", self.redis.query::<i64>(command.arg(channel).arg(message)));
        assert_eq!(heard.await.expect("it does"), 1, "the process listens");
    }
}

#[tokio::test]
async fn until_it_ends_the_connection_is_asked_every_quarter_of_a_second_and_believed() {
    let listener = Listener::start(false).await;
    soon("it listens", || listener.notes(1)).await;
    listener.still.settle().await;
    assert_eq!(listener.questions(), 0, "not before the time");
    for times in 1..=8 {
        listener.still.advance(248).await;
        assert_eq!(listener.questions(), times - 1);
        // A timer may be a millisecond late.
        listener.still.advance(3).await;
        soon("it is asked", || listener.questions() == times).await;
        // Until the answer has come, an older one counts.
        assert!(listener.believes(1), "question {times}");
        listener.still.settle().await;
    }
}

#[tokio::test]
async fn subscribe_hears_of_units_that_come_back_to_each_sale_and_of_nothing_else() {
    let listener = Listener::start(false).await;
    for sequence in 1..=3 {
        soon("it listens", || listener.notes(sequence)).await;
    }
    let id = |sequence| CouponId::compose(sequence, 1).to_string();
    let (additions, changes) = (listener.keys.additions_channel(), listener.keys.changes_channel());
    listener.publish(changes, &id(1)).await;
    listener.publish(additions.clone(), "x").await;
    listener.publish(additions.clone(), &id(2)).await;
    soon("a unit has come back", || !listener.believes(2)).await;
    assert!(listener.believes(1), "a change of a coupon is no unit");
    assert!(listener.believes(3), "another sale");
    listener.publish(additions, &id(1)).await;
    soon("another one, too", || !listener.believes(1)).await;
}

#[tokio::test]
async fn run_believes_nothing_from_the_end_of_a_connection_to_the_next_one_and_says_so() {
    let lines = Lines::heard();
    let listener = Listener::start(false).await;
    soon("it listens", || listener.notes(1)).await;
    listener.played.close();
    soon("units may come back unheard", || !listener.believes(1)).await;
    assert_eq!(lines.count(HAS_ENDED), 0);
    listener.still.advance(251).await;
    soon("the end is found", || lines.count(HAS_ENDED) == 1).await;
    assert_eq!(lines.with(HAS_ENDED)[0].matches("the connection has ended").count(), 1);
    assert_eq!(listener.questions(), 0, "no connection that has ended is asked");
    assert!(!listener.notes(1), "nothing is noted meanwhile");
    let connections = listener.played.connections();
    listener.still.advance(48).await;
    assert_eq!(listener.played.connections(), connections);
    listener.still.advance(3).await;
    soon("it listens again", || listener.notes(1)).await;
    assert_eq!(listener.played.connections(), connections + 1);
}

/// The connection is there. Messages may be held up behind a question that was refused, and a replica has none.
#[tokio::test]
async fn run_ends_listening_and_all_belief_with_a_refusal_and_with_a_server_that_is_a_replica() {
    for is_refused in [true, false] {
        let lines = Lines::heard();
        let listener = Listener::start(false).await;
        soon("it listens", || listener.notes(1)).await;
        listener.still.settle().await;
        let trouble = if is_refused { &listener.fails } else { &listener.demoted };
        trouble.store(true, Ordering::SeqCst);
        listener.still.advance(251).await;
        soon("the end is found", || lines.count(HAS_ENDED) == 1).await;
        assert!(!listener.believes(1), "units may come back unheard");
        assert!(!listener.notes(2), "nothing is noted meanwhile");
    }
}

/// The pauses are 50, 100 and 200 ms, and so on up to a second.
#[tokio::test]
async fn run_tries_again_after_growing_pauses_and_warns_once() {
    let lines = Lines::heard();
    let listener = Listener::start(true).await;
    soon("it is refused", || listener.asked("SUBSCRIBE") == 1).await;
    soon("that is said", || lines.count(REFUSED) == 1).await;
    let pauses = [50, 100, 200, 400, 800, 1_000, 1_000];
    for (pause, tries) in pauses.into_iter().zip(1..) {
        listener.still.settle().await;
        listener.still.advance(pause - 2).await;
        assert_eq!(listener.played.connections(), tries, "before {pause} ms");
        listener.still.advance(3).await;
        soon("the next try", || listener.asked("SUBSCRIBE") == tries + 1).await;
    }
    listener.still.settle().await;
    listener.refused.store(false, Ordering::SeqCst);
    assert!(!listener.notes(1));
    listener.still.advance(1_001).await;
    soon("it listens", || listener.notes(1)).await;

    listener.refused.store(true, Ordering::SeqCst);
    listener.played.close();
    soon("it is over", || !listener.believes(1)).await;
    listener.still.advance(251).await;
    soon("that is said", || lines.count(HAS_ENDED) == 1).await;
    let tries = listener.asked("SUBSCRIBE");
    for (pause, more) in [(50, 1), (100, 2)] {
        listener.still.settle().await;
        listener.still.advance(pause + 1).await;
        soon("a try", || listener.asked("SUBSCRIBE") == tries + more).await;
    }
    listener.still.settle().await;
    assert_eq!((lines.count(REFUSED), lines.count(HAS_ENDED)), (1, 1), "one warning for each end");
}

#[tokio::test]
async fn listen_ends_with_the_service_and_so_does_all_belief() {
    let listener = Listener::start(false).await;
    soon("it listens", || listener.notes(1)).await;
    let stopped = bounded("the stop", listener.shutdown.stop(limits::REDIS_TIMEOUT * 100)).await;
    assert!(stopped);
    assert!(!listener.believes(1) && !listener.notes(1));
}

/// The process that has heard of a change shows it, however young its copy is.
#[tokio::test]
async fn subscribe_hears_of_changes_of_coupons() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let stores = &app.app.stores;
    let (shutdown, memory) = (Shutdown::default(), Duration::from_secs(60));
    let coupons = CouponCache::new(stores, CouponReader::new(stores), shutdown.clone());
    let (redis, keys) = (stores.redis.clone(), stores.keys.clone());
    let memories = Memories::new(redis.clone(), keys.clone(), memory, shutdown.clone());
    let still = Still::begin();
    let title = async || {
        let shown = bounded("a coupon", coupons.show(coupon)).await.expect("both stores answer");
        let shown = shown.expect("it is there");
        let shown: serde_json::Value = serde_json::from_slice(&shown.body).expect("it is JSON");
        shown["title"].as_str().expect("text").to_owned()
    };
    assert_eq!(title().await, "t");
    app.execute("UPDATE coupons SET title = 'new'").await;
    assert_eq!(title().await, "t", "no message has come");
    listen(redis.clone(), &keys, memories, coupons.clone(), &shutdown);
    let mut publish = redis::cmd("PUBLISH");
    publish.arg(keys.changes_channel()).arg(coupon.get());
    bounded("the change is heard of", async {
        while redis.query::<i64>(&publish).await.expect("Redis answers") == 0 {
            still.settle().await;
        }
        while title().await != "new" {
            still.settle().await;
        }
    })
    .await;
}
