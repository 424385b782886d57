//! `unpaid_lists`: each kind of order on a user's list, and off it, and more lists than one reply of Redis has.

use flash_sale::sale::ids::CouponId;
use flash_sale::sale::{Stores, reconcile};

use crate::support::lines::Lines;
use crate::support::played::{Play, Played, list as words, text};
use crate::support::{Bounded, TestApp, lane, patience};

/// Findings about lists, without those about anything else.
async fn found(app: &TestApp) -> Vec<String> {
    let report = app.reconcile().await;
    let lists = report.disagreements.iter().filter(|found| found.code().starts_with("place"));
    let mut found: Vec<String> = lists.map(|found| format!("{}: {found}", found.code())).collect();
    found.sort();
    found
}

async fn list(app: &TestApp, user: i64, order: i64) {
    let key = app.keys().unpaid(lane());
    let _: i64 = app.redis(&["HSET", &key, &user.to_string(), &order.to_string()]).await;
}

/// Orders by id: the user, the kind and the status.
const ORDERS: [(i64, i64, &str, &str); 12] = [
    (60, 30, "flash", "paid"),
    // From before the oldest order on a list of its user, and behind that.
    (100, 20, "flash", "unpaid"),
    (500, 16, "flash", "unpaid"),
    (600, 17, "flash", "unpaid"),
    (1_001, 1, "flash", "unpaid"),
    (1_002, 2, "flash", "paid"),
    (1_003, 3, "flash", "paid"),
    (1_004, 4, "flash", "paid"),
    (1_008, 8, "flash", "paid"),
    (1_010, 10, "flash", "unpaid"),
    (1_011, 11, "regular", "unpaid"),
    (1_012, 12, "regular", "paid"),
];

/// Users with the order on their lists.
const LISTED: [(i64, i64); 14] = [
    (1, 1_001),
    (2, 1_002),
    // On its way off the list, and off it by the outbox.
    (3, 1_003),
    (4, 1_004),
    // No row; then an open dead letter, and a closed one.
    (5, 1_005),
    (6, 1_006),
    (7, 1_007),
    // Another user's.
    (9, 1_008),
    (12, 1_012),
    // In flight, of the user and of another one.
    (13, 1_013),
    (19, 1_018),
    // Older than any other: no row, another user's, and the oldest of its user.
    (14, 50),
    (15, 60),
    (16, 500),
];

async fn prepare(app: &TestApp, coupon: CouponId) {
    for (order, user, kind, status) in ORDERS {
        let paid = if status == "paid" { "now()" } else { "NULL" };
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, paid_at, pay_method)
             VALUES ({order}, {coupon}, '{kind}', {user}, now(), '{status}', {paid}, CASE WHEN {paid} IS NOT NULL THEN 'balance' END)"
        ))
        .await;
    }
    app.execute(&format!(
        "INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at) VALUES
             (1003, 'place', {coupon}, 3, NULL), (1004, 'place', {coupon}, 4, now());
         INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at) VALUES
             (0, '1-1', '{{}}', 'conflict', '', {coupon}, 6, 1006, NULL), (0, '2-1', '{{}}', 'conflict', '', {coupon}, 7, 1007, now())"
    ))
    .await;
    for (user, order) in LISTED {
        list(app, user, order).await;
    }
    let coupon = coupon.to_string();
    for (user, order) in [("13", "1013"), ("18", "1018")] {
        app.append(lane(), &["coupon", &coupon, "user", user, "order", order]).await;
    }
}

