//! A lane is begun in Redis once, by its installation.

use flash_sale::sale::Failure;
use flash_sale::sale::fence::look::look_at;
use flash_sale::sale::fence::scripts::FenceScripts;
use flash_sale::sale::ids::Lane;
use flash_sale::sale::installation::{Identity, identity};

use crate::support::TestApp;

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
    let refused = scripts.fence(&link, (lane, 9), "order-writers", &others, false).await;
    assert!(matches!(refused, Err(Failure::OtherInstallation(_))), "{refused:?}");
    let seen = look_at(&app.app.stores.redis, app.keys(), lane).await.expect("Redis answers");
    assert!(seen.is_open(5), "{seen:?}");
}
