//! `fence::states`, `fence::begin_new`: lanes that are begun, and the states that a process remembers.

use flash_sale::kit::redis::{Link, Redis};
use flash_sale::sale::Stores;
use flash_sale::sale::fence::scripts::FenceScripts;
use flash_sale::sale::fence::{LaneStates, begin_new, states_of, table};
use flash_sale::sale::ids::Lane;
use tracing::Level;

use crate::support::lines::Lines;
use crate::support::played::{Play, Played};
use crate::support::{Bounded, PATIENCE, TestApp};

fn lanes<const N: usize>() -> [Lane; N] {
    let mut lanes = Lane::all(i32::try_from(N).expect("few"));
    std::array::from_fn(|_| lanes.next().expect("there are so many"))
}

async fn begins(app: &TestApp, link: &Link) -> bool {
    let pool = &app.app.stores.pool;
    let stored = table::all(pool).await.expect("Postgres answers");
    let scripts = FenceScripts::new(app.keys().clone());
    begin_new(pool, &scripts, link, &stored).await.expect("both stores answer")
}

/// Lanes that have an approved Redis.
async fn approved(app: &TestApp) -> Vec<i64> {
    app.numbers("SELECT lane::bigint FROM lanes WHERE run_id IS NOT NULL ORDER BY lane").await
}

/// Lane 0 is approved and lost in Redis, lane 1 is new, and lane 2 has another epoch in Redis.
#[tokio::test]
async fn begin_new_begins_lanes_that_redis_has_never_had_and_no_lost_one() {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    let link = app.app.stores.redis.link().await.expect("Redis answers");
    assert!(!begins(&app, &link).await, "all have been begun");
    app.execute("UPDATE lanes SET run_id = NULL, replication_id = NULL WHERE lane > 0").await;
    let [lost, new, other] = lanes::<3>().map(|lane| app.keys().lane(lane));
    let _: i64 = app.redis(&["DEL", &lost, &new]).await;
    let _: i64 = app.redis(&["HSET", &other, "epoch", "9"]).await;
    assert!(begins(&app, &link).await);
    assert_eq!(approved(&app).await, [0, 1]);
    assert_eq!(app.redis::<i64>(&["EXISTS", &lost]).await, 0);
    let begun: Vec<String> = app.redis(&["HMGET", &new, "epoch", "state", "beat"]).await;
    assert_eq!(begun, ["1", "open", "0"]);
    let origin = "SELECT run_id || ' ' || replication_id FROM lanes WHERE lane = 1";
    let here = link.origin().await.expect("Redis answers");
    assert_eq!(app.texts(origin).await, [format!("{} {}", here.run_id, here.replication_id)]);
    assert!(!begins(&app, &link).await, "lane 2 is not approved");
    assert_eq!(approved(&app).await, [0, 1]);
}

/// The start of a process.
#[tokio::test]
async fn states_of_adds_lanes_and_begins_those_that_are_new() {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    app.execute(
        "DELETE FROM lane_beats WHERE lane = 2; DELETE FROM lanes WHERE lane = 2;
         UPDATE lanes SET run_id = NULL, replication_id = NULL WHERE lane = 1",
    )
    .await;
    for lane in &lanes::<3>()[1..] {
        let _: i64 = app.redis(&["DEL", &app.keys().lane(*lane)]).await;
    }
    let other = app.another_instance().await;
    assert_eq!(approved(&app).await, [0, 1, 2]);
    let link = app.app.stores.redis.link().await.expect("Redis answers");
    for lane in lanes::<3>() {
        assert_eq!(other.lanes.admit(lane, link.server()).ok(), Some(1), "{lane}");
    }
}

fn known(lanes: &LaneStates) -> Vec<(i64, bool)> {
    lanes.all().into_iter().map(|(_, state)| (state.epoch, state.is_open)).collect()
}

#[tokio::test]
async fn read_now_replaces_what_is_known_and_the_era_never_falls() {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    let states = &app.app.lanes;
    assert_eq!((known(states), states.era()), (vec![(1, true); 3], 3));
    app.execute(
        "UPDATE lanes SET epoch = 7, state = 'recovering', closed_at = now(), reason = 'x' WHERE lane = 1",
    )
    .await;
    assert_eq!(known(states)[1], (1, true), "it has not been read");
    let read = states.read_now().await.expect("Postgres answers");
    let told: Vec<_> =
        read.iter().map(|lane| (lane.lane.get(), lane.epoch, lane.is_open)).collect();
    assert_eq!(told, [(0, 1, true), (1, 7, false), (2, 1, true)]);
    assert_eq!(known(states), [(1, true), (7, false), (1, true)]);
    assert_eq!((states.era(), states.recovering()), (9, vec![lanes::<3>()[1]]));
    app.execute("UPDATE lanes SET epoch = 2").await;
    states.read_now().await.expect("Postgres answers");
    assert_eq!((states.epoch(lanes::<3>()[1]), states.era()), (2, 9));
    // The first question reads.
    let other = app.another_instance().await;
    app.execute("UPDATE lanes SET epoch = 30, state = 'open'").await;
    other.lanes.refresh().await.expect("Postgres answers");
    assert_eq!((known(&other.lanes), other.lanes.era()), (vec![(30, true); 3], 90));
}

/// The keeper begins them later.
#[tokio::test]
async fn states_of_new_lanes_are_known_without_redis_that_would_begin_them() {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    let redis = Redis::new("redis://127.0.0.1:1").expect("a URL");
    let stores = Stores { redis, ..app.app.stores.clone() };
    for (new, said) in [("false", 0), ("lane = 1", 1)] {
        let unapprove = "UPDATE lanes SET run_id = NULL, replication_id = NULL WHERE";
        app.execute(&format!("{unapprove} {new}")).await;
        let lines = Lines::down_to(Level::DEBUG);
        let states = states_of(&stores).await.expect("Postgres answers");
        assert_eq!(known(&states), [(1, true); 2]);
        assert_eq!(lines.count("the lanes can't be begun yet"), said, "{new}");
    }
    assert_eq!(approved(&app).await, [0]);
}

/// A lane that Redis has under another epoch is not begun.
#[tokio::test]
async fn states_of_lanes_are_read_again_only_where_some_have_begun() {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    let lane = app.keys().lane(lanes::<2>()[1]);
    app.execute("UPDATE lanes SET run_id = NULL, replication_id = NULL WHERE lane = 1").await;
    for (epoch, reads) in [("9", 1), ("1", 2), ("1", 1)] {
        let _: i64 = app.redis(&["HSET", &lane, "epoch", epoch]).await;
        let lines = Lines::down_to(Level::DEBUG);
        states_of(&app.app.stores).await.expect("both stores answer");
        assert_eq!(lines.count("FROM lanes"), reads, "{epoch}");
    }
    assert_eq!(approved(&app).await, [0, 1]);
}

/// The keeper asks with each of its looks.
#[tokio::test]
async fn begin_new_asks_redis_nothing_where_no_lane_is_new() {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    let played = Played::before(app.redis_url(), |_| Play::Heard).await;
    let link = played.redis(PATIENCE).link().bounded().await.expect("Redis answers");
    assert!(!played.take_asked().is_empty(), "the connection is made");
    assert!(!begins(&app, &link).bounded().await);
    assert_eq!(played.asked(), [[""; 0]; 0]);
}
