//! The report of a recovery: the processes that it waited for in vain, and its metrics.

use serde_json::json;

use crate::faults::recovery::{command, keep, sell, start};
use crate::support::TestApp;
use crate::support::process::Process;

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
    let query = "/v1/recoveries?reason=data_lost&state=kept_all&lane=";
    let by_reason = app.get(&format!("{query}{}", coupon.lane()), &app.admin_token()).await;
    assert_eq!(by_reason.body["recoveries"][0], *recovery);
    assert_eq!(recovery["absent"], 1, "{recovery}");
    assert_eq!(recovery["absent_processes"], json!(["silent-1"]), "{recovery}");
    let said = command(&app, &["recoveries"]).await;
    assert!(said.contains("handed no receipts in: silent-1"), "{said}");
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

fn figure(page: &str, name: &str) -> f64 {
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
        "INSERT INTO receipts (order_id, coupon_id, user_id)
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
        ["receipt", "harvested", "superseded", "promised_without_unit"].map(of),
        [1.0, 1.0, 1.0, 0.0]
    );
    assert_eq!(figure(&page(), "flash_sale_lanes_recovering"), 0.0);
    assert_eq!(figure(&page(), "flash_sale_lane_closed_seconds_count"), 1.0);

    app.execute("UPDATE lanes SET state = 'recovering', reason = 'by hand', closed_at = now(), epoch = epoch + 1").await;
    let other = app.another_instance().await;
    app.execute("UPDATE lane_keeper SET process = 'another', until = now() + interval '1 hour'")
        .await;
    other.keeper.pass().await.expect("both stores answer");
    assert_eq!(figure(&other.metrics.page(), "flash_sale_lanes_recovering"), 1.0);
    app.execute("UPDATE lane_keeper SET until = '1970-01-01T00:00:00Z'").await;
    app.recover().await;
    assert_eq!(figure(&page(), "flash_sale_lanes_recovering"), 0.0);
}
