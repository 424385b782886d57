//! Sales, and orders, whose rows another session keeps locked in Postgres.

use flash_sale::base::limits;
use flash_sale::sale::coupon::stock;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::pass::Ran;
use tokio::time::Instant;

use super::cancellations::{cancelled, open, two_jobs};
use super::expiry;
use crate::support::lines::Lines;
use crate::support::{Bounded, TestApp, bounded, eventually};

const ALARM: &str = "ALARM: an item can't be dealt with";

/// More than a batch of due orders of one sale, and two younger ones of another.
async fn with_due() -> TestApp {
    let app = TestApp::with_sales(2).await;
    app.execute(
        "UPDATE flash_sales SET total = 1000, sold = 1000;
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_by)
         SELECT n, CASE WHEN n > 501 THEN 2048 ELSE 1024 END, 'flash', n, now(),
                now() - interval '2 days' + n * interval '1 s'
         FROM generate_series(1, 503) AS n",
    )
    .await;
    app
}

async fn pass(app: &TestApp) -> Option<Ran> {
    bounded("the end of the pass", app.app.expiry.pass()).await.ok()
}

/// A statement that waits for a lock ends with this code once it has waited for long. Here it ends at once.
async fn wait_in_vain(app: &TestApp, orders: &str) {
    app.refuse("UPDATE", "orders", orders, "55P03").await;
}

#[tokio::test]
async fn orders_of_other_sales_expire_while_a_session_keeps_the_row_of_a_sale() {
    let app = with_due().await;
    let other = app.holding("SELECT FROM flash_sales WHERE coupon_id = 1024 FOR UPDATE").await;
    wait_in_vain(&app, "NEW.coupon_id = 1024").await;
    app.let_newly_postponed_wait().await;
    app.count_statements("UPDATE", "orders").await;
    let lines = Lines::heard();
    assert_eq!(pass(&app).await, Some(Ran { items: 2, goes_on: false }));
    assert_eq!(app.statements().await, 2, "one waits in vain, and one closes the others");
    assert_eq!(app.postponed().await, ["expiry 1 1"], "an operator sees one order of the sale");
    assert_eq!(lines.count(ALARM), 1);

    assert_eq!(pass(&app).await, Some(Ran { items: 0, goes_on: false }));
    assert_eq!(app.statements().await, 1, "the sale is known, so nothing waits for it");
    assert_eq!((app.postponed().await.len(), lines.count(ALARM)), (1, 1));

    app.let_postponed_be_due().await;
    assert_eq!(pass(&app).await, Some(Ran { items: 0, goes_on: false }));
    assert_eq!(app.postponed().await, ["expiry 1 2"], "it waits for longer");

    other.rollback().await.expect("Postgres answers");
    app.accept("orders").await;
    app.let_postponed_be_due().await;
    assert_eq!(pass(&app).await, Some(Ran { items: 501, goes_on: false }));
    assert_eq!(app.postponed().await, [""; 0]);
    assert_eq!(app.number("SELECT count(*) FROM orders WHERE status = 'unpaid'").await, 0);
}

/// An order of the other sale is refused first, so the batch is closed coupon by coupon when the lock is met.
#[tokio::test]
async fn a_locked_sale_and_a_refused_order_hold_up_none_of_the_others() {
    let app = with_due().await;
    let other = app.holding("SELECT FROM flash_sales WHERE coupon_id = 2048 FOR UPDATE").await;
    app.let_newly_postponed_wait().await;
    app.execute(
        "DELETE FROM orders WHERE id BETWEEN 3 AND 501;
         CREATE FUNCTION refuse_in_parts() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'refused' USING ERRCODE =
                 CASE WHEN OLD.id = 1 THEN '23514' ELSE '55P03' END; END $$;
         CREATE TRIGGER in_parts BEFORE UPDATE ON orders FOR EACH ROW WHEN (OLD.id <> 2)
             EXECUTE FUNCTION refuse_in_parts()",
    )
    .await;
    for items in [1, 0] {
        let ran = pass(&app).await;
        assert_eq!(ran, Some(Ran { items, goes_on: false }), "one item stops nothing");
    }
    assert_eq!(app.postponed().await, ["expiry 1 1", "expiry 502 1"]);
    let unpaid = app.numbers("SELECT id FROM orders WHERE status = 'unpaid' ORDER BY id").await;
    assert_eq!(unpaid, [1, 502, 503]);
    other.rollback().await.expect("Postgres answers");
}

