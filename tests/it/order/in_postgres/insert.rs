//! Rows of claims: their values, and the fate of those that are there already.

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::sale::log::LoggedClaim;
use flash_sale::sale::order::insert::Written;
use tokio_util::sync::CancellationToken;

use super::{begin, claim, insert_by_hand, move_rows, write};
use crate::support::lines::{Lines, rows_returned};
use crate::support::{TestApp, lane, now, sale};

async fn orders(app: &TestApp) -> Vec<String> {
    let orders =
        "SELECT concat_ws(' ', id, coupon_id >> 10, kind, user_id, status) FROM orders ORDER BY id";
    app.texts(orders).await
}

async fn sold(app: &TestApp) -> Vec<i64> {
    app.numbers("SELECT sold FROM flash_sales ORDER BY coupon_id").await
}

/// Seconds between the claim, and the row, of each order and its deadline; -1 for those that don't matter.
async fn deadlines(app: &TestApp) -> Vec<String> {
    let deadlines = "SELECT CASE WHEN pay_by - claimed_at = interval '900 s' THEN 'of the claim'
                                 WHEN pay_by - created_at = interval '300 s' THEN 'of the row' END
                     FROM orders WHERE id < 100 ORDER BY id";
    app.texts(deadlines).await
}

/// A claim of a minute ago, and one of a day ago, which has waited in the log.
fn claims(numbers: [i64; 2]) -> Vec<LoggedClaim> {
    let ago = |minutes: i64| -> DateTime<Utc> { now() - TimeDelta::minutes(minutes) };
    let [young, old] = numbers;
    vec![
        LoggedClaim { claimed_at: ago(1), revision: Some(2), ..claim(young, 1, young) },
        LoggedClaim { claimed_at: ago(1_440), ..claim(old, 2, old) },
    ]
}

/// Both ways into the table: all rows are new, or some are there.
#[tokio::test]
async fn insert_new_and_insert_in_id_order_write_the_same_rows() {
    for is_there in [false, true] {
        let app = TestApp::with_sales(2).await;
        let mut batch = claims([12, 11]);
        if is_there {
            app.write_rows(&[(201, 2, "flash", 201, "cancelled")]).await;
            batch.push(claim(201, 2, 201));
        }
        let written = write(&app, &batch).await.expect("Postgres answers");
        let expected =
            Written { inserted: 2, repeated: usize::from(is_there), ..Written::default() };
        assert_eq!(written, expected);
        let mut rows = orders(&app).await;
        rows.truncate(2);
        assert_eq!(rows, ["11 2 flash 11 unpaid", "12 1 flash 12 unpaid"], "{is_there}");
        assert_eq!(deadlines(&app).await, ["of the row", "of the claim"], "{is_there}");
        assert_eq!(sold(&app).await, [2, 3]);
        let prices = "SELECT concat(pay_cents, currency) FROM orders WHERE id < 100 ORDER BY id";
        assert_eq!(
            app.texts(prices).await,
            ["", "1CNY"],
            "an entry of an older version tells none"
        );
    }
}

/// Claims of a batch whose order id, or whose buyer's place, is taken: by their own order, by that of another claim, or
/// by one whose user was erased.
#[tokio::test]
async fn existing_rows_decide_whether_a_claim_is_a_repeat_or_a_conflict() {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[
        (11, 1, "flash", 1, "cancelled"),
        (12, 1, "flash", 2, "unpaid"),
        (13, 1, "flash", 3, "expired"),
        (14, 2, "flash", 4, "paid"),
    ])
    .await;
    app.execute("UPDATE orders SET user_id = -id WHERE id = 13").await;
    for (number, coupon, of, expected) in [
        (11, 1, 1, Written { repeated: 1, ..Written::default() }),
        (13, 1, 3, Written { repeated: 1, ..Written::default() }),
        (13, 2, 3, Written { conflicts: 1, ..Written::default() }),
        (11, 1, 5, Written { conflicts: 1, ..Written::default() }),
        (11, 1, 5, Written { repeated: 1, ..Written::default() }),
        (14, 1, 4, Written { conflicts: 1, ..Written::default() }),
        // The buyer has another live order.
        (21, 1, 2, Written { conflicts: 1, ..Written::default() }),
        // And none of this sale.
        (22, 2, 2, Written { inserted: 1, ..Written::default() }),
    ] {
        let written = write(&app, &[claim(number, coupon, of)]).await.expect("Postgres answers");
        assert_eq!(written, expected, "order {number} of user {of} and coupon {coupon}");
    }
    assert_eq!(orders(&app).await.len(), 5);
    let letters = "SELECT concat_ws(' ', order_id, coupon_id >> 10, user_id, reason) FROM dead_letters ORDER BY id";
    let expected = ["13 2 3 conflict", "11 1 5 conflict", "14 1 4 conflict", "21 1 2 conflict"];
    assert_eq!(app.texts(letters).await, expected);
}

