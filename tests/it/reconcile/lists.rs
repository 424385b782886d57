//! `unpaid_lists`: each kind of order on a user's list, and more lists than one reply of Redis has.

use crate::support::{TestApp, lane};

/// Findings about lists, without those about anything else.
async fn found(app: &TestApp) -> Vec<String> {
    let report = app.reconcile().await;
    let lists = report.disagreements.iter().filter(|found| found.code().starts_with("place"));
    let mut found: Vec<String> = lists.map(|found| format!("{}: {found}", found.code())).collect();
    found.sort();
    found
}

/// Orders by id: the user, the kind, the status, and whether a return takes it off the list.
const ORDERS: [(i64, i64, &str, &str, bool); 6] = [
    (1_001, 1, "flash", "unpaid", false),
    (1_002, 2, "flash", "paid", false),
    (1_003, 3, "flash", "paid", true),
    (1_004, 4, "flash", "paid", false),
    (1_005, 5, "regular", "paid", false),
    (1_006, 6, "flash", "paid", false),
];

/// Users with the order on their lists: the last two have none of them.
const LISTED: [(i64, i64); 7] =
    [(1, 1_001), (2, 1_002), (3, 1_003), (5, 1_005), (6, 1_006), (7, 1_004), (8, 1_099)];

#[tokio::test]
async fn a_list_names_no_order_of_its_user_that_is_paid_and_stays() {
    let app = TestApp::configured(&["--unpaid-orders-max", "2"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(99).await;
    for (order, user, kind, status, leaves) in ORDERS {
        let paid = if status == "paid" { "now()" } else { "NULL" };
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, paid_at, pay_method)
             VALUES ({order}, {coupon}, '{kind}', {user}, now(), '{status}', {paid}, CASE WHEN {paid} IS NOT NULL THEN 'balance' END);
             INSERT INTO stock_returns (order_id, what, coupon_id, user_id)
             SELECT {order}, 'place', {coupon}, {user} WHERE {leaves}"
        ))
        .await;
    }
    for (user, order) in LISTED {
        let key = app.keys().unpaid(lane());
        let _: i64 = app.redis(&["HSET", &key, &user.to_string(), &order.to_string()]).await;
    }
    let paid = |order: i64, user: i64| {
        format!("place_not_freed: coupon {coupon}: order {order} of user {user} is paid, and still")
    };
    let expected = [paid(1_002, 2), paid(1_006, 6)];
    let named = found(&app).await;
    let fits = named.iter().zip(&expected).all(|(words, begins)| words.starts_with(begins));
    assert!(fits && named.len() == expected.len(), "{named:#?}");
}

#[tokio::test]
async fn lists_are_read_to_the_end() {
    const LISTS: i64 = 1_500;
    let app = TestApp::configured(&["--unpaid-orders-max", "2"]).await;
    app.expect_disagreements();
    let coupon = app.create_flash(9).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, paid_at, pay_method)
         SELECT 10000 + n, {coupon}, 'flash', n, now(), 'paid', now(), 'balance' FROM generate_series(1, {LISTS}) AS n"
    ))
    .await;
    let mut command = redis::cmd("HSET");
    command.arg(app.keys().unpaid(lane()));
    for user in 1..=LISTS {
        command.arg(user).arg(10_000 + user);
    }
    app.app.stores.redis.query::<i64>(&command).await.expect("Redis answers");
    assert_eq!(i64::try_from(found(&app).await.len()).expect("some"), LISTS);
}