/// Each is refused for itself, whatever the lock.
#[tokio::test]
async fn refused_orders_of_a_locked_sale_are_all_postponed() {
    let app = expiry::with_due(3).await;
    let other = app.holding("SELECT FROM flash_sales WHERE coupon_id = 1024 FOR UPDATE").await;
    app.let_newly_postponed_wait().await;
    app.refuse("UPDATE", "orders", "true", "23514").await;
    assert_eq!(pass(&app).await, Some(Ran { items: 0, goes_on: false }));
    assert_eq!(app.postponed().await, ["expiry 1 1", "expiry 2 1", "expiry 3 1"]);
    other.rollback().await.expect("Postgres answers");
}

const IN_VAIN: &str = "55P03";

/// The errors of some tries, the locked orders, the number closed (none if the pass fails), and what is postponed.
type Tries<'a> = (&'a [&'a str], &'a str, Option<usize>, &'a [&'a str]);

/// Tries of a batch of four orders that end with these errors, while another session keeps some of the orders locked. All
/// further tries would pass. A batch is tried as a whole, and then by its coupon.
const TRIES: [Tries<'static>; 4] = [
    // Not an order's row: a half closes, and the other one.
    (&[IN_VAIN, IN_VAIN], "0", Some(4), &[]),
    // Twice in vain, and the other two close.
    (&[IN_VAIN, IN_VAIN, IN_VAIN], "2, 3", Some(2), &["expiry 2 1", "expiry 3 1"]),
    // A refusal has nothing to do with the locks: a half is tried, and then one order.
    (&["23514", "23514", "23514", "57014"], "2, 3", None, &[]),
    (&[IN_VAIN, IN_VAIN, IN_VAIN, "57014"], "2, 3", None, &["expiry 2 1", "expiry 3 1"]),
];

#[tokio::test]
async fn locked_orders_of_a_batch_are_postponed_once_two_tries_have_met_the_same_locks() {
    for (codes, locked, closed, postponed) in TRIES {
        let app = expiry::with_due(4).await;
        app.write_rows(&[(9, 2, "regular", 9, "unpaid")]).await;
        app.let_newly_postponed_wait().await;
        expiry::refuse_in_turn(&app, codes).await;
        let lock = format!("SELECT FROM orders WHERE id IN ({locked}) FOR SHARE");
        let other = app.holding(&lock).await;
        let items = pass(&app).await.map(|ran| ran.items);
        assert_eq!(items, closed, "{codes:?}");
        assert_eq!(app.postponed().await, postponed, "{codes:?}");
        assert_eq!(app.number("SELECT last_value FROM tries").await, 4, "{codes:?}");
        let locks = "SELECT xmax::text::bigint FROM orders WHERE id = 9";
        assert_eq!(app.number(locks).await, 0, "an order of no batch was never locked");
        other.rollback().await.expect("Postgres answers");
    }
}

/// Each try finds the orders locked by one session more, which is gone afterwards.
#[tokio::test]
async fn orders_that_change_hands_between_two_tries_are_not_postponed() {
    let app = expiry::with_due(4).await;
    expiry::refuse_in_turn(&app, &[IN_VAIN, IN_VAIN, IN_VAIN, "57014"]).await;
    app.execute(
        "CREATE FUNCTION join_holders() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM 1 FROM orders WHERE id IN (2, 3) FOR SHARE; RETURN NULL; END $$;
         -- Triggers run in the order of their names, and the other one ends the try.
         CREATE TRIGGER before_that BEFORE UPDATE ON orders FOR EACH STATEMENT EXECUTE FUNCTION join_holders()",
    )
    .await;
    let other = app.holding("SELECT FROM orders WHERE id IN (2, 3) FOR SHARE").await;
    assert_eq!((pass(&app).await, app.postponed().await), (None, vec![]));
    assert_eq!(app.number("SELECT last_value FROM tries").await, 4);
    other.rollback().await.expect("Postgres answers");
}

/// A change of the schema, say, which ends by itself.
#[tokio::test]
async fn a_locked_table_concerns_all_orders_and_postpones_none() {
    let app = with_due().await;
    let other = app.holding("LOCK TABLE flash_sales IN SHARE MODE").await;
    wait_in_vain(&app, "NEW.coupon_id = 1024").await;
    assert_eq!((pass(&app).await, app.postponed().await.len()), (None, 0));
    other.rollback().await.expect("Postgres answers");
    // Another session keeps some row that is neither a sale's nor an order's: each order is tried alone.
    app.accept("orders").await;
    wait_in_vain(&app, "NEW.id = 7").await;
    assert_eq!(pass(&app).await, Some(Ran { items: 502, goes_on: false }));
    assert_eq!(app.postponed().await, ["expiry 7 1"]);
}

