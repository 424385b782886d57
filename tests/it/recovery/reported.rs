//! The report of a recovery: the processes that it waited for in vain, and its metrics.

use std::iter::repeat_n;

use serde_json::json;

use crate::faults::recovery::{keep, sell, start};
use crate::support::process::Process;
use crate::support::{Bounded, TestApp, user};

/// A registered process that seems to live.
async fn silent_process(app: &TestApp) {
    app.execute(
        "INSERT INTO processes (process, beat_at) VALUES ('silent-1', now() + interval '1 hour')",
    )
    .await;
}

#[tokio::test]
async fn a_process_that_handed_nothing_in_is_named() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    silent_process(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    keep(&app).await;
    let list = app.get("/v1/recoveries", &app.admin_token()).await;
    let recovery = &list.body["recoveries"][0];
    for (lane, expected) in [(coupon.lane().get(), 1), (62, 0)] {
        let filtered = format!("/v1/recoveries?state=kept_all&lane={lane}");
        let filtered = app.get(&filtered, &app.admin_token()).await;
        assert_eq!(filtered.body["recoveries"].as_array().map(Vec::len), Some(expected));
    }
    assert_eq!(recovery["absent"], 1, "{recovery}");
    assert_eq!(recovery["absent_processes"], json!(["silent-1"]), "{recovery}");
}

#[tokio::test]
async fn the_log_line_of_the_opening_names_it() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    let service = Process::serve(&app, &[]);
    sell(&app, coupon, 1..=3).await;
    silent_process(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    let line = service.logged("the lane is open again").await;
    assert!(line.contains("silent-1"), "{line}");
}

pub fn figure(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().expect("a number")
}

#[tokio::test]
async fn a_recovery_shows_in_the_metrics() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(6).await;
    sell(&app, coupon, 1..=2).await;
    app.write_orders().await;
    // User 3 is known to Redis alone, and user 4 to a process alone; user 2 has claimed again since the first claim.
    sell(&app, coupon, 3..=3).await;
    keep(&app).await;
    let page = || app.app.metrics.page();
    assert_eq!(figure(&page(), "flash_sale_lanes_recovering"), 0.0);
    assert_eq!(figure(&page(), "flash_sale_lane_closed_seconds_count"), 0.0);
    let first = app.number("SELECT min(id) FROM orders").await;
    app.execute(&format!(
        "INSERT INTO unwritten_claims (order_id, coupon_id, user_id)
         VALUES ({first} - 2, {coupon}, 2), ({first} - 1, {coupon}, 4)"
    ))
    .await;
    let lane = app.keys().lane(coupon.lane());
    let _: i64 = app.redis(&["DEL", &app.log(coupon.lane()), &lane]).await;
    keep(&app).await;
    let of = |outcome: &str| {
        figure(&page(), &format!("flash_sale_recovered_claims_total{{outcome=\"{outcome}\"}}"))
    };
    assert_eq!(
        ["unwritten", "harvested", "superseded", "accepted_without_unit"].map(of),
        [1.0, 1.0, 1.0, 0.0]
    );
    assert_eq!(figure(&page(), "flash_sale_lanes_recovering"), 0.0);
    assert_eq!(figure(&page(), "flash_sale_lane_closed_seconds_count"), 1.0);

    app.execute("UPDATE lanes SET state = 'recovering', reason = 'by hand', closed_at = now(), epoch = epoch + 1").await;
    let other = app.another_instance().await;
    // The first one leads still.
    other.leaders.first().run_once().bounded().await.expect("both stores answer");
    assert_eq!(figure(&other.metrics.page(), "flash_sale_lanes_recovering"), 1.0);
    app.recover().await;
    assert_eq!(figure(&page(), "flash_sale_lanes_recovering"), 0.0);
}

/// As many promises as may wait to be written, and five more.
#[tokio::test]
async fn a_process_remembers_as_many_promises_as_may_wait() {
    let app = TestApp::configured(&["--backlog-orders-max", "150000"]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=1).await;
    app.write_orders().await;
    let unwritten = &app.app.unwritten;
    let told = (user(1), unwritten.of(coupon.lane())[0].order);
    let dropped = || figure(&app.app.metrics.page(), "flash_sale_unwritten_claims_dropped_total");
    unwritten.note(coupon, repeat_n(told, 149_999));
    app.app.unwritten_job().bounded().await;
    assert_eq!((unwritten.dropped(), dropped()), (0, 0.0));
    unwritten.note(coupon, repeat_n(told, 5));
    app.app.unwritten_job().bounded().await;
    assert_eq!(dropped(), 5.0);
}

/// Four claims that only a process that died has promised; Redis is emptied before they are written.
#[tokio::test]
async fn promises_that_nothing_knows_any_more_are_counted() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    app.app.unwritten_job().bounded().await;
    sell(&app, coupon, 1..=2).await;
    app.write_orders().await;
    app.next_second().await;
    keep(&app).await;
    let other = app.another_instance().await;
    for id in 3..=6 {
        other.claims.claim(coupon, user(id)).await.expect("Redis answers");
    }
    sell(&app, coupon, 7..=7).await;
    keep(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    app.recover().await;
    let unsettled = "/v1/recoveries?state=unsettled";
    let list = app.get(unsettled, &app.admin_token()).await;
    let recovery = &list.body["recoveries"][0];
    assert_eq!(
        (&recovery["unknown"], &recovery["unwritten"]),
        (&json!(4), &json!(1)),
        "{recovery}"
    );
    let all_kept = app.get("/v1/recoveries?state=kept_all", &app.admin_token()).await;
    assert_eq!(all_kept.body["recoveries"], json!([]));
    let metric = "flash_sale_recovered_claims_total{outcome=\"unknown\"}";
    assert_eq!(figure(&app.app.metrics.page(), metric), 4.0);
    let settle = format!("/v1/recoveries/{}/settle", recovery["id"].as_str().expect("an id"));
    let note = json!({"note": "support has been told to expect four buyers"});
    assert_eq!(app.post(&settle, &app.admin_token(), &note).await.status, 204);
    assert_eq!(app.get(unsettled, &app.admin_token()).await.body["recoveries"], json!([]));

    // They are counted once; and what is a row is known, whether it was written before the loss or by the recovery.
    sell(&app, coupon, 3..=4).await;
    app.write_orders().await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    app.recover().await;
    sell(&app, coupon, 5..=5).await;
    keep(&app).await;
    let _: i64 = app.redis(&["DEL", &app.log(coupon.lane())]).await;
    app.recover().await;
    let list = app.get("/v1/recoveries", &app.admin_token()).await;
    let unknown = |n: usize| &list.body["recoveries"][n]["unknown"];
    assert_eq!([unknown(0), unknown(1), unknown(2)], [0, 0, 4].map(|n| json!(n)).each_ref());
    // Four orders were promised, and are none.
    app.expect_disagreements();
}
