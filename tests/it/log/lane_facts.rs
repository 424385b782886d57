//! Facts in the hash of a lane: its epoch, whether it is open, and what became of its log.

use flash_sale::kit::redis::Redis;
use flash_sale::sale::Failure;
use flash_sale::sale::fence::scripts::{
    FenceScripts, epoch, has_log_of_calls, has_lost_log, is_open, promised,
};
use flash_sale::sale::ids::Lane;
use flash_sale::sale::installation::{Identity, identity};
use private_servers::testing::RedisServer;

use crate::support::TestApp;

#[tokio::test]
async fn facts_of_a_lane_are_those_of_its_fields() {
    let app = TestApp::start().await;
    let (keys, redis) = (app.keys(), &app.app.stores.redis);
    let link = redis.link().await.expect("Redis answers");
    let lane = Lane::all(3).last().expect("there are three");
    let key = keys.lane(lane);
    for (fields, epoch_is, promised_is, is_lost, has_calls, open) in [
        (&[][..], None, 0, false, false, false),
        (&["epoch", "7"], Some(7), 0, false, false, false),
        (&["epoch", "7", "state", "open"], Some(7), 0, false, false, true),
        (&["epoch", "7", "state", "recovering"], Some(7), 0, false, false, false),
        (&["epoch", "8", "state", "open"], Some(8), 0, false, false, false),
        (&["epoch", "x", "state", "open"], None, 0, false, false, false),
        (&["epoch", "7", "state", "open", "promised", "5"], Some(7), 5, false, true, true),
        (&["epoch", "7", "state", "open", "promised", "0"], Some(7), 0, false, true, true),
        (&["epoch", "7", "state", "open", "log", "lost"], Some(7), 0, true, false, true),
    ] {
        let _: i64 = app.redis(&["DEL", &key]).await;
        if !fields.is_empty() {
            let _: i64 = app.redis(&[&["HSET", &key][..], fields].concat()).await;
        }
        assert_eq!(epoch(keys, &link, lane).await.ok(), Some(epoch_is), "{fields:?}");
        assert_eq!(promised(keys, &link, lane).await.ok(), Some(promised_is), "{fields:?}");
        assert_eq!(has_lost_log(keys, &link, lane).await.ok(), Some(is_lost), "{fields:?}");
        assert_eq!(has_log_of_calls(keys, &link, lane).await.ok(), Some(has_calls), "{fields:?}");
        assert_eq!(is_open(keys, &link, lane, 7).await.ok(), Some(open), "{fields:?}");
    }
    let _: String = app.redis(&["SET", &key, "no hash"]).await;
    assert_eq!(epoch(keys, &link, lane).await.ok(), Some(None));
    assert_eq!(is_open(keys, &link, lane, 7).await.ok(), Some(false));
    assert!(promised(keys, &link, lane).await.is_err());
    assert!(has_lost_log(keys, &link, lane).await.is_err());
}

#[tokio::test]
async fn a_redis_that_is_away_has_no_facts_of_a_lane() {
    let app = TestApp::start().await;
    let mut server = RedisServer::start(&[]);
    let redis = Redis::new(&server.url()).expect("a valid URL");
    let link = redis.link().await.expect("Redis answers");
    let lane = Lane::all(1).last().expect("there is one");
    assert_eq!(epoch(app.keys(), &link, lane).await.ok(), Some(None));
    server.kill();
    assert!(epoch(app.keys(), &link, lane).await.is_err());
    assert!(is_open(app.keys(), &link, lane, 1).await.is_err());
}

#[tokio::test]
async fn a_lane_is_begun_once() {
    let app = TestApp::start().await;
    let scripts = FenceScripts::new(app.keys().clone());
    let link = app.app.stores.redis.link().await.expect("Redis answers");
    let lane = Lane::all(3).last().expect("there are three");
    let ours = identity(&app.app.stores.pool).await.expect("Postgres answers");
    for (begun, found) in [(5, 5), (6, 5), (4, 5)] {
        assert_eq!(scripts.begin(&link, lane, begun, &ours).await.ok(), Some(found));
    }
    let others = Identity { installation: "another".into(), ..ours };
    let refused = scripts.begin(&link, lane, 5, &others).await;
    assert!(matches!(refused, Err(Failure::OtherInstallation(_))), "{refused:?}");
    let refused = scripts.fence(&link, lane, 9, &others).await;
    assert!(matches!(refused, Err(Failure::OtherInstallation(_))), "{refused:?}");
    assert_eq!(is_open(app.keys(), &link, lane, 5).await.ok(), Some(true));
}