#[tokio::test]
async fn unpaid_lists_name_unpaid_orders_and_all_of_them() {
    let app = TestApp::configured(&["--unpaid-orders-max", "2"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(99).await;
    for worker in &mut app.workers() {
        worker.ensure_group().bounded().await.expect("Redis answers");
    }
    prepare(&app, coupon).await;
    let not_freed = |user: i64, order: i64| {
        format!(
            "place_not_freed: lane 0: the list of unpaid orders of user {user} names order {order}"
        )
    };
    let paid = |order: i64, user: i64| {
        format!("place_not_freed: coupon {coupon}: order {order} of user {user} is paid, and still")
    };
    let mut expected = vec![
        paid(1_002, 2),
        paid(1_004, 4),
        not_freed(5, 1_005),
        not_freed(7, 1_007),
        not_freed(9, 1_008),
        not_freed(12, 1_012),
        not_freed(14, 50),
        not_freed(15, 60),
        not_freed(19, 1_018),
        format!("place_missing: coupon {coupon}: order 600 of user 17 is unpaid"),
        format!("place_missing: coupon {coupon}: order 1010 of user 10 is unpaid"),
    ];
    expected.sort();
    let named = found(&app).await;
    let fits = named.iter().zip(&expected).all(|(words, begins)| words.starts_with(begins));
    assert!(fits && named.len() == expected.len(), "{named:#?}");
    // Without an older order on a list, nothing tells that there was a bound.
    let _: i64 = app.redis(&["DEL", &app.keys().unpaid(lane())]).await;
    assert_eq!(found(&app).await, [""; 0]);
}

#[tokio::test]
async fn lists_are_read_to_the_end() {
    const LISTS: i64 = 1_500;
    let app = TestApp::configured(&["--unpaid-orders-max", "2"]).await;
    app.expect_disagreements();
    app.create_flash(9).await;
    let mut command = redis::cmd("HSET");
    command.arg(app.keys().unpaid(lane()));
    for user in 1..=LISTS {
        command.arg(user).arg(format!("{} {}", 10_000 + 2 * user, 10_001 + 2 * user));
    }
    app.app.stores.redis.query::<i64>(&command).await.expect("Redis answers");
    let named = found(&app).await;
    assert_eq!(i64::try_from(named.len()).expect("some"), 2 * LISTS);
    for user in [1, LISTS] {
        let words = format!("user {user} names order {}", 10_001 + 2 * user);
        assert!(named.iter().any(|line| line.contains(&words)), "{words}");
    }
}

/// A reply to HSCAN with this cursor, and one list of so many orders that there are not.
fn lists(cursor: &str, orders: usize) -> String {
    let orders: Vec<String> = (1..=orders).map(|n| n.to_string()).collect();
    format!("*2\r\n{}{}", text(cursor), words(&["7", &orders.join(" ")]))
}

/// The fewer orders the lists name, the more of them are asked for next time.
#[tokio::test]
async fn listed_orders_decide_how_many_lists_are_read_at_a_time() {
    let app = TestApp::start().await;
    app.create_flash(9).await;
    let played = Played::before(app.redis_url(), |command| match command {
        [name, key, ..] if name == "HSCAN" && key.ends_with("unpaid") => Play::Given,
        _ => Play::Real,
    })
    .await;
    let orders = [&[499, 500, 1_000][..], &[1_001; 8], &[0; 11]].concat();
    orders.iter().for_each(|orders| played.answer(lists("1", *orders)));
    played.answer(lists("0", 0));
    let Stores { pool, keys, .. } = &app.app.stores;
    let report = reconcile::check(pool, &played.redis(patience()), keys).bounded().await;
    assert!(report.expect("both stores answer").agrees(), "no list is there");
    let counts: Vec<String> = played.asked().into_iter().map(|words| words[4].clone()).collect();
    let expected = [
        &[100, 200, 200, 200][..],
        &[100, 50, 25, 12, 6, 3, 1, 1],
        &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000],
    ];
    let expected: Vec<String> = expected.concat().iter().map(i64::to_string).collect();
    assert_eq!(counts, expected);
}

/// Without a bound there are no lists.
#[tokio::test]
async fn unpaid_orders_are_not_read_where_no_list_is() {
    for (bound, are_read) in [("0", false), ("5", true)] {
        let app = TestApp::configured(&["--unpaid-orders-max", bound]).await;
        let coupon = app.create_flash(9).await;
        app.order(1, coupon).await;
        let lines = Lines::down_to(tracing::Level::DEBUG);
        assert!(app.reconcile().await.agrees());
        let reads = lines.count("WHERE status = 'unpaid' AND kind = 'flash'");
        assert_eq!(reads > 0, are_read, "{reads} with a bound of {bound}");
    }
}
