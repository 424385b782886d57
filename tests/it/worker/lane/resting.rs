//! Lanes at rest: woken up by what may be work for them, and by nothing else.

use std::sync::Arc;

use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::kit::redis::Redis;
use flash_sale::sale::log::{EntryId, LogState};
use flash_sale::worker::watch::LaneWatch;
use private_servers::testing::RedisServer;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::HOUR;
use crate::support::lines::Lines;
use crate::support::servers::Addresses;
use crate::support::{TestApp, bounded, eventually, later, shared};

/// A watch that looks, and lanes that rest there.
struct Resting {
    app: TestApp,
    watch: Arc<LaneWatch>,
    stop: CancellationToken,
    tasks: JoinSet<&'static str>,
}

impl Resting {
    async fn on(app: TestApp) -> Self {
        let redis = app.app.stores.redis.clone();
        Self::over(app, &redis).await
    }

    /// With a watch that looks over this connection.
    async fn over(app: TestApp, redis: &Redis) -> Self {
        app.expect_disagreements();
        let watch = Arc::new(LaneWatch::new(redis));
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let (watching, until) = (watch.clone(), stop.clone());
        tasks.spawn(async move {
            watching.run(&until).await;
            "the watch"
        });
        Self { app, watch, stop, tasks }
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.app.log(crate::support::lane()))
    }

    /// Makes a log with one entry, which a group has been given and has acknowledged or not.
    async fn log(&self, name: &'static str, is_acknowledged: bool) -> LogState {
        let key = self.key(name);
        let _: String = self.app.redis(&["XADD", &key, "5-1", "x", "y"]).await;
        let _: String = self.app.redis(&["XGROUP", "CREATE", &key, "order-writers", "0"]).await;
        let _: redis::Value = self
            .app
            .redis(&["XREADGROUP", "GROUP", "order-writers", "a", "STREAMS", &key, ">"])
            .await;
        if is_acknowledged {
            let _: i64 = self.app.redis(&["XACK", &key, "order-writers", "5-1"]).await;
        }
        let last = EntryId { ms: 5, sequence: 1 };
        let pending = u64::from(!is_acknowledged);
        LogState { pending, last, delivered: Some(last), ..LogState::default() }
    }

    /// Has the lane of this log rest, in this state.
    fn rest(&mut self, name: &'static str, state: LogState) {
        let (watch, key) = (self.watch.clone(), self.key(name));
        self.tasks.spawn(async move {
            watch.rest(&key, &state).await;
            name
        });
    }

    /// Appends an entry to this log.
    async fn append(&self, name: &str) {
        let _: String = self.app.redis(&["XADD", &self.key(name), "*", "x", "y"]).await;
    }

    /// The next lane that gets up.
    async fn up(&mut self) -> &'static str {
        let next = bounded("a lane gets up", self.tasks.join_next()).await;
        next.expect("lanes rest").expect("no task panics")
    }

    /// The watch ends, and so many lanes are still at rest.
    async fn ends_with(mut self, at_rest: usize) {
        self.stop.cancel();
        assert_eq!(self.up().await, "the watch");
        assert_eq!(self.tasks.len(), at_rest);
    }
}

#[tokio::test]
async fn the_lane_of_a_new_entry_gets_up_and_the_others_rest() {
    let mut resting = Resting::on(TestApp::start().await).await;
    for name in ["a", "b", "c"] {
        let state = resting.log(name, true).await;
        resting.rest(name, state);
    }
    for name in ["b", "a"] {
        let key = resting.key(name);
        let _: String = resting.app.redis(&["XADD", &key, "*", "x", "y"]).await;
        assert_eq!(resting.up().await, name);
    }
    // A lane that had not seen the newest entry gets up at once.
    resting.rest("b", LogState::default());
    assert_eq!(resting.up().await, "b");
    resting.ends_with(1).await;
}

