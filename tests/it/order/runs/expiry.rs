//! Expiry: batches of a run, and failures of a batch.

use flash_sale::sale::pass::Ran;

use crate::support::lines::Lines;
use crate::support::{TestApp, bounded};

async fn pass(app: &TestApp) -> Ran {
    bounded("the end of the pass", app.app.expiry.pass()).await.expect("Postgres answers")
}

/// Writes orders of sale 1 by hand that are due, the first one for the longest time.
async fn write_due(app: &TestApp, first: i64, count: i64) {
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_by)
         SELECT n, 1024, 'flash', n, now(), now() - interval '2 days' + n * interval '1 s'
         FROM generate_series({first}, {first} + {count} - 1) AS n"
    ))
    .await;
}

pub(super) async fn with_due(count: i64) -> TestApp {
    let app = TestApp::with_sales(1).await;
    app.execute("UPDATE flash_sales SET total = 100000, sold = 50000").await;
    write_due(&app, 1, count).await;
    app
}

async fn unpaid(app: &TestApp) -> Vec<i64> {
    app.numbers("SELECT id FROM orders WHERE status = 'unpaid' ORDER BY id").await
}

/// From now on Postgres refuses to expire an order: with the first of these codes at the first try, and so on.
pub(super) async fn refuse_in_turn(app: &TestApp, codes: &[&str]) {
    let codes = codes.join(", ");
    app.execute(&format!(
        "DROP SEQUENCE IF EXISTS tries; CREATE SEQUENCE tries;
         CREATE OR REPLACE FUNCTION refuse_in_turn() RETURNS trigger LANGUAGE plpgsql AS $$
             DECLARE codes text[] := '{{{codes}}}'; code text := codes[nextval('tries')::integer];
             BEGIN
                 IF code IS NOT NULL THEN RAISE EXCEPTION 'refused' USING ERRCODE = code; END IF;
                 RETURN NULL;
             END $$;
         CREATE TRIGGER in_turn BEFORE UPDATE ON orders FOR EACH STATEMENT EXECUTE FUNCTION refuse_in_turn()"
    ))
    .await;
}

#[tokio::test]
async fn a_run_of_expiry_ends_with_the_first_batch_that_is_not_full() {
    let app = with_due(0).await;
    app.count_statements("UPDATE", "orders").await;
    let mut next = 1;
    for (count, batches) in [(0, 1), (1, 1), (499, 1), (500, 2), (501, 2), (1_001, 3)] {
        write_due(&app, next, count).await;
        next += count;
        let items = usize::try_from(count).expect("a few");
        assert_eq!(pass(&app).await, Ran { items, goes_on: false }, "{count} orders");
        assert_eq!(app.statements().await, batches, "{count} orders");
    }
}

#[tokio::test]
async fn a_run_of_expiry_has_ten_batches_and_tells_whether_it_goes_on() {
    let app = with_due(5_001).await;
    assert_eq!(pass(&app).await, Ran { items: 5_000, goes_on: true });
    assert_eq!(unpaid(&app).await, [5_001]);
    assert_eq!(pass(&app).await, Ran { items: 1, goes_on: false });
}

/// One order of a batch is refused: the batch is closed by its coupons.
#[tokio::test]
async fn a_refused_batch_by_coupon_is_full_or_ends_the_run_like_any_other() {
    let app = with_due(3).await;
    app.count_statements("UPDATE", "orders").await;
    app.let_newly_postponed_wait().await;
    app.refuse("UPDATE", "orders", "OLD.id IN (2, 1002, 2002)", "23514").await;
    assert_eq!(pass(&app).await, Ran { items: 2, goes_on: false });
    // The batch; all three, the first, both others, each of them.
    assert_eq!(app.statements().await, 6, "and no further batch");
    // A full batch, and one more order behind it.
    write_due(&app, 1_001, 501).await;
    assert_eq!(pass(&app).await, Ran { items: 500, goes_on: false });
    assert_eq!(unpaid(&app).await, [2, 1_002]);
    // One less is not full.
    write_due(&app, 2_001, 499).await;
    assert_eq!(pass(&app).await, Ran { items: 498, goes_on: false });
    assert_eq!(unpaid(&app).await, [2, 1_002, 2_002]);
}

