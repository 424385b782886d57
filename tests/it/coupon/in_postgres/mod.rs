//! Coupons and sales in Postgres, query by query: the rows that each finds, and those that it leaves alone.

use flash_sale::sale::ids::CouponId;

use crate::support::{TestApp, sale};

// Lists of sales, and their numbers.
mod queries;

// Notes about a sale: sold, loaded, applied, archived, removed.
mod notes;

// Coupons as they are listed and edited.
mod reader;

// Keys of requests, and prices.
mod keys;

// Decisions about changes, and the rows that they write.
mod decisions;

// Time that a statement may take.
mod patience;

/// A sale that fits a query but for what these statements do to it, and whether it is found. `$` stands for its id.
type Row = (String, bool);

/// The same rows with texts that live as long as the test.
fn rows<const N: usize>(rows: [(&str, bool); N]) -> Vec<Row> {
    rows.iter().map(|(but, found)| ((*but).to_owned(), *found)).collect()
}

/// A sale that this pass has postponed is left out until it is due; what another pass has postponed doesn't matter.
fn postponed(pass: &str) -> Vec<Row> {
    let note = |pass: &str, due: &str| {
        format!(
            "INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('{pass}', $, 'x', now() + interval '{due}')"
        )
    };
    vec![
        (note(pass, "30 min"), false),
        (note(pass, "-1 s"), true),
        (note("expiry", "30 min"), true),
    ]
}

/// Writes a sale for each row. `fits` makes it one that the query finds. Returns those that are found.
async fn shelf(app: &TestApp, fits: &str, rows: &[Row]) -> Vec<CouponId> {
    app.expect_disagreements();
    app.write_sales(i64::try_from(rows.len()).expect("few")).await;
    let mut found = Vec::new();
    for (number, (but, is_found)) in (1..).zip(rows) {
        let id = sale(number);
        let statements = [fits, but].map(|statement| statement.replace('$', &id.to_string()));
        for statement in statements.iter().filter(|statement| !statement.is_empty()) {
            app.execute(statement).await;
        }
        found.extend(is_found.then_some(id));
    }
    found
}

/// A list is the same in pages: all of it, its first two, and the rest behind these.
async fn in_pages(found: &[CouponId], list: impl AsyncFn(Option<CouponId>, i64) -> Vec<CouponId>) {
    assert_eq!(list(None, 100).await, found);
    assert_eq!(list(None, 2).await, found[..2], "the first two");
    assert_eq!(list(Some(found[1]), 100).await, found[2..], "behind the second");
}