/// The groups are looked at now and then; a lane with pending entries looks after these itself.
#[tokio::test]
async fn a_lane_gets_up_when_its_group_has_changed() {
    let mut resting = Resting::on(TestApp::start().await).await;
    for (name, is_acknowledged) in [("gone", true), ("held", true), ("same", true), ("own", false)]
    {
        let state = resting.log(name, is_acknowledged).await;
        resting.rest(name, state);
    }
    // Nothing has changed at the first look at the groups.
    later(limits::LOG_WATCH_PERIOD).await;
    let [gone, held] = ["gone", "held"].map(|name| resting.key(name));
    let _: i64 = resting.app.redis(&["XGROUP", "DESTROY", &gone, "order-writers"]).await;
    later(limits::LOG_WATCH_PERIOD).await;
    assert_eq!(resting.up().await, "gone");
    let _: String = resting.app.redis(&["XGROUP", "SETID", &held, "order-writers", "0"]).await;
    later(limits::LOG_WATCH_PERIOD).await;
    assert_eq!(resting.up().await, "held", "the group has been set back");
    resting.rest(
        "held",
        LogState {
            last: EntryId { ms: 5, sequence: 1 },
            delivered: Some(EntryId::default()),
            ..LogState::default()
        },
    );
    later(limits::LOG_WATCH_PERIOD).await;
    assert_eq!(resting.up().await, "held");
    let group = ["XREADGROUP", "GROUP", "order-writers", "dead", "STREAMS", &held, ">"];
    let _: redis::Value = resting.app.redis(&group).await;
    let last = EntryId { ms: 5, sequence: 1 };
    resting.rest("held", LogState { last, delivered: Some(last), ..LogState::default() });
    later(limits::LOG_WATCH_PERIOD).await;
    assert_eq!(resting.up().await, "held", "a dead worker holds its entry");
    resting.ends_with(2).await;
}

#[tokio::test]
async fn all_lanes_get_up_when_one_log_is_a_key_of_another_type() {
    let mut resting = Resting::on(TestApp::start().await).await;
    for name in ["a", "b"] {
        let state = resting.log(name, true).await;
        resting.rest(name, state);
    }
    let key = resting.key("a");
    let _: String = resting.app.redis(&["SET", &key, "no log"]).await;
    let mut names = [resting.up().await, resting.up().await];
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    resting.ends_with(0).await;
}

/// A Redis that has been started anew may have less than before, so nothing newer tells of it.
#[tokio::test]
async fn all_lanes_get_up_in_a_new_life_of_redis() {
    let mut server = RedisServer::start(&[]);
    let at = Addresses { redis_url: server.url(), ..shared().clone() };
    let mut resting = Resting::on(TestApp::on(&at, &[], Clock::System).await).await;
    for name in ["a", "b"] {
        let state = resting.log(name, true).await;
        resting.rest(name, state);
    }
    // The watch has looked at the first life.
    let state = resting.log("c", true).await;
    resting.rest("c", state);
    let key = resting.key("c");
    let _: String = resting.app.redis(&["XADD", &key, "*", "x", "y"]).await;
    assert_eq!(resting.up().await, "c");
    server.kill();
    server.start_again();
    let mut names = [resting.up().await, resting.up().await];
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    resting.ends_with(0).await;
}

#[tokio::test]
async fn a_watch_ends_with_the_service_whether_lanes_rest_or_not() {
    let mut resting = Resting::on(TestApp::start().await).await;
    let state = resting.log("a", true).await;
    resting.rest("a", state);
    tokio::task::yield_now().await;
    resting.ends_with(1).await;
    let app = TestApp::start().await;
    let watch = LaneWatch::new(&app.app.stores.redis);
    let stop = CancellationToken::new();
    let stops = async {
        tokio::task::yield_now().await;
        stop.cancel();
    };
    bounded("the watch ends", async { tokio::join!(watch.run(&stop), stops) }).await;
}

