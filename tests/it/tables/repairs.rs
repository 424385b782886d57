//! Every finding, made real in the stores, and repaired: the repair, its other changes, the effect of a second
//! repair, and whether Redis is still believed about a user beside it.

use flash_sale::sale::ids::CouponId;
use flash_sale::sale::reconcile::Disagreement;
use serde_json::Value;

use crate::support::{Bounded, TestApp};

/// One finding, and its repair.
struct Row {
    code: &'static str,
    /// The way to make it: Redis commands, or `SQL` and statements. One line each.
    made: &'static str,
    /// All repairs that are tried, in the order of their names.
    repairs: &'static [&'static str],
    /// Tables that the repair changes. No repair changes Redis.
    changed: &'static [&'static str],
    /// Whether Redis is believed about another user of the sale, in the presence of this finding.
    believed: bool,
}

const fn row(
    code: &'static str,
    made: &'static str,
    repairs: &'static [&'static str],
    changed: &'static [&'static str],
    believed: bool,
) -> Row {
    Row { code, made, repairs, changed, believed }
}

const BELIEVED: bool = true;
const DOUBTED: bool = false;

/// Users 1 and 2 have unpaid orders, user 3 a paid one, user 4 has cancelled, and user 5 is beside all of this. Each
/// way makes one finding that takes the belief from Redis, or none. While Redis has an older revision its total isn't
/// compared.
#[rustfmt::skip]
const ROWS: [Row; 25] = [
    row("sale_missing", "DEL {sale}", &[], &[], DOUBTED),
    row("shards_missing", "DEL {empty_shard}", &[], &[], DOUBTED),
    row("sale_unreadable", "HSET {sale} revision x", &[], &[], DOUBTED),
    row("not_conserved", "HINCRBY {sale} stock -1", &[], &[], DOUBTED),
    row("negative_stock",
        "SQL UPDATE coupons SET revision = 2, updated_at = now()\nSQL UPDATE flash_sales SET applied_revision = 2\nHSET {sale} total 3 stock -1",
        &[], &[], DOUBTED),
    row("total_differs", "HINCRBY {sale} total 1\nHINCRBY {sale} stock 1", &[], &[], DOUBTED),
    row("terms_differ", "HSET {sale} opens_ms 7", &[], &[], BELIEVED),
    row("terms_differ", "HSET {sale} state paused", &[], &[], BELIEVED),
    row("revision_differs",
        "SQL UPDATE coupons SET revision = 2, updated_at = now() - interval '11 s'\nSQL UPDATE flash_sales SET applied_revision = 2",
        &["revision_differs true"], &["flash_sales"], BELIEVED),
    // Postgres has lost a change: there is nothing to apply.
    row("revision_differs", "HSET {sale} revision 3", &[], &[], BELIEVED),
    row("epoch_differs", "HSET {sale} epoch 9", &[], &[], DOUBTED),
    row("oversold",
        "SQL UPDATE coupons SET revision = 2, updated_at = now()\nSQL UPDATE flash_sales SET sold = 2, total = 2, applied_revision = 2",
        &["sold_miscounted false"], &[], DOUBTED),
    row("sold_miscounted", "SQL UPDATE flash_sales SET sold = 0", &["sold_miscounted true"], &["flash_sales"], BELIEVED),
    row("sold_miscounted", "SQL UPDATE flash_sales SET sold = total", &["sold_miscounted true"], &["flash_sales"], BELIEVED),
    row("order_lost", "SQL DELETE FROM orders WHERE user_id = 2\nSQL UPDATE flash_sales SET sold = sold - 1",
        &["order_lost true"], &["flash_sales", "orders"], BELIEVED),
    row("not_given_back",
        "SQL UPDATE orders SET status = 'cancelled', cancelled_at = now() WHERE user_id = 2\nSQL UPDATE flash_sales SET sold = sold - 1",
        &["not_given_back true", "place_not_freed true"], &["stock_returns"], BELIEVED),
    row("buyer_missing", "HDEL {shard_of_2} 2\nHINCRBY {sale} stock 1", &[], &[], DOUBTED),
    row("acknowledged_unwritten",
        "SQL DELETE FROM stock_returns WHERE user_id = 4\nSQL DELETE FROM orders WHERE user_id = 4", &[], &[], BELIEVED),
    row("pending_deleted",
        "XADD {log} 9999999999999-1 x y\nXREADGROUP GROUP order-writers x STREAMS {log} >\nXDEL {log} 9999999999999-1",
        &[], &[], BELIEVED),
    row("numbers_missing",
        "XADD {log} 9999999999998-1 coupon 999424 first 900 claims x\nXADD {log} 9999999999999-1 coupon 999424 first 902 claims y",
        &[], &[], BELIEVED),
    row("numbers_repeated",
        "XADD {log} 9999999999998-1 coupon 999424 first 1 claims x\nXADD {log} 9999999999999-1 coupon 999424 first 1 claims y",
        &[], &[], BELIEVED),
    // Without the log, the entries in flight are unknown.
    row("log_unreadable", "DEL {log}\nSET {log} x", &[], &[], DOUBTED),
    row("place_not_freed", "HSET {unpaid} 3 {paid}", &["place_not_freed true"], &["stock_returns"], BELIEVED),
    row("place_missing", "HDEL {unpaid} 2", &[], &[], BELIEVED),
    row("places_unreadable", "DEL {unpaid}\nSET {unpaid} x", &[], &[], BELIEVED),
];

