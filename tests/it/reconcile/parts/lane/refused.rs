//! `lane`: a command about logs that Redis refuses ends the comparison, and a key of another type is a finding.

use flash_sale::sale::Stores;
use flash_sale::sale::reconcile::{self, Disagreement};

use super::deliver;
use crate::faults::recovery::start_with;
use crate::support::played::{OTHER_TYPE, Play, Played, REFUSED};
use crate::support::{Bounded, TestApp, patience};

/// A command that Redis refuses for a while is no fault of the lane.
#[tokio::test]
async fn lanes_are_not_compared_while_redis_refuses_to_tell_of_their_logs() {
    let (_server, app) = start_with(&["--unpaid-orders-max", "5"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    assert_eq!(app.claim(2, coupon).await.status, 202);
    assert_eq!(deliver(&app, coupon.lane()).await.len(), 1);
    app.execute("UPDATE flash_sales SET loaded_at = NULL, load_id = NULL").await;
    let Stores { pool, redis, keys } = &app.app.stores;
    for command in ["xinfo", "xrange", "xpending", "hscan"] {
        app.permit(&format!("-{command}")).await;
        let refused = reconcile::check(pool, redis, keys).bounded().await;
        app.permit(&format!("+{command}")).await;
        assert!(refused.is_err(), "{command}: {refused:?}");
        let report =
            reconcile::check(pool, redis, keys).bounded().await.expect("both stores answer");
        assert_eq!((report.findings(), report.in_flight), (0, 1), "{command}");
    }
}

/// The logs of the lane are asked for together, and one by one only if one of them can't be read.
#[tokio::test]
async fn states_of_logs_that_redis_refuses_to_tell_end_the_comparison() {
    let app = TestApp::start().await;
    app.create_flash(5).await;
    let played = Played::before(app.redis_url(), |command| match command {
        [name, of, ..] if name == "XINFO" && of == "GROUPS" => Play::Given,
        _ => Play::Real,
    })
    .await;
    let (redis, Stores { pool, keys, .. }) = (played.redis(patience()), &app.app.stores);
    for (answers, fails) in [
        (&[][..], false),
        (&[REFUSED], true),
        (&[OTHER_TYPE, OTHER_TYPE], false),
        (&[OTHER_TYPE, OTHER_TYPE, REFUSED], true),
    ] {
        answers.iter().for_each(|answer| played.answer(*answer));
        let compared = reconcile::check(pool, &redis, keys).bounded().await;
        assert_eq!(compared.is_err(), fails, "{answers:?}: {compared:?}");
    }
}

/// The group may be missing.
#[tokio::test]
async fn pending_entries_of_lanes_that_redis_refuses_to_tell_end_the_comparison() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    // The worker has to read the entry once more.
    let log = app.log(coupon.lane());
    let _: String = app.redis(&["XGROUP", "SETID", &log, "order-writers", "0"]).await;
    let played = Played::before(app.redis_url(), |command| match &*command[0] {
        "XPENDING" => Play::Given,
        _ => Play::Real,
    })
    .await;
    let (redis, Stores { pool, keys, .. }) = (played.redis(patience()), &app.app.stores);
    for (answer, codes) in [
        ("-NOGROUP No such key\r\n", Some(&[][..])),
        (OTHER_TYPE, Some(&["log_unreadable"])),
        (REFUSED, None),
    ] {
        played.answer(answer);
        let compared = reconcile::check(pool, &redis, keys).bounded().await.ok();
        let found = compared
            .map(|report| report.disagreements.iter().map(Disagreement::code).collect::<Vec<_>>());
        assert_eq!(found.as_deref(), codes, "{answer}");
    }
}