/// A lane in whose log there is a group that has read everything, as far as it knows.
fn settled() -> LogState {
    LogState { delivered: Some(EntryId::default()), ..LogState::default() }
}

#[tokio::test]
async fn the_groups_are_looked_at_only_now_and_then() {
    let mut resting = Resting::on(TestApp::start().await).await;
    // There is no such group, as the first look at the groups will tell.
    resting.rest("gone", settled());
    for round in 0..2 {
        let began = Instant::now();
        for _ in 0..3 {
            resting.rest("b", LogState::default());
            resting.append("b").await;
            let key = resting.key("b");
            let up = resting.up().await;
            let _: i64 = resting.app.redis(&["DEL", &key]).await;
            if began.elapsed() >= limits::LOG_WATCH_PERIOD {
                return;
            }
            assert_eq!(up, "b", "round {round}");
        }
        later(limits::LOG_WATCH_PERIOD).await;
        assert_eq!(resting.up().await, "gone", "round {round}");
        resting.rest("gone", settled());
    }
    resting.ends_with(1).await;
}

/// A lane that had no group when it came to rest looks after that itself.
#[tokio::test]
async fn a_lane_without_a_group_is_not_woken_up_for_that() {
    let mut resting = Resting::on(TestApp::start().await).await;
    resting.rest("none", LogState::default());
    resting.rest("held", LogState { pending: 1, ..settled() });
    resting.rest("gone", settled());
    for _ in 0..3 {
        later(limits::LOG_WATCH_PERIOD).await;
        assert_eq!(resting.up().await, "gone");
        resting.rest("gone", settled());
    }
    resting.ends_with(3).await;
}

#[tokio::test]
async fn a_look_that_fails_is_told_once_a_second_and_repeated() {
    let mut resting = Resting::on(TestApp::start().await).await;
    let key = resting.key("a");
    let _: String = resting.app.redis(&["SET", &key, "no log"]).await;
    let lines = Lines::heard();
    let began = Instant::now();
    for _ in 0..3 {
        for name in ["a", "b"] {
            resting.rest(name, LogState::default());
        }
        let mut names = [resting.up().await, resting.up().await];
        names.sort_unstable();
        assert_eq!(names, ["a", "b"]);
    }
    let told = lines.count("the lanes at rest can't be looked at; trying again");
    assert!(told >= 1);
    if began.elapsed() < limits::LOG_LINE_PAUSE {
        assert_eq!(told, 1);
    }
    resting.ends_with(0).await;
}

#[tokio::test]
async fn lanes_go_on_resting_while_redis_is_away() {
    let mut server = RedisServer::start(&[]);
    let at = Addresses { redis_url: server.url(), ..shared().clone() };
    let mut resting = Resting::on(TestApp::on(&at, &[], Clock::System).await).await;
    for name in ["a", "b"] {
        resting.rest(name, LogState::default());
    }
    resting.rest("c", LogState::default());
    resting.append("c").await;
    assert_eq!(resting.up().await, "c");
    let lines = Lines::heard();
    server.kill();
    let told = async || lines.count("the lanes at rest can't be looked at; trying again") >= 1;
    eventually("the watch says so", told).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
        assert!(resting.tasks.try_join_next().is_none(), "the lanes rest");
    }
    server.start_again();
    let mut names = [resting.up().await, resting.up().await];
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    resting.ends_with(0).await;
}

/// However long Redis has to answer: the watch doesn't hold up the end of the service.
#[tokio::test]
async fn a_look_is_short() {
    let app = TestApp::start().await;
    let redis = Redis::with_timeout(app.redis_url(), HOUR).expect("a valid URL");
    let mut resting = Resting::over(app, &redis).await;
    for name in ["a", "b"] {
        resting.rest(name, LogState::default());
    }
    resting.append("b").await;
    assert_eq!(resting.up().await, "b");
    resting.ends_with(1).await;
}