/// As many orders of a job as fit into a batch wait for the sale, and one of another job for a session of its own.
#[tokio::test]
async fn jobs_that_cancel_go_on_with_what_no_session_keeps_locked() {
    let app = two_jobs().await;
    let sale = app.holding("SELECT FROM flash_sales WHERE coupon_id = 1024 FOR UPDATE").await;
    wait_in_vain(&app, "NEW.coupon_id = 1024 OR NEW.id = 22").await;
    for _ in 0..2 {
        let failed = app.app.cancellations.pass().bounded().await;
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!((cancelled(&app).await, open(&app).await), (vec![21], vec![1, 2]));
        assert_eq!(app.postponed().await.len(), 1, "the order of the job that goes on");
    }
    sale.rollback().await.expect("Postgres answers");
    app.accept("orders").await;
    app.let_postponed_be_due().await;
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (3, vec![]));
    assert_eq!(app.postponed().await, [""; 0]);
}

/// Each try that waits for a locked order in vain takes its time.
#[tokio::test]
async fn orders_that_a_session_keeps_locked_are_postponed_together() {
    let app = two_jobs().await;
    app.write_rows(&[(13, 1, "flash", 13, "unpaid"), (14, 1, "flash", 14, "unpaid")]).await;
    expiry::refuse_in_turn(&app, &[IN_VAIN, IN_VAIN]).await;
    let other = app.holding("SELECT FROM orders WHERE id IN (12, 13) FOR UPDATE").await;
    assert_eq!(app.cancel_for_jobs().await, 4);
    assert_eq!((cancelled(&app).await, open(&app).await), (vec![11, 14, 21, 22], vec![1]));
    assert_eq!(app.postponed().await, ["cancellations 12 1", "cancellations 13 1"]);
    assert_eq!(app.number("SELECT last_value FROM tries").await, 4, "two in vain, two that close");
    other.rollback().await.expect("Postgres answers");
    app.let_postponed_be_due().await;
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (2, vec![]));
}

/// Another process closes the same orders, say.
#[tokio::test]
async fn orders_that_are_locked_during_one_try_alone_are_not_postponed() {
    let app = two_jobs().await;
    expiry::refuse_in_turn(&app, &[IN_VAIN]).await;
    let other = app.holding("SELECT FROM orders WHERE id = 12 FOR UPDATE").await;
    let (cancelled_now, ()) = tokio::join!(app.cancel_for_jobs(), async {
        app.a_session_waits_for_a_row().await;
        other.rollback().await.expect("Postgres answers");
    });
    assert_eq!((cancelled_now, open(&app).await), (4, vec![]));
    assert_eq!(app.postponed().await, [""; 0]);
}

/// The row of a job concerns all of its orders.
#[tokio::test]
async fn a_job_whose_row_a_session_keeps_holds_up_no_other() {
    let app = two_jobs().await;
    let other = app.holding("SELECT FROM jobs WHERE coupon_id = 1024 FOR UPDATE").await;
    app.refuse("UPDATE", "jobs", "NEW.coupon_id = 1024", "55P03").await;
    app.count_statements("UPDATE", "orders").await;
    assert!(app.app.cancellations.pass().bounded().await.is_err());
    assert_eq!((cancelled(&app).await, app.postponed().await), (vec![21, 22], Vec::new()));
    assert_eq!(app.statements().await, 2, "one try for each job");
    other.rollback().await.expect("Postgres answers");
    app.accept("jobs").await;
    assert_eq!((app.cancel_for_jobs().await, open(&app).await), (2, vec![]));
}

/// Writers have the row of a sale that sells in turns.
#[tokio::test]
async fn a_row_that_changes_hands_is_kept_by_no_session() {
    let app = TestApp::with_sales(2).await;
    let lock = "SELECT FROM flash_sales WHERE coupon_id = 1024 FOR UPDATE";
    let look = async || {
        let locked = stock::locked_among(&app.app.stores.pool, [CouponId::compose(1, 1)]);
        locked.bounded().await.expect("Postgres answers").len()
    };
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let looks = || lines.count("FOR NO KEY UPDATE SKIP LOCKED");
    let lock_of_another = "SELECT xmax::text::bigint FROM flash_sales WHERE coupon_id = 2048";
    let before = app.number(lock_of_another).await;
    assert_eq!((look().await, looks()), (0, 1), "a row that is not locked needs no second look");
    assert_eq!(app.number(lock_of_another).await, before, "writers of others don't wait for it");

    let other = app.holding(lock).await;
    let began = Instant::now();
    assert_eq!(look().await, 1);
    assert!(began.elapsed() >= limits::KEPT_LOCK_MIN);
    other.rollback().await.expect("Postgres answers");

    // A busy machine may have both looks see one of the sessions.
    eventually("the row changes hands between two looks", async || {
        let (first, before) = (app.holding(lock).await, looks());
        let (locked, second) = tokio::join!(look(), async {
            eventually("the first look ends", async || looks() > before).await;
            tokio::join!(first.rollback(), app.holding(lock)).1
        });
        second.rollback().await.expect("Postgres answers");
        locked == 0
    })
    .await;
}