/// Refusals that concern one order, and failures that concern all of them. A lock that no statement has met changes
/// nothing about these.
#[tokio::test]
async fn a_failure_that_concerns_all_orders_ends_the_batch_and_postpones_none() {
    let app = with_due(4).await;
    for (codes, expected) in [
        (&["57014"][..], None),
        (&["23514", "57014"], None),
        (&["23514", "23514", "57014"], None),
        (&["23514"], Some(4)),
    ] {
        refuse_in_turn(&app, codes).await;
        let lock = if expected.is_none() { "FOR UPDATE" } else { "" };
        let other = app.holding(&format!("SELECT FROM flash_sales {lock}")).await;
        let ran = bounded("the end of the pass", app.app.expiry.pass()).await;
        other.rollback().await.expect("Postgres answers");
        assert_eq!(ran.ok().map(|ran| ran.items), expected, "{codes:?}");
        assert_eq!(app.postponed().await.len(), 0, "{codes:?}");
        app.execute("DROP TRIGGER in_turn ON orders").await;
        if expected.is_none() {
            assert_eq!(unpaid(&app).await, [1, 2, 3, 4], "{codes:?}");
        }
    }
    assert_eq!(unpaid(&app).await, [0; 0]);
}

/// The sale counts fewer orders than there are: the others are postponed together, with one alarm.
#[tokio::test]
async fn close_what_can_be_postpones_together_what_a_sale_does_not_count() {
    for (counted, closed, alarms) in [(5, 5, 0), (3, 3, 1), (0, 0, 1)] {
        let app = with_due(5).await;
        app.execute(&format!("UPDATE flash_sales SET sold = {counted}")).await;
        let lines = Lines::heard();
        assert_eq!(pass(&app).await.items, closed, "{counted}");
        let told = lines.with("ALARM: an item can't be dealt with");
        assert_eq!(told.len(), alarms, "{told:?}");
        let others = format!("others={}", 4_usize.saturating_sub(closed));
        assert!(told.iter().all(|line| line.contains(&others)), "{told:?}");
        assert_eq!(app.postponed().await.len(), 5 - closed, "{counted}");
        assert_eq!(app.number("SELECT sold FROM flash_sales").await, 0);
    }
}

/// One order is the culprit, by itself or by the count of its sale, which is right.
#[tokio::test]
async fn close_what_can_be_halves_a_part_until_its_culprit_stands_alone() {
    for (kind, constraint) in
        [("flash", "flash_sales_sold_within_total"), ("flash", "another"), ("regular", "another")]
    {
        let app = with_due(4).await;
        app.execute(&format!(
            "-- A regular coupon has no sale.
             UPDATE orders SET kind = '{kind}', coupon_id = CASE '{kind}' WHEN 'flash' THEN 1024 ELSE 2048 END;
             UPDATE flash_sales SET sold = 4;
             CREATE FUNCTION refuse_one() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '23514', CONSTRAINT = '{constraint}'; END $$;
             CREATE TRIGGER culprit BEFORE UPDATE ON orders FOR EACH ROW WHEN (OLD.id = 3) EXECUTE FUNCTION refuse_one();"
        ))
        .await;
        let closed = pass(&app).await.items;
        assert_eq!((closed, unpaid(&app).await), (3, vec![3]), "{kind}, {constraint}");
        assert_eq!(app.postponed().await, ["expiry 3 1"], "{kind}, {constraint}");
    }
}

/// The oldest order is one of an older version, whose time counts from its row on.
#[tokio::test]
async fn a_refused_batch_closes_those_first_that_have_been_due_for_longest() {
    let app = with_due(4).await;
    app.execute(
        "UPDATE orders SET pay_by = NULL, created_at = now() - interval '3 days' WHERE id = 1",
    )
    .await;
    app.refuse("UPDATE", "orders", "OLD.id = 2", "23514").await;
    assert_eq!((pass(&app).await.items, unpaid(&app).await), (3, vec![2]));
    // 2 is tried with 1 first, then with none; 3 and 4 follow together.
    let in_turn = "SELECT id FROM orders WHERE status = 'expired' ORDER BY expired_at, id";
    assert_eq!(app.numbers(in_turn).await, [1, 3, 4]);
}
