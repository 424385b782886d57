//! A server that becomes another one while it is recovered, and lanes that hold no sale.

use std::sync::LazyLock;

use super::{
    ADOPT, SWITCH, close_lanes, damage, end_of, fate, no_process_keeps, pass_up_to_command,
    sold_to_two,
};
use crate::faults::recovery::{keep, start};
use crate::support::played::hash;
use crate::support::{Bounded, TestApp, lane, proxy_before};

static FENCE: LazyLock<String> = LazyLock::new(|| hash(include_str!("../../../../lua/fence.lua")));

/// The server has the data of another master by now: only the next recovery may approve it.
#[tokio::test]
async fn recover_approves_no_server_that_has_another_replication_id_by_now() {
    let (_server, app) = start(&["--enable-debug-command", "yes"]).await;
    let [sale] = sold_to_two::<1>(&app).await;
    damage(&app, sale).await;
    close_lanes(&app).await;
    let proxy = proxy_before(&app, &SWITCH).await;
    let pass = pass_up_to_command(&app, &proxy).await;
    let _: String = app.redis(&["DEBUG", "CHANGE-REPL-ID"]).await;
    let _ = end_of(pass, &proxy).await;
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 0);
    assert_eq!(app.number("SELECT count(*) FROM recoveries WHERE opened_at IS NOT NULL").await, 0);
    assert_eq!(app.number("SELECT max(beat) FROM lane_beats").await, 1, "no beat is noted");
    no_process_keeps(&app).await;
    app.recover().await;
    assert_eq!(fate(&app, sale).await, "built 7 [1, 2]");
    let link = app.app.stores.redis.link().await.expect("Redis answers");
    let here = link.origin().await.expect("Redis answers").replication_id;
    assert_eq!(app.texts("SELECT replication_id FROM lanes").await, [here]);
}

/// A look that is asked for compares all lanes.
#[tokio::test]
async fn pass_looks_at_lanes_without_a_sale_and_a_tick_without_a_suspicion_does_not() {
    let app = TestApp::start().await;
    keep(&app).await;
    let key = app.keys().lane(lane());
    let _: i64 = app.redis(&["DEL", &key]).await;
    let closed = "SELECT count(*) FROM recoveries WHERE reason = 'Redis has lost its data'";
    let other = app.another_instance().await;
    no_process_keeps(&app).await;
    assert!(other.lanes.take_suspicion());
    other.keeper.tick().bounded().await;
    assert_eq!(app.number(closed).await, 0);
    other.keeper.pass().bounded().await.expect("both stores answer");
    assert_eq!(app.number(closed).await, 1);
    assert_eq!(app.redis::<String>(&["HGET", &key, "state"]).await, "open");
}

/// Another recovery begins in Redis before this one closes the lane there, or before it takes a sale over.
#[tokio::test]
async fn recover_ends_where_redis_has_a_newer_epoch_of_the_lane_by_now() {
    let app = TestApp::start().await;
    let [sale] = sold_to_two::<1>(&app).await;
    let key = app.keys().lane(lane());
    for (script, is_failure) in [(&*FENCE, false), (&*ADOPT, true)] {
        close_lanes(&app).await;
        let proxy = proxy_before(&app, script).await;
        let pass = pass_up_to_command(&app, &proxy).await;
        let epoch: String = app.redis(&["HGET", &key, "epoch"]).await;
        let _: i64 = app.redis(&["HSET", &key, "epoch", "99"]).await;
        match end_of(pass, &proxy).await {
            Ok(()) => assert!(!is_failure),
            Err(failure) => assert!(is_failure && failure.is_recovering(), "{failure:?}"),
        }
        assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 0);
        let _: i64 = app.redis(&["HSET", &key, "epoch", &epoch]).await;
    }
    no_process_keeps(&app).await;
    app.recover().await;
    assert_eq!(fate(&app, sale).await, "kept 7 [1, 2]");
}
