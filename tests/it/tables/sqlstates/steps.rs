//! Writes with consequences of their own: the end of a job, and dead letters that are tried again or wait.

use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::order::cancellations::Asked;

use super::{CLASSES, Poison, decide, meaning_of, oversell};
use crate::support::{Bounded, TestApp};

/// A job is no item that could be put aside: the run fails, whatever Postgres says, and the other job ends.
#[tokio::test]
async fn the_end_of_a_job() {
    let app = TestApp::start().await;
    let jobs = &app.app.cancellations;
    let ended =
        async || app.numbers("SELECT coupon_id FROM jobs WHERE finished_at IS NOT NULL").await;
    for state in ["22003", "23514", "40001", "57014", "XX001"] {
        let (bad, good) = (app.create_flash(9).await, app.create_flash(9).await);
        for coupon in [bad, good] {
            app.order(1, coupon).await;
            let job = jobs.ask(coupon, "k", "wrong price", &Actor::command_line()).bounded().await;
            assert!(matches!(job, Ok(Asked::Job(_))), "{job:?}");
        }
        let ends = format!("NEW.coupon_id = {bad} AND NEW.finished_at IS NOT NULL");
        app.refuse("UPDATE", "jobs", &ends, state).await;
        let failed = jobs.pass().bounded().await;
        assert!(failed.is_err(), "{state}: the pass tells it");
        let now_ended = ended().await;
        assert!(!now_ended.contains(&bad.get()), "{state}: the refusal is real");
        assert!(now_ended.contains(&good.get()), "{state}: the other job ends");
        let unpaid = "SELECT count(*) FROM orders WHERE status = 'unpaid'";
        assert_eq!(app.number(unpaid).await, 0, "{state}: all orders are cancelled");
        assert_eq!(app.postponed().await, [""; 0], "{state}");
        app.accept("jobs").await;
        jobs.pass().bounded().await.expect("both stores answer");
        assert!(ended().await.contains(&bad.get()), "{state}: it ends by now");
        app.give_back().await;
    }
}

/// A letter whose order Postgres refuses stays, and its administrator is told so. After any other refusal the request is
/// tried again.
#[tokio::test]
async fn the_retry_of_one_letter() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    for (n, (write, table, is_of_order)) in (0..).zip([
        ("INSERT", "orders", true),
        ("UPDATE", "flash_sales", true),
        ("UPDATE", "dead_letters", false),
        ("INSERT", "audit", false),
    ]) {
        let order = oversell(&app, n + 1, coupon, n).await;
        let letter = format!(
            "SELECT count(*) FROM dead_letters WHERE order_id = {order} AND resolved_at IS NULL"
        );
        for state in CLASSES {
            let case = format!("{state} on {write} {table}");
            app.refuse(write, table, "true", state).await;
            let refused = decide(&app, order, "retry").await;
            app.accept(table).await;
            let expected = match is_of_order && meaning_of(state) == Poison {
                true => (409, "order_refused"),
                false => (503, "unavailable"),
            };
            assert_eq!(refused.refusal(), expected, "{case}");
            assert_eq!(app.number(&letter).await, 1, "{case}: it stays");
        }
        assert_eq!(decide(&app, order, "retry").await.status, 200, "{write} {table}");
        assert_eq!(app.number(&letter).await, 0, "{write} {table}");
        assert_eq!(app.status(n + 1, order).await, "unpaid", "{write} {table}");
    }
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, 4);
}

/// A sale whose only unit is sold, and a discarded letter, whose unit can't be told to exist. Returns the sale.
async fn with_a_letter_that_waits(app: &TestApp) -> CouponId {
    let coupon = app.create_flash(2).await;
    app.order(1, coupon).await;
    let order = oversell(app, 2, coupon, 1).await;
    assert_eq!(decide(app, order, "discard").await.status, 204);
    app.execute(&format!("UPDATE flash_sales SET total = 1 WHERE coupon_id = {coupon}")).await;
    coupon
}

/// Rows of letters that wait are put behind all others of their sale.
#[tokio::test]
async fn the_rows_of_letters_that_wait() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (bad, good) = (with_a_letter_that_waits(&app).await, with_a_letter_that_waits(&app).await);
    let of_bad = format!("NEW.coupon_id = {bad}");
    let pass = async || app.app.stock_returns.pass().bounded().await.is_ok();
    let last = async || {
        app.numbers("SELECT coupon_id FROM stock_returns WHERE updated_at > '2026-01-01' AND done_at IS NULL ORDER BY 1")
            .await
    };
    let rewind = "UPDATE stock_returns SET updated_at = '2025-12-31'; DELETE FROM postponed";
    for state in CLASSES {
        app.execute(rewind).await;
        app.refuse("UPDATE", "stock_returns", &of_bad, state).await;
        // No session keeps a whole table here, so a lock that is waited for in vain is one of the item's rows.
        let is_poison = meaning_of(state) == Poison || state == "55P03";
        assert_eq!(pass().await, is_poison, "{state}: one item stops nothing");
        app.accept("stock_returns").await;
        assert!(!last().await.contains(&bad.get()), "{state}: the refusal is real");
        if is_poison {
            assert_eq!(last().await, [good.get()], "{state}: the other one is put last");
            let noted = [bad, good].map(|coupon| format!("withdrawals {coupon} 1"));
            assert_eq!(app.postponed().await, noted, "{state}");
        }
    }
    app.execute(rewind).await;
    assert!(pass().await);
    assert_eq!(last().await, [bad.get(), good.get()]);
    app.execute("UPDATE flash_sales SET total = 2").await;
    app.let_postponed_be_due().await;
    app.execute("UPDATE stock_returns SET updated_at = now()").await;
    assert_eq!((app.give_back().await, app.postponed().await.len()), (2, 0));
    assert_eq!((app.stock(bad).await, app.stock(good).await), (1, 1));
}
