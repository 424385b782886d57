//! Live states of sales: looks once a second, heartbeats, what is asked of which store, and the ends of producers.

use std::pin::pin;
use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::sale::Failure;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::live::{LiveSales, Watch, Watching};
use futures_util::FutureExt;
use serde_json::{Value, json};
use sqlx::Postgres;
use sqlx::pool::PoolConnection;

use super::by_hand::{archive, pass, redis_settles, service, settle, still};
use crate::support::lines::Lines;
use crate::support::{PATIENCE, TestApp};

/// Live states over the stores of a service, for three watchers.
struct Shop {
    app: TestApp,
    live: LiveSales,
    shutdown: Shutdown,
    _held: PoolConnection<Postgres>,
}

impl Shop {
    /// From now on time stands still.
    async fn over(app: TestApp) -> Self {
        let held = app.app.stores.pool.acquire().await.expect("Postgres answers");
        let (shutdown, window) = (Shutdown::default(), Duration::from_secs(900));
        let coupons = app.app.coupons.clone();
        let live = LiveSales::new(&app.app.stores, coupons, 3, window, shutdown.clone());
        tokio::time::pause();
        Self { app, live, shutdown, _held: held }
    }

    /// The answer to a client that wants to watch, after the first look of a producer that begins with it.
    async fn asked(&self, coupon: CouponId) -> Result<Watch, Failure> {
        let mut asked = pin!(self.live.watch(coupon, None));
        if let Some(answer) = asked.as_mut().now_or_never() {
            return answer;
        }
        pass(Duration::ZERO).await;
        still(asked).await
    }

    async fn watch(&self, coupon: CouponId) -> Watching {
        match self.asked(coupon).await.expect("the stores answer") {
            Watch::Watching(watching) => watching,
            _ => panic!("the sale is there"),
        }
    }

    /// A second passes, and the looks that are due then are made.
    async fn tick(&self) {
        pass(limits::LIVE_PERIOD).await;
        settle(&self.app).await;
    }

    async fn redis(&self, words: &[&str]) {
        still(self.app.redis::<redis::Value>(words)).await;
    }
}

/// The state, if there is one that this watcher has not been told.
fn told(watching: &mut Watching) -> Option<Value> {
    let event = watching.next().now_or_never()?;
    Some(json!(event.expect("the producer goes on")))
}

async fn rename(app: &TestApp, coupon: CouponId, title: &str) {
    let update = format!("UPDATE coupons SET title = '{title}' WHERE id = {coupon}");
    still(app.execute(&update)).await;
}

/// A state is told when Redis has another one, and else after five seconds, with the words that Postgres has then.
#[tokio::test]
async fn a_state_is_told_when_it_changes_and_else_with_each_heartbeat() {
    assert_eq!(limits::LIVE_HEARTBEAT, limits::LIVE_PERIOD * 5);
    let app = service("1").await;
    let coupon = app.create_flash(5).await;
    app.expect_disagreements();
    let shop = Shop::over(app).await;
    let key = shop.app.keys().coupon(coupon);
    let mut watching = shop.watch(coupon).await;
    let mut events = vec![told(&mut watching)];
    assert!(told(&mut watching).is_none(), "each state is told once");
    for second in 1..=24 {
        match second {
            1 => rename(&shop.app, coupon, "b").await,
            7 => shop.redis(&["HINCRBY", &key, "stock", "-1"]).await,
            // Redis names another revision, so that Postgres is asked at once.
            15 => {
                rename(&shop.app, coupon, "c").await;
                shop.redis(&["HINCRBY", &key, "revision", "1"]).await;
            }
            16 => rename(&shop.app, coupon, "d").await,
            _ => {}
        }
        shop.tick().await;
        events.push(told(&mut watching));
    }
    let expected =
        [(0, 5, "t"), (5, 5, "b"), (7, 4, "b"), (12, 4, "b"), (15, 4, "c"), (20, 4, "d")];
    let changes: Vec<(usize, i64, String)> = events
        .iter()
        .enumerate()
        .filter_map(|(second, event)| {
            let event = event.as_ref()?;
            assert!(event["now"].is_i64(), "{event}");
            let left = event["left"].as_i64().expect("a number");
            Some((second, left, event["title"].as_str().expect("a title").to_owned()))
        })
        .collect();
    assert_eq!(changes, expected.map(|(second, left, title)| (second, left, title.to_owned())));
    // However late the producer is, it looks once, and not for each second that it has missed.
    pass(Duration::from_secs(30)).await;
    settle(&shop.app).await;
    assert!(told(&mut watching).is_some(), "the heartbeat of second 25");
    for second in 1..=5 {
        shop.tick().await;
        assert_eq!(told(&mut watching).is_some(), second == 5, "{second}");
    }
}

/// The time is that of Redis. Units left are those of Redis while it has the sale, and else those of Postgres.
#[tokio::test]
async fn the_units_left_are_told_by_redis_or_postgres_or_are_unknown() {
    let app = service("1").await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    let shop = Shop::over(app).await;
    let key = shop.app.keys().coupon(coupon);
    shop.redis(&["HSET", &key, "stock", "3", "total", "4", "state", "paused"]).await;
    let mut watching = shop.watch(coupon).await;
    let facts = |event: Option<Value>| {
        let event = event.expect("another state");
        json!([event["left"], event["total"], event["state"], event["now"].is_i64()])
    };
    assert_eq!(facts(told(&mut watching)), json!([3, 4, "paused", true]));
    archive(&shop.app, coupon, true).await;
    let heard = Lines::down_to(tracing::Level::DEBUG);
    let unread = || heard.count("the state of a watched sale can't be read");
    let mut unread_before = 0;
    for (command, expected) in [
        (&["DEL", &key][..], json!([5, 5, "active", true])),
        (&["SET", &key, "x"], json!([null, 5, "active", false])),
        (&["DEL", &key], json!([5, 5, "active", true])),
    ] {
        shop.redis(command).await;
        shop.tick().await;
        assert_eq!(facts(told(&mut watching)), expected, "after {}", command[0]);
        shop.tick().await;
        assert!(told(&mut watching).is_none(), "nothing has changed");
        // A look tells why it knows less.
        assert_eq!(unread(), if command[0] == "SET" { 2 } else { unread_before });
        unread_before = unread();
    }
}

