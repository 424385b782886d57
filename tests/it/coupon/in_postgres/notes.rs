//! Notes about a sale: each is written into its row alone, with its values, and only where it says something new.

use chrono::{DateTime, Utc};
use flash_sale::kit::postgres;
use flash_sale::sale::coupon::model::{CouponState, SaleTerms};
use flash_sale::sale::coupon::stock::{self, Sold, Stage, StoredCoupon};
use flash_sale::sale::ids::{CouponId, Lane};
use sqlx::{Postgres, Transaction};

use super::{rows, shelf};
use crate::support::{TestApp, lane, sale};

/// As many sales, which have not been touched for a day.
async fn sales<const N: usize>(statements: [&str; N]) -> TestApp {
    let app = TestApp::start().await;
    shelf(&app, "", &rows(statements.map(|statement| (statement, true)))).await;
    app.let_rows_age("flash_sales").await;
    app
}

async fn touched(app: &TestApp) -> Vec<i64> {
    let ids = app.touched("flash_sales", "coupon_id").await;
    ids.iter().map(|id| id >> 10).collect()
}

async fn begin(app: &TestApp) -> Transaction<'static, Postgres> {
    postgres::begin(&app.app.stores.pool).await.expect("Postgres answers")
}

/// A column of all sales.
async fn column(app: &TestApp, column: &str) -> Vec<i64> {
    app.numbers(&format!("SELECT ({column})::bigint FROM flash_sales ORDER BY coupon_id")).await
}

#[tokio::test]
async fn note_applied_only_raises_the_revision() {
    let app = sales([""; 2]).await;
    let pool = &app.app.stores.pool;
    for (revision, expected, changed) in
        [(1, [2, 2], vec![]), (2, [2, 2], vec![]), (3, [3, 2], vec![1])]
    {
        stock::note_applied(pool, sale(1), revision).await.expect("Postgres answers");
        assert_eq!(column(&app, "applied_revision").await, expected, "revision {revision}");
        assert_eq!(touched(&app).await, changed, "revision {revision}");
    }
}

#[tokio::test]
async fn note_behind_only_lowers_the_revision_and_of_no_archived_sale() {
    let app =
        sales(["", "", "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $"]).await;
    let pool = &app.app.stores.pool;
    for (number, revision, noted, expected) in [
        (1, 3, false, [2, 2, 2]),
        (1, 2, false, [2, 2, 2]),
        (3, 1, false, [2, 2, 2]),
        (1, 1, true, [1, 2, 2]),
    ] {
        let done = stock::note_behind(pool, sale(number), revision).await;
        assert_eq!(done.expect("Postgres answers"), noted, "sale {number}, revision {revision}");
        assert_eq!(column(&app, "applied_revision").await, expected);
        assert_eq!(touched(&app).await, if noted { vec![1] } else { vec![] });
    }
}

#[tokio::test]
async fn set_applied_has_an_archived_sale_removed_once_more() {
    let archived =
        "UPDATE flash_sales SET archived_at = now(), removed_at = now() WHERE coupon_id = $";
    let app = sales([archived; 2]).await;
    stock::set_applied(&app.app.stores.pool, sale(1), 1).await.expect("Postgres answers");
    assert_eq!(column(&app, "applied_revision").await, [1, 2]);
    assert_eq!(column(&app, "(removed_at IS NULL)::integer").await, [1, 0]);
    assert_eq!(touched(&app).await, [1]);
}

#[tokio::test]
async fn note_load_keeps_the_first_load() {
    let unloaded = "UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, applied_revision = 0 WHERE coupon_id = $";
    let app = sales([unloaded, unloaded, ""]).await;
    let mut tx = begin(&app).await;
    for (number, load, holds) in [(2, "x", "x"), (2, "y", "x"), (3, "y", "load 3")] {
        let noted = stock::note_load(&mut tx, sale(number), load).await;
        assert_eq!(noted.expect("Postgres answers"), holds, "sale {number}");
    }
    tx.commit().await.expect("Postgres answers");
    let loads = "SELECT coalesce(load_id, '') FROM flash_sales ORDER BY coupon_id";
    assert_eq!(app.texts(loads).await, ["", "x", "load 3"]);
    assert_eq!(column(&app, "(loaded_at IS NOT NULL)::integer").await, [0, 1, 1]);
    assert_eq!(touched(&app).await, [2]);
}