/// Postgres tells each statement, with the number of its rows.
#[tokio::test]
async fn existing_rows_are_read_by_the_ids_of_the_claims_alone() {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[
        (11, 1, "flash", 1, "cancelled"),
        (12, 1, "flash", 2, "unpaid"),
        (13, 2, "flash", 3, "paid"),
        (14, 2, "flash", 4, "expired"),
    ])
    .await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let written = write(&app, &[claim(11, 1, 1), claim(13, 2, 3)]).await;
    assert_eq!(written.expect("Postgres answers"), Written { repeated: 2, ..Written::default() });
    assert_eq!(rows_returned(&lines, "CASE WHEN user_id > 0 THEN user_id END AS"), [2]);
}

/// A batch that fits is sorted once; none of its claims is refused.
#[tokio::test]
async fn overflow_sorts_refused_claims_only_where_there_are_some() {
    let app = TestApp::with_sales(1).await;
    app.write_rows(&[(11, 1, "flash", 1, "unpaid")]).await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let batch = [claim(11, 1, 1), claim(12, 1, 2)];
    let token = CancellationToken::new();
    let written = app.app.orders.write_what_fits((lane(), 1), &batch, &token).await;
    let expected = Written { inserted: 1, repeated: 1, ..Written::default() };
    assert_eq!(written.expect("Postgres answers"), expected);
    assert_eq!(rows_returned(&lines, "CASE WHEN user_id > 0 THEN user_id END AS"), [1]);
}

/// The sale is archived, and the history has orders 11 and 12.
#[tokio::test]
async fn set_aside_reads_the_history_by_the_ids_of_old_claims_and_for_no_others() {
    let app = TestApp::with_sales(1).await;
    app.write_rows(&[(11, 1, "flash", 1, "cancelled"), (12, 1, "flash", 2, "cancelled")]).await;
    move_rows(&app, &[11, 12]).await;
    app.execute(
        "UPDATE settings SET orders_moved_to = 50;
         UPDATE flash_sales SET archived_at = now()",
    )
    .await;
    for (batch, repeated, read) in
        [(vec![claim(11, 1, 1), claim(60, 1, 6)], 1, vec![1]), (vec![claim(61, 1, 7)], 0, vec![])]
    {
        let lines = Lines::down_to(tracing::Level::DEBUG);
        let written = write(&app, &batch).await.expect("Postgres answers");
        assert_eq!(written, Written { inserted: 1, repeated, ..Written::default() });
        assert_eq!(rows_returned(&lines, "FROM order_history"), read);
    }
}

/// Claims up to the retention mark, of an archived sale and of another; the month of one has been dropped.
#[tokio::test]
async fn claims_before_the_mark_of_an_archived_sale_become_no_orders() {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[(11, 1, "flash", 1, "cancelled")]).await;
    move_rows(&app, &[11]).await;
    app.execute(
        "UPDATE settings SET orders_moved_to = 50;
         UPDATE flash_sales SET archived_at = now() WHERE coupon_id = 1024",
    )
    .await;
    for (number, coupon, of, expected) in [
        (11, 1, 1, Written { repeated: 1, ..Written::default() }),
        (12, 1, 2, Written { before_mark: 1, ..Written::default() }),
        (12, 1, 2, Written { repeated: 1, ..Written::default() }),
        (50, 1, 3, Written { before_mark: 1, ..Written::default() }),
        (51, 1, 4, Written { inserted: 1, ..Written::default() }),
        (13, 2, 5, Written { inserted: 1, ..Written::default() }),
    ] {
        let written = write(&app, &[claim(number, coupon, of)]).await.expect("Postgres answers");
        assert_eq!(written, expected, "order {number} of coupon {coupon}");
    }
    assert_eq!(orders(&app).await, ["13 2 flash 5 unpaid", "51 1 flash 4 unpaid"]);
    assert_eq!(sold(&app).await, [2, 3]);
}

/// Two workers with overlapping batches insert rows in one order.
#[tokio::test]
async fn insert_in_id_order_waits_for_the_first_row_and_has_not_come_to_the_second() {
    let app = TestApp::with_sales(1).await;
    let mut other = begin(&app).await;
    assert!(insert_by_hand(&mut other, 11, sale(1)).await);
    let never = CancellationToken::new();
    let batch = [claim(12, 1, 12), claim(11, 1, 11)];
    let writing = app.app.orders.write_what_fits((lane(), 1), &batch, &never);
    let looking = async {
        app.a_session_waits_for_a_row().await;
        let mut third = begin(&app).await;
        let second = insert_by_hand(&mut third, 12, sale(1)).await;
        third.rollback().await.expect("Postgres answers");
        other.rollback().await.expect("Postgres answers");
        second
    };
    let (written, second) = tokio::join!(writing, looking);
    assert!(second, "it has not come to the second");
    assert_eq!(written.expect("Postgres answers").inserted, 2);
    assert_eq!(orders(&app).await, ["11 1 flash 11 unpaid", "12 1 flash 12 unpaid"]);
}
