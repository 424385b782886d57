//! `readings` and `terms`: the last reading of each sale, the next one of the audit, and the sale's terms in Postgres.

use flash_sale::sale::Stores;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::reconcile::gauges::side_by_side;
use flash_sale::sale::reconcile::{Report, check_sale};

use crate::support::{Bounded, TestApp};

/// Has the audit read this sale, whose last reading is old, as the next one.
async fn read(app: &TestApp, coupon: CouponId) {
    app.execute(&format!(
        "UPDATE sale_readings SET read_at = now() - interval '2 hours' WHERE coupon_id = {coupon};
         UPDATE sale_reading_audit SET next_at = now()"
    ))
    .await;
    let read = app.app.reconciler.audit_next().bounded().await.expect("both stores answer");
    assert_eq!(read, Some(coupon));
}

/// Marks of both sides of a sale, and whether its reading is good, with its codes; it was made just now.
async fn noted(app: &TestApp, coupon: CouponId) -> [String; 3] {
    let of_sale = format!("FROM sale_readings WHERE coupon_id = {coupon}");
    let new = format!("SELECT count(*) {of_sale} AND read_at > now() - interval '1 hour'");
    assert_eq!(app.number(&new).await, 1);
    let facts = format!(
        "SELECT unnest(ARRAY[in_redis, in_postgres, concat_ws(' ', is_good, array_to_string(codes, ' '))]) {of_sale}"
    );
    app.texts(&facts).await.try_into().expect("there are three")
}

#[tokio::test]
async fn note_of_a_reading_takes_the_place_of_the_one_before() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let order = app.order(1, coupon).await;
    read(&app, coupon).await;
    let first = noted(&app, coupon).await;
    assert_eq!(first[2], "t ");
    app.set_buyer(coupon, 1, 77).await;
    read(&app, coupon).await;
    let second = noted(&app, coupon).await;
    assert_eq!(second[..2], first[..2], "no script writes such a thing");
    assert_eq!(second[2], "f buyer_missing order_lost");
    app.set_buyer(coupon, 1, order).await;
    app.order(2, coupon).await;
    read(&app, coupon).await;
    let third = noted(&app, coupon).await;
    assert_eq!(third[2], "t ");
    assert!(third[0] != first[0] && third[1] != first[1], "{first:?} {third:?}");
}

/// The sales are read between two looks at whether the audit rests.
#[tokio::test]
async fn next_of_audit_is_none_if_another_process_has_had_it_rest_meanwhile() {
    let app = TestApp::start().await;
    app.create_flash(5).await;
    app.execute("UPDATE sale_reading_audit SET next_at = now()").await;
    let held = app.holding("LOCK TABLE flash_sales").await;
    let asks = app.app.reconciler.audit_next().bounded();
    let rests = async {
        app.a_session_waits_for_a_row().await;
        app.execute("UPDATE sale_reading_audit SET next_at = now() + interval '30 min'").await;
        held.rollback().await.expect("Postgres answers");
    };
    let (next, ()) = tokio::join!(asks, rests);
    assert_eq!(next.expect("both stores answer"), None);
    assert_eq!(app.number("SELECT count(*) FROM sale_readings").await, 0);
}

async fn check(app: &TestApp, coupon: CouponId) -> Option<Report> {
    let Stores { pool, redis, keys } = &app.app.stores;
    check_sale(pool, redis, keys, coupon).await.expect("both stores answer")
}

/// Codes of the disagreements of a sale that Redis has to hold.
async fn found(app: &TestApp, coupon: CouponId) -> Vec<&'static str> {
    let report = check(app, coupon).await.expect("Redis has to hold it");
    report.disagreements.iter().map(|one| one.code()).collect()
}

#[tokio::test]
async fn terms_are_those_of_the_sale_and_of_its_lane_while_that_is_open() {
    let app = TestApp::with_lanes(2).await;
    app.expect_disagreements();
    let (one, two) = (app.create_flash(5).await, app.create_flash(7).await);
    app.restock(two, 1, "k").await;
    for coupon in [one, two] {
        assert_eq!(found(&app, coupon).await, [""; 0]);
    }
    let epoch = |state: &str, epoch: i64| {
        format!(
            "UPDATE lanes SET epoch = {epoch}, state = '{state}', closed_at = now(), reason = 'x' WHERE lane = {}",
            two.lane()
        )
    };
    app.execute(&epoch("recovering", 9)).await;
    assert_eq!(found(&app, two).await, [""; 0], "a recovery takes it over into its epoch");
    app.execute(&epoch("open", 9)).await;
    assert_eq!(found(&app, two).await, ["epoch_differs"]);
    assert_eq!(found(&app, one).await, [""; 0]);
    app.execute(&epoch("open", 1)).await;

    let change = |seconds: i64| {
        format!(
            "UPDATE coupons SET revision = revision + 1, updated_at = now() + {seconds} * interval '1 s' WHERE id = {one}"
        )
    };
    app.execute(&change(1_800)).await;
    assert_eq!(found(&app, one).await, [""; 0], "it will be applied in a moment");
    app.execute(&change(-11)).await;
    assert_eq!(found(&app, one).await, ["revision_differs"]);
    assert_eq!(found(&app, two).await, [""; 0]);

    app.execute(&format!("UPDATE flash_sales SET archived_at = now() WHERE coupon_id = {one}"))
        .await;
    assert!(check(&app, one).await.is_none(), "it is archived");
    app.execute(&format!(
        "UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, archived_at = NULL WHERE coupon_id = {one}"
    ))
    .await;
    assert!(check(&app, one).await.is_none(), "it has never been loaded");
    assert_eq!(found(&app, two).await, [""; 0]);
}

#[tokio::test]
async fn in_postgres_a_sale_stands_with_its_own_numbers() {
    let app = TestApp::start().await;
    let (one, two) = (app.create_flash(5).await, app.create_flash(7).await);
    app.order(1, two).await;
    app.restock(two, 1, "k").await;
    for (coupon, expected) in [(one, (5, 0, 1)), (two, (8, 1, 2))] {
        let shown = side_by_side(&app.app.stores, coupon).await.expect("both stores answer");
        let sale = shown.expect("it has a sale").postgres;
        assert_eq!((sale.total, sale.sold, sale.revision), expected, "{coupon}");
    }
}