#[tokio::test]
async fn a_sale_has_one_producer_until_its_last_watcher_has_gone() {
    let app = service("1").await;
    let (one, other, regular) =
        (app.create_flash(5).await, app.create_flash(6).await, app.create_regular().await);
    let shop = Shop::over(app).await;
    let mut first = shop.watch(one).await;
    assert_eq!(
        (told(&mut first).expect("a state")["left"].as_i64(), shop.live.watched()),
        (Some(5), 1)
    );
    // The producer has a state already, so a second watcher waits for nothing.
    let second = shop.live.watch(one, None).now_or_never().expect("at once");
    let Ok(Watch::Watching(mut second)) = second else { panic!("there is room") };
    assert_eq!(told(&mut second).expect("the newest state")["left"], 5);
    assert_eq!(shop.live.watched(), 1);
    let mut third = shop.watch(other).await;
    assert_eq!(
        (told(&mut third).expect("a state")["left"].as_i64(), shop.live.watched()),
        (Some(6), 2)
    );
    assert_eq!(shop.live.places().taken(), 3);
    let full = shop.asked(other).await.expect("no store is asked");
    assert!(matches!(full, Watch::Full));
    drop((first, third));
    shop.tick().await;
    assert_eq!((shop.live.watched(), shop.live.places().taken()), (1, 1));
    // The other watcher of the first sale is told as before.
    shop.redis(&["HSET", &shop.app.keys().coupon(one), "state", "paused"]).await;
    shop.tick().await;
    assert_eq!(told(&mut second).expect("another state")["state"], "paused");
    drop(second);
    shop.tick().await;
    assert_eq!((shop.live.watched(), shop.live.places().taken()), (0, 0));
    // The producer has ended, and a later watcher has one that ends with it, too.
    let again = shop.watch(one).await;
    shop.tick().await;
    assert_eq!(shop.live.watched(), 1);
    drop(again);
    shop.tick().await;
    assert_eq!(shop.live.watched(), 0);
    // Without a sale there is nothing to watch, and no producer stays.
    let none = CouponId::compose(1_000_000, 1);
    for (coupon, is_there) in [(regular, true), (none, false)] {
        match shop.asked(coupon).await.expect("the stores answer") {
            Watch::NoSale => assert!(is_there, "{coupon}"),
            Watch::NoCoupon => assert!(!is_there, "{coupon}"),
            _ => panic!("{coupon} has no sale"),
        }
        shop.tick().await;
        assert_eq!(shop.live.watched(), 0, "{coupon}");
    }
    shop.redis(&["HSET", &shop.app.keys().coupon(one), "state", "active"]).await;
}

#[tokio::test]
async fn a_stop_ends_the_states_of_all_sales() {
    let app = service("1").await;
    let coupons = [app.create_flash(5).await, app.create_flash(6).await];
    let shop = Shop::over(app).await;
    let mut watching = vec![shop.watch(coupons[0]).await, shop.watch(coupons[1]).await];
    for states in &mut watching {
        assert!(told(states).is_some());
    }
    assert!(still(shop.shutdown.stop(PATIENCE)).await, "a task hangs");
    assert_eq!(shop.live.watched(), 0);
    for states in &mut watching {
        assert!(states.next().now_or_never().expect("at once").is_none());
    }
    assert!(shop.asked(coupons[0]).await.is_err(), "there will be no state");
}

/// Without Postgres nothing is known of a sale at first; later on, what was known stays known.
#[tokio::test]
async fn a_postgres_that_hangs_is_told_to_the_first_watcher_and_to_no_later_one() {
    let app = service("1").await;
    let coupon = app.create_flash(5).await;
    let pool = app.app.stores.pool.clone();
    let shop = Shop::over(app).await;
    let patience = limits::POSTGRES_ACQUIRE_TIMEOUTS * shop.app.config.stores.database_timeout();
    let taken = still(pool.acquire()).await.expect("Postgres answers");
    let mut first = Box::pin(shop.live.watch(coupon, None));
    assert!(first.as_mut().now_or_never().is_none());
    pass(Duration::ZERO).await;
    redis_settles(&shop.app).await;
    pass(patience).await;
    assert!(still(first).await.is_err());
    drop(taken);
    shop.tick().await;
    assert_eq!(shop.live.watched(), 0, "without a watcher it is not asked again");
    let mut watching = shop.watch(coupon).await;
    let known = told(&mut watching).expect("a state");
    let taken = still(pool.acquire()).await.expect("Postgres answers");
    let heard = Lines::down_to(tracing::Level::DEBUG);
    for second in 1..=5 {
        pass(limits::LIVE_PERIOD).await;
        redis_settles(&shop.app).await;
        assert!(told(&mut watching).is_none(), "second {second}");
    }
    pass(patience).await;
    redis_settles(&shop.app).await;
    let mut heartbeat = told(&mut watching).expect("what was known");
    heartbeat["now"] = known["now"].clone();
    assert_eq!(heartbeat, known);
    assert_eq!(heard.count("a watched sale can't be read"), 1, "it tells why it knows no more");
    drop(taken);
}