/// A fault about user 5 beside the finding, and the effect of a repair that believes Redis.
const BESIDE: [(&str, &str, &str); 2] = [
    (
        "a lost order",
        "SQL DELETE FROM orders WHERE user_id = 5\nSQL UPDATE flash_sales SET sold = greatest(sold - 1, 0)",
        "SELECT count(*) FROM orders WHERE user_id = 5 AND status = 'unpaid'",
    ),
    (
        "a unit that wasn't given back",
        "SQL UPDATE orders SET status = 'cancelled', cancelled_at = now() WHERE user_id = 5\nSQL UPDATE flash_sales SET sold = greatest(sold - 1, 0)",
        "SELECT count(*) FROM stock_returns WHERE user_id = 5 AND what = 'unit'",
    ),
];

#[test]
fn every_finding_is_in_the_table() {
    for code in Disagreement::CODES {
        assert!(ROWS.iter().any(|row| row.code == code), "{code} isn't in the table");
    }
    for row in ROWS {
        assert!(Disagreement::CODES.contains(&row.code), "{} is no finding", row.code);
    }
}

async fn five_users() -> (TestApp, CouponId) {
    let app = TestApp::configured(&["--unpaid-orders-max", "9"]).await;
    let coupon = app.create_flash(1_000).await;
    for user in [1, 2, 5] {
        app.order(user, coupon).await;
    }
    app.paid_order(3, coupon).await;
    let cancelled = app.order(4, coupon).await;
    assert_eq!(app.cancel(4, cancelled).await.status, 200);
    app.give_back().await;
    app.changes_pass().await;
    assert!(app.reconcile().await.agrees());
    app.expect_disagreements();
    (app, coupon)
}

/// A shard without a buyer.
async fn empty_shard(app: &TestApp, coupon: CouponId) -> String {
    let mut shards = app.shard_keys(coupon).await;
    for user in 1..=5 {
        let own = app.shard_of(coupon, user).await;
        shards.retain(|shard| *shard != own);
    }
    shards.swap_remove(0)
}

async fn make(app: &TestApp, coupon: CouponId, made: &str) {
    let lane = coupon.lane();
    let paid = app.number("SELECT id FROM orders WHERE user_id = 3").await;
    for line in made.lines() {
        if let Some(statement) = line.strip_prefix("SQL ") {
            app.execute(statement).await;
            continue;
        }
        let line = line
            .replace("{sale}", &app.keys().coupon(coupon))
            .replace("{shard_of_2}", &app.shard_of(coupon, 2).await)
            .replace("{empty_shard}", &empty_shard(app, coupon).await)
            .replace("{log}", &app.log(lane))
            .replace("{unpaid}", &app.keys().unpaid(lane))
            .replace("{paid}", &paid.to_string());
        let _: redis::Value = app.redis(&line.split(' ').collect::<Vec<_>>()).await;
    }
}

/// Compares and repairs. Returns the findings' codes, and the repairs as `code done`, by name.
async fn repair(app: &TestApp, case: &str) -> (Vec<String>, Vec<String>) {
    let reply = app.compare(true).await;
    assert_eq!(reply.status, 200, "{case}: {reply:?}");
    let list = |name: &str, line: fn(&Value) -> String| {
        let mut lines: Vec<String> =
            reply.body[name].as_array().expect("a list").iter().map(line).collect();
        lines.sort();
        lines
    };
    let code = |one: &Value| one["code"].as_str().expect("a code").to_owned();
    let found = list("findings", code);
    let repairs =
        list("repairs", |one| format!("{} {}", one["code"].as_str().expect("a code"), one["done"]));
    (found, repairs)
}

#[tokio::test]
async fn each_finding_is_repaired_as_it_should_be_and_nothing_else_is() {
    for Row { code, made, repairs, changed, .. } in ROWS {
        let case = format!("{code} by {made:?}");
        let (app, coupon) = five_users().await;
        make(&app, coupon, made).await;
        let tables = app.tables().await;
        let keys = app.dump(coupon).await;
        let (found, done) = repair(&app, &case).await;
        assert!(found.iter().any(|found| found == code), "{case}: {found:?}");
        assert_eq!(done, repairs, "{case}");
        assert_eq!(app.changed_since(&tables).await, changed, "{case}");
        assert_eq!(app.dump(coupon).await, keys, "{case}: Redis is as it was");

        let tables = app.tables().await;
        let (_, again) = repair(&app, &case).await;
        assert!(again.iter().all(|line| line.ends_with("false")), "{case}: {again:?}");
        assert_eq!(app.changed_since(&tables).await, [""; 0], "{case}: nothing is done twice");
        assert_eq!(app.dump(coupon).await, keys, "{case}");

        // Units and places on their way arrive; then no repairable finding is left.
        app.changes_pass().await;
        app.app.stock_returns.pass().bounded().await.expect("both stores answer");
        let (found, last) = repair(&app, &case).await;
        let mended = repairs.iter().any(|line| *line == format!("{code} true"));
        assert_eq!(!found.contains(&code.to_owned()), mended, "{case}: {found:?}");
        assert!(last.iter().all(|line| line.ends_with("false")), "{case}: {last:?}");
    }
}

#[tokio::test]
async fn beside_a_finding_that_says_otherwise_redis_is_not_believed() {
    for (beside, damage, mended) in BESIDE {
        for Row { code, made, believed, .. } in ROWS {
            let case = format!("{beside} beside {code} by {made:?}");
            let (app, coupon) = five_users().await;
            make(&app, coupon, damage).await;
            make(&app, coupon, made).await;
            let (found, repairs) = repair(&app, &case).await;
            assert!(found.iter().any(|found| found == code), "{case}: {found:?}");
            assert_eq!(app.number(mended).await, i64::from(believed), "{case}: {repairs:?}");
        }
    }
}
