//! Dead letters: put aside once, and discarded all together, some of which stay.

use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::{DeadLetterId, OrderId};
use flash_sale::sale::log::LoggedClaim;
use flash_sale::sale::order::dead_letter::{self, DeadLetter, Reason};
use flash_sale::sale::order::discard::{Discarded, DiscardedAll};

use crate::support::{TestApp, bounded, lane, sale, user};

/// Letters 1 to 7 of the users of these numbers, with the orders 11 to 17. Orders 12 and 14 belong to others, and letter 7
/// has another reason.
async fn letters() -> TestApp {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.write_sales(1).await;
    app.write_rows(&[(12, 1, "flash", 98, "unpaid"), (14, 1, "flash", 99, "unpaid")]).await;
    app.execute(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id)
         SELECT 0, n || '-1', '{}', CASE n WHEN 7 THEN 'oversold' ELSE 'conflict' END, '', 1024, n, 10 + n
         FROM generate_series(1, 7) AS n ORDER BY n",
    )
    .await;
    app
}

async fn open(app: &TestApp) -> Vec<i64> {
    app.numbers("SELECT id FROM dead_letters WHERE resolved_at IS NULL ORDER BY id").await
}

async fn discard_all(app: &TestApp) -> Option<DiscardedAll> {
    let by = Actor::command_line();
    let discarded = app.app.dead_letters.discard_all(Reason::Conflict, &by);
    bounded("the last letter", discarded).await.ok()
}

#[tokio::test]
async fn discard_all_counts_each_letter_once_also_those_that_stay() {
    let app = letters().await;
    app.refuse("INSERT", "orders", "NEW.id = 15", "23514").await;
    let first = DiscardedAll { discarded: 3, order_ids_taken: 2, failed: 1 };
    let again = DiscardedAll { discarded: 0, ..first };
    for expected in [first, again] {
        assert_eq!(discard_all(&app).await, Some(expected));
        assert_eq!(expected.kept(), [("order_id_taken", 2), ("failed", 1)]);
        assert_eq!(open(&app).await, [2, 4, 5, 7]);
    }
    assert_eq!(app.numbers("SELECT subject_id FROM audit ORDER BY id").await, [1, 3, 6]);
    let orders = "SELECT id FROM orders WHERE status = 'cancelled' ORDER BY id";
    assert_eq!(app.numbers(orders).await, [11, 13, 16]);
    let returns = "SELECT order_id FROM stock_returns WHERE what = 'unit' ORDER BY order_id";
    assert_eq!(app.numbers(returns).await, [11, 13, 16], "their units may come back");
}

/// Postgres breaks off one of them, by an error that is not about its row: the letters before are discarded.
#[tokio::test]
async fn discard_all_ends_with_a_failure_that_is_no_letter_s_own() {
    let app = letters().await;
    app.refuse("INSERT", "orders", "NEW.id = 15", "57014").await;
    for _ in 0..2 {
        assert_eq!((discard_all(&app).await, open(&app).await), (None, vec![2, 4, 5, 6, 7]));
    }
    app.accept("orders").await;
    let rest = DiscardedAll { discarded: 2, order_ids_taken: 2, failed: 0 };
    assert_eq!((discard_all(&app).await, open(&app).await), (Some(rest), vec![2, 4, 7]));
}

#[tokio::test]
async fn discard_tells_letters_that_are_not_there_and_ids_that_are_taken() {
    let app = letters().await;
    let discard = async |number| {
        let letter = DeadLetterId::new(number).expect("an id");
        let by = Actor::command_line();
        let discarded = bounded("an answer", app.app.dead_letters.discard(letter, &by)).await;
        discarded.expect("Postgres answers")
    };
    for (number, expected) in [
        (1, Discarded::Done),
        (1, Discarded::Done),
        (2, Discarded::OrderIdTaken),
        (8, Discarded::NotFound),
    ] {
        assert_eq!(discard(number).await, expected, "letter {number}");
    }
    assert_eq!(open(&app).await, [2, 3, 4, 5, 6, 7]);
    for (order, is_open) in [(11, false), (12, true), (17, true), (18, false)] {
        let order = OrderId::new(order).expect("an id");
        let found = app.app.dead_letters.is_open(order).await.expect("Postgres answers");
        assert_eq!(found, is_open, "is_open {order}");
    }
}

/// A position is put aside once; a repeat is told.
#[tokio::test]
async fn insert_makes_one_letter_and_tells_whether_it_is_new() {
    let app = letters().await;
    let letter = |number: i64| {
        let order = OrderId::new(100 + number).expect("an id");
        let claim = LoggedClaim::without_entry(sale(1), user(number), order);
        DeadLetter::of_claim(lane(), &claim, Reason::Invalid, "why")
    };
    let pool = &app.app.stores.pool;
    for (number, is_new) in [(1, true), (1, false), (2, true), (2, false), (1, false)] {
        let found = dead_letter::insert(pool, &letter(number)).await.expect("Postgres answers");
        assert_eq!(found, is_new, "letter of user {number}");
    }
    let rows =
        "SELECT order_id FROM dead_letters WHERE reason = 'invalid' AND detail = 'why' ORDER BY id";
    assert_eq!(app.numbers(rows).await, [101, 102]);
}
