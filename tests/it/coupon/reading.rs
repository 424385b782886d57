//! Lists of the newest sales, and revisions that Redis has to catch up with: bounds, pages, and what is left out.

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::base::limits;
use flash_sale::sale::coupon::model::{CouponFilter, CouponKind};
use flash_sale::sale::ids::CouponId;

use crate::support::{Bounded, TestApp, later};

/// The time, in microseconds, as Postgres counts.
fn now() -> DateTime<Utc> {
    let now = crate::support::now().timestamp_micros();
    DateTime::from_timestamp_micros(now).expect("a time")
}

/// Sales of these sequences, in this state, whose windows end at this time. They aren't in Redis.
async fn sales(
    app: &TestApp,
    sequences: std::ops::RangeInclusive<i64>,
    state: &str,
    closes_at: DateTime<Utc>,
) {
    let (first, last) = sequences.into_inner();
    let ended = if state == "ended" { "now()" } else { "NULL" };
    app.execute(&format!(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents, currency, state, ended_at)
             SELECT n << 10, 'flash', 't', '', '', 1, 2, 'CNY', '{state}', {ended} FROM generate_series({first}, {last}) AS n;
         INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total)
             SELECT n << 10, '2020-01-01', '{closes_at}', 5 FROM generate_series({first}, {last}) AS n"
    ))
    .await;
}

async fn newest(app: &TestApp, at: DateTime<Utc>, limit: u32) -> Vec<i64> {
    let found = app.app.coupons.newest_sales(at, limit).await.expect("Postgres answers");
    found.iter().map(|coupon| coupon.id.sequence()).collect()
}

#[tokio::test]
async fn the_newest_sales_are_those_that_last_and_then_others() {
    let app = TestApp::start().await;
    let at = now();
    let (later, past) = (at + TimeDelta::hours(1), at - TimeDelta::hours(1));
    app.create_regular().await;
    assert_eq!(newest(&app, at, 3).await, [0; 0]);
    for (sequence, state, closes_at) in [
        (11, "active", later),
        (12, "paused", later),
        (13, "active", past),
        (14, "ended", later),
        (15, "paused", past),
        (16, "active", at),
        (17, "active", at + TimeDelta::microseconds(1)),
    ] {
        sales(&app, sequence..=sequence, state, closes_at).await;
    }
    for (limit, expected) in [
        (1, &[17][..]),
        (2, &[17, 12]),
        (3, &[17, 12, 11]),
        (4, &[17, 12, 11, 16]),
        (6, &[17, 12, 11, 16, 15, 14]),
        (9, &[17, 12, 11, 16, 15, 14, 13]),
    ] {
        assert_eq!(newest(&app, at, limit).await, expected, "{limit}");
    }
    let all = app.app.coupons.newest_sales(at, 9).await.expect("Postgres answers");
    let left: Vec<_> =
        all.iter().map(|coupon| coupon.sale.as_ref().and_then(|sale| sale.left)).collect();
    assert_eq!(left, [Some(5); 7], "no sale has been in Redis");
}

#[tokio::test]
async fn a_sale_that_lasts_is_looked_for_among_a_thousand_that_are_over() {
    let app = TestApp::start().await;
    let at = now();
    let (later, past) = (at + TimeDelta::hours(1), at - TimeDelta::hours(1));
    sales(&app, 1..=1, "active", later).await;
    sales(&app, 2..=100, "active", past).await;
    assert_eq!(newest(&app, at, 1).await, [1], "it is the last one of a page");
    sales(&app, 101..=101, "active", past).await;
    assert_eq!(newest(&app, at, 1).await, [1], "it is the first one of a page");
    sales(&app, 102..=1_000, "active", past).await;
    assert_eq!(newest(&app, at, 2).await, [1, 1_000], "it is the last one of the tenth page");
    sales(&app, 1_001..=1_001, "active", past).await;
    assert_eq!(newest(&app, at, 2).await, [1_001, 1_000], "ten pages are looked through");
}

#[tokio::test]
async fn a_full_page_of_sales_that_last_is_enough() {
    let app = TestApp::start().await;
    let at = now();
    let later = at + TimeDelta::hours(1);
    sales(&app, 1..=150, "active", later).await;
    sales(&app, 151..=160, "active", at).await;
    assert_eq!(newest(&app, at, 91).await, (60..=150).rev().collect::<Vec<i64>>());
    assert_eq!(newest(&app, at, 100).await, (51..=150).rev().collect::<Vec<i64>>());
    assert_eq!(newest(&app, at, 155).await.len(), 155);
}