#[tokio::test]
async fn remove_again_opens_the_removed_sales_of_a_lane() {
    let removed =
        "UPDATE flash_sales SET archived_at = now(), removed_at = now() WHERE coupon_id = $";
    let app =
        sales([removed, "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $", ""])
            .await;
    let pool = &app.app.stores.pool;
    stock::remove_again(pool, Lane::numbered(1)).await.expect("Postgres answers");
    assert_eq!(touched(&app).await, [0; 0], "another lane");
    stock::remove_again(pool, lane()).await.expect("Postgres answers");
    assert_eq!(touched(&app).await, [1], "the others are not removed");
    assert_eq!(column(&app, "(removed_at IS NULL)::integer").await, [1, 1, 1]);
}

#[tokio::test]
async fn note_removed_is_about_archived_sales() {
    let app = sales([
        "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $",
        "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $",
        "",
        "UPDATE flash_sales SET archived_at = now(), removed_at = '2024-01-01' WHERE coupon_id = $",
    ])
    .await;
    for number in [1, 3, 4] {
        stock::note_removed(&app.app.stores.pool, sale(number)).await.expect("Postgres answers");
    }
    assert_eq!(touched(&app).await, [1]);
    assert_eq!(column(&app, "(removed_at IS NOT NULL)::integer").await, [1, 0, 0, 1]);
}

#[tokio::test]
async fn archive_unsettled_is_about_ended_sales_that_redis_has_to_hold() {
    let ended = "UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = $";
    let unloaded = format!(
        "{ended};UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, applied_revision = 0 WHERE coupon_id = $"
    );
    let before =
        format!("{ended};UPDATE flash_sales SET archived_at = '2024-01-01' WHERE coupon_id = $");
    let paused = "UPDATE coupons SET state = 'paused' WHERE id = $";
    let app = sales([ended, ended, "", paused, &unloaded, &before]).await;
    let mut tx = begin(&app).await;
    for number in [1, 3, 4, 5, 6] {
        stock::archive_unsettled(&mut tx, sale(number)).await.expect("Postgres answers");
    }
    tx.commit().await.expect("Postgres answers");
    assert_eq!(touched(&app).await, [1]);
    assert_eq!(column(&app, "(archived_at IS NOT NULL)::integer").await, [1, 0, 0, 0, 0, 1]);
}

#[tokio::test]
async fn archived_among_are_the_archived_sales_of_these() {
    let archived = "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $";
    let app = sales([archived, archived, ""]).await;
    let mut tx = begin(&app).await;
    let asked = [2, 3, 4].map(|number| sale(number).get());
    let found = stock::archived_among(&mut tx, &asked).await.expect("Postgres answers");
    assert_eq!(found, [sale(2)]);
}

#[tokio::test]
async fn add_sold_counts_up_to_the_total_and_subtract_sold_takes_off() {
    let archived = "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $";
    let app = sales(["", "", archived]).await;
    let mut tx = begin(&app).await;
    for (number, orders, expected) in [
        // One has been sold of 101.
        (1, 101, Sold::NoUnits),
        (1, 100, Sold::Counted),
        (1, 1, Sold::NoUnits),
        (3, 1, Sold::CountedInArchive),
        (4, 1, Sold::NoUnits),
    ] {
        let sold = stock::add_sold(&mut tx, sale(number), orders).await.expect("Postgres answers");
        assert_eq!(sold, expected, "{orders} of sale {number}");
    }
    tx.commit().await.expect("Postgres answers");
    assert_eq!(column(&app, "sold").await, [101, 2, 4]);
    assert_eq!(touched(&app).await, [1, 3]);
    app.let_rows_age("flash_sales").await;
    let mut tx = begin(&app).await;
    stock::subtract_sold(&mut tx, sale(1), 41).await.expect("Postgres answers");
    tx.commit().await.expect("Postgres answers");
    assert_eq!(column(&app, "sold").await, [60, 2, 4]);
    assert_eq!(touched(&app).await, [1]);
}

#[tokio::test]
async fn recount_sold_counts_the_live_flash_orders_of_one_sale() {
    let app = sales([""; 3]).await;
    let statuses = ["unpaid", "paid", "redeemed", "refunding", "cancelled", "expired", "refunded"];
    let of_sale_2 = (1..).zip(statuses).map(|(id, status)| (id, 2, "flash", id, status));
    // Others of sale 1, and one that no sale counts.
    let others = [(11, 1, "flash", 11, "unpaid"), (12, 2, "regular", 12, "unpaid")];
    app.write_rows(&of_sale_2.chain(others).collect::<Vec<_>>()).await;
    let pool = &app.app.stores.pool;
    let counted = stock::recount_sold(pool, sale(2)).await.expect("Postgres answers");
    assert_eq!(counted, Some((2, 4)), "before and after");
    assert_eq!(column(&app, "sold").await, [1, 4, 3]);
    assert_eq!(touched(&app).await, [2]);
    app.execute("UPDATE flash_sales SET total = 3, sold = 0").await;
    let counted = stock::recount_sold(pool, sale(2)).await.expect("Postgres answers");
    assert_eq!(counted, None, "more live orders than units");
    assert_eq!(column(&app, "sold").await, [0, 0, 0]);
}

