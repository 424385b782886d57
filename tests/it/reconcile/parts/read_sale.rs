//! `read_sale`: a sale that changes while it is read is read again, a few times.

use flash_sale::sale::Stores;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::reconcile::{self, Disagreement};

use super::checked_while;
use crate::faults::recovery::start;
use crate::support::{Bounded, TestApp, script_calls};

async fn codes(app: &TestApp, coupon: CouponId) -> Vec<&'static str> {
    let Stores { pool, redis, keys } = &app.app.stores;
    let report =
        reconcile::check_sale(pool, redis, keys, coupon).bounded().await.expect("both answer");
    report.expect("it is held").disagreements.iter().map(Disagreement::code).collect()
}

/// A change reaches both stores after Postgres has been asked, and before Redis is.
#[tokio::test]
async fn read_sale_reads_a_sale_again_that_has_changed_in_between() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let report = checked_while(&app, coupon, async || {
        assert_eq!(app.restock(coupon, 3, "more").await.status, 200);
    })
    .await;
    let report = report.expect("it is held");
    assert_eq!((report.findings(), report.sales[0].total), (0, 8));
}

/// Redis has a newer revision for good, or no sale.
#[tokio::test]
async fn read_sale_reads_five_times_at_most() {
    let (_server, app) = start(&[]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    assert_eq!(codes(&app, coupon).await, [""; 0]);
    let key = app.keys().coupon(coupon);
    for (words, expected, reads) in [
        (vec!["HSET", &key, "revision", "1"], vec![], 1),
        (vec!["HSET", &key, "revision", "2"], vec!["revision_differs"], 5),
        (vec!["DEL", &key], vec!["sale_missing"], 5),
    ] {
        let _: i64 = app.redis(&words).await;
        let _: String = app.redis(&["CONFIG", "RESETSTAT"]).await;
        assert_eq!(codes(&app, coupon).await, expected);
        assert_eq!(script_calls(&app).await, reads, "{words:?}");
    }
}