/// A state that is none is found by no index of states.
#[tokio::test]
async fn list_of_all_coupons_fails_with_one_that_can_not_be_read_and_leaves_none_out() {
    let app = TestApp::start().await;
    sales(&app, 1..=3, "active", now() + TimeDelta::hours(1)).await;
    app.execute(
        "ALTER TABLE coupons DROP CONSTRAINT coupons_state_check;
         UPDATE coupons SET state = 'unknown' WHERE id >> 10 = 2",
    )
    .await;
    let list = async |kind| {
        let listed = app.app.coupons.list(CouponFilter { kind, state: None }, None, 9).await;
        listed.map(|all| all.iter().map(|coupon| coupon.id.sequence()).collect::<Vec<_>>()).ok()
    };
    assert_eq!(list(Some(CouponKind::Flash)).await, Some(vec![3, 1]));
    assert_eq!(list(None).await, None);
}

/// Sales in Redis.
async fn loaded(app: &TestApp, count: usize) -> Vec<CouponId> {
    let mut coupons = Vec::with_capacity(count);
    for _ in 0..count {
        coupons.push(app.create_flash(5).await);
    }
    coupons
}

#[tokio::test]
async fn older_revisions_in_redis_are_caught_up_with_and_no_others() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupons = loaded(&app, 7).await;
    let [older, same, newer, missing, unreadable, other_type, behind] = coupons[..] else {
        panic!("as many as asked for");
    };
    app.execute("UPDATE coupons SET revision = 5; UPDATE flash_sales SET applied_revision = 5")
        .await;
    let set = async |coupon, revision: &str| {
        let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "revision", revision]).await;
    };
    for (coupon, revision) in
        [(older, "1"), (same, "5"), (newer, "6"), (unreadable, "x"), (behind, "4")]
    {
        set(coupon, revision).await;
    }
    for coupon in [missing, other_type] {
        let _: i64 = app.redis(&["DEL", &app.keys().coupon(coupon)]).await;
    }
    let _: String = app.redis(&["SET", &app.keys().coupon(other_type), "x"]).await;
    // The script stumbles over this sale.
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(behind), "total", "x"]).await;
    let changes = &app.app.coupon_changes;
    assert_eq!(changes.catch_up().bounded().await.expect("both stores answer"), 2);
    let mut revisions = Vec::new();
    for coupon in [older, same, newer, unreadable, behind] {
        let [revision] = app.in_redis(coupon, ["revision"]).await;
        revisions.push(revision);
    }
    assert_eq!(revisions, ["5", "5", "6", "x", "4"]);
    let noted = format!("SELECT applied_revision FROM flash_sales WHERE coupon_id = {behind}");
    assert_eq!(app.number(&noted).await, 4, "the pass over changes tries it");
    let others = "SELECT count(*) FROM flash_sales WHERE applied_revision <> 5";
    assert_eq!(app.number(others).await, 1);
    assert_eq!(changes.pass().bounded().await.expect("both stores answer"), 0);
    assert_eq!(app.postponed().await, [format!("changes {behind} 1")]);
}

#[tokio::test]
async fn revisions_are_looked_at_every_ten_seconds() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let changes = &app.app.coupon_changes;
    app.execute("UPDATE coupons SET revision = 5; UPDATE flash_sales SET applied_revision = 5")
        .await;
    let caught_up = async || {
        let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "revision", "1"]).await;
        changes.catch_up_pass().bounded().await.expect("both stores answer")
    };
    assert_eq!([caught_up().await, caught_up().await], [1, 0]);
    later(limits::REVISIONS_PERIOD).await;
    assert_eq!([caught_up().await, caught_up().await], [1, 0]);
    assert_eq!(changes.catch_up().bounded().await.expect("both stores answer"), 1);
}

#[tokio::test]
async fn revisions_and_changes_are_gone_through_page_by_page() {
    let app = TestApp::start().await;
    loaded(&app, 101).await;
    let changes = &app.app.coupon_changes;
    changes.pass().bounded().await.expect("both stores answer");
    app.execute("UPDATE coupons SET revision = revision + 1").await;
    assert_eq!(changes.pass().bounded().await.expect("both stores answer"), 101);
    assert_eq!(changes.pass().bounded().await.expect("both stores answer"), 0);
    app.execute("UPDATE coupons SET revision = revision + 1; UPDATE flash_sales SET applied_revision = applied_revision + 1").await;
    assert_eq!(changes.catch_up().bounded().await.expect("both stores answer"), 101);
    assert_eq!(changes.catch_up().bounded().await.expect("both stores answer"), 0);
}

#[tokio::test]
async fn sales_that_open_soon_are_loaded_page_by_page_and_told() {
    let app = TestApp::start().await;
    let at = now();
    sales(&app, 1..=101, "active", at + TimeDelta::hours(1)).await;
    sales(&app, 102..=102, "ended", at + TimeDelta::hours(1)).await;
    let load = async || {
        let ahead = std::time::Duration::from_secs(60);
        app.app.loader.pass(ahead).bounded().await.expect("both stores answer")
    };
    assert_eq!([load().await, load().await], [101, 0]);
}