/// A writer has inserted an order, and counts it as sold, while the recount begins.
#[tokio::test]
async fn recount_sold_waits_for_a_writer_and_counts_its_order_once() {
    let app = sales([""; 1]).await;
    let mut writer = begin(&app).await;
    sqlx::query(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES (1, 1024, 'flash', 1, now())",
    )
    .execute(&mut *writer)
    .await
    .expect("Postgres does it");
    assert_eq!(stock::add_sold(&mut writer, sale(1), 1).await.expect("it answers"), Sold::Counted);
    let commit = async {
        app.a_session_waits_for_a_row().await;
        writer.commit().await.expect("Postgres answers");
    };
    let (counted, ()) = tokio::join!(stock::recount_sold(&app.app.stores.pool, sale(1)), commit);
    assert_eq!(counted.expect("Postgres answers"), Some((2, 1)));
    assert_eq!(column(&app, "sold").await, [1]);
}

#[tokio::test]
async fn update_terms_changes_the_window_and_the_total_of_one_sale() {
    let app = sales([""; 2]).await;
    let at = |text: &str| -> DateTime<Utc> { text.parse().expect("a time") };
    let terms = SaleTerms {
        total: 7,
        opens_at: at("2024-01-01T00:00:00Z"),
        closes_at: at("2024-02-01T00:00:00Z"),
    };
    let mut tx = begin(&app).await;
    let before = stock::terms(&mut tx, sale(2)).await.expect("Postgres answers").expect("a sale");
    assert_eq!(before.total, 102);
    stock::update_terms(&mut tx, sale(1), &terms).await.expect("Postgres answers");
    let of = async |tx: &mut Transaction<'static, Postgres>, number| {
        stock::terms(tx, sale(number)).await.expect("Postgres answers")
    };
    assert_eq!(of(&mut tx, 1).await, Some(terms));
    assert_eq!(of(&mut tx, 2).await, Some(before));
    assert_eq!(of(&mut tx, 3).await, None);
    tx.commit().await.expect("Postgres answers");
    assert_eq!(touched(&app).await, [1]);
}

fn stage(found: Option<StoredCoupon>) -> (String, i64, String) {
    match found {
        None => ("none".to_owned(), 0, String::new()),
        Some(StoredCoupon::Regular(state)) => ("regular".to_owned(), 0, state.as_str().to_owned()),
        Some(StoredCoupon::Flash(sale)) => {
            let (stage, load) = match sale.stage {
                Stage::Unloaded => ("unloaded", String::new()),
                Stage::Loaded { load_id } => ("loaded", load_id),
                Stage::Archived { load_id } => ("archived", load_id),
            };
            (format!("{stage} {}", sale.state.as_str()), sale.terms.total, load)
        }
    }
}

#[tokio::test]
async fn find_tells_the_stage_of_one_coupon() {
    let app = sales([
        "",
        "UPDATE coupons SET state = 'paused' WHERE id = $",
        "UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, applied_revision = 0 WHERE coupon_id = $",
        "UPDATE flash_sales SET archived_at = now() WHERE coupon_id = $",
    ])
    .await;
    let regular = CouponId::new(sale(5).get()).expect("a positive number");
    app.execute(&format!(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents, state)
         VALUES ({regular}, 'regular', '', '', '', 1, 1, '{}')",
        CouponState::Paused.as_str()
    ))
    .await;
    for (number, expected) in [
        (1, ("loaded active", 101, "load 1")),
        (2, ("loaded paused", 102, "load 2")),
        (3, ("unloaded active", 103, "")),
        (4, ("archived active", 104, "load 4")),
        (5, ("regular", 0, "paused")),
        (6, ("none", 0, "")),
    ] {
        let found = stock::find(&app.app.stores.pool, sale(number)).await;
        let (stage, total, load) = stage(found.expect("Postgres answers"));
        assert_eq!((stage.as_str(), total, load.as_str()), expected, "coupon {number}");
    }
}
