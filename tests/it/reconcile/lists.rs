//! `unpaid_lists`: each kind of order on a user's list, and off it, and more lists than one reply of Redis has.

use flash_sale::sale::ids::CouponId;

use crate::support::{Bounded, TestApp, lane};

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
const ORDERS: [(i64, i64, &str, &str); 9] = [
    (100, 20, "flash", "unpaid"),
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
const LISTED: [(i64, i64); 10] = [
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
    // In flight.
    (13, 1_013),
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
    let claim = ["coupon", &coupon.to_string(), "user", "13", "order", "1013"];
    app.append(lane(), &claim).await;
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
