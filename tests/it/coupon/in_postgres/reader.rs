//! Coupons as they are listed, page by page, and as an edit writes them.

use flash_sale::sale::Stores;
use flash_sale::sale::coupon::input::CouponEdit;
use flash_sale::sale::coupon::model::{Coupon, CouponFilter, CouponKind, CouponState};
use flash_sale::sale::coupon::read::CouponReader;
use flash_sale::sale::coupon::rules::Change;
use flash_sale::sale::ids::CouponId;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPoolOptions;

use super::{rows, shelf};
use crate::costs::plans::read;
use crate::support::{TestApp, sale};

/// Sales 1 to 6 are active, 3 of them; paused, two; and ended, one. Coupons 7 to 10 are regular: active, paused, ended and
/// active.
async fn coupons() -> TestApp {
    let app = TestApp::start().await;
    let paused = "UPDATE coupons SET state = 'paused' WHERE id = $";
    let ended = "UPDATE coupons SET state = 'ended', ended_at = now() WHERE id = $";
    let statements =
        [("", true), (paused, true), ("", true), (ended, true), (paused, true), ("", true)];
    shelf(&app, "", &rows(statements)).await;
    app.execute(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents, state, ended_at)
         SELECT n << 10, 'regular', 'regular ' || n, '', '', n, 2, state, CASE state WHEN 'ended' THEN now() END
         FROM (VALUES (7::bigint, 'active'), (8, 'paused'), (9, 'ended'), (10, 'active')) AS coupon (n, state)",
    )
    .await;
    app
}

fn numbers(coupons: &[Coupon]) -> Vec<i64> {
    coupons.iter().map(|coupon| coupon.id.sequence()).collect()
}

#[tokio::test]
async fn rows_of_each_kind_and_state_are_listed_newest_first_in_pages() {
    let app = coupons().await;
    let reader = CouponReader::new(&app.app.stores);
    let (flash, regular) = (Some(CouponKind::Flash), Some(CouponKind::Regular));
    let state = |state: &str| CouponState::ALL.into_iter().find(|it| it.as_str() == state);
    for (kind, state, expected) in [
        (None, None, vec![10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (flash, None, vec![6, 5, 4, 3, 2, 1]),
        (regular, None, vec![10, 9, 8, 7]),
        (None, state("active"), vec![10, 7, 6, 3, 1]),
        (None, state("paused"), vec![8, 5, 2]),
        (None, state("ended"), vec![9, 4]),
        (flash, state("active"), vec![6, 3, 1]),
        (flash, state("paused"), vec![5, 2]),
        (regular, state("active"), vec![10, 7]),
        (regular, state("ended"), vec![9]),
    ] {
        let filter = CouponFilter { kind, state };
        let list = async |before: Option<i64>, limit| {
            let listed = reader.list(filter, before.map(sale), limit).await;
            numbers(&listed.expect("both stores answer"))
        };
        assert_eq!(list(None, 100).await, expected, "{filter:?}");
        assert_eq!(list(None, 1).await, expected[..1], "{filter:?}: the first one");
        let first = Some(expected[0]);
        assert_eq!(list(first, 100).await, expected[1..], "{filter:?}: behind the first one");
        let second = &expected[1..expected.len().min(2)];
        assert_eq!(list(first, 1).await, second, "{filter:?}: one behind the first one");
    }
}

/// A page of each state, however many coupons have it. The plan is that of the reader's own statement, on a connection
/// that sorts nothing where an index has the order.
#[tokio::test]
async fn rows_of_reads_no_more_of_a_state_than_a_page_has() {
    let app = coupons().await;
    app.execute(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
         SELECT n << 10, 'regular', 'regular ' || n, '', '', n, 2 FROM generate_series(11::bigint, 310) AS n",
    )
    .await;
    let options = (*app.app.stores.pool.connect_options()).clone();
    let options = options.options(["enable_seqscan", "enable_sort", "jit"].map(|way| (way, "off")));
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let reader = CouponReader::new(&Stores { pool: pool.clone(), ..app.app.stores.clone() });
    let filter = CouponFilter { kind: Some(CouponKind::Regular), state: None };
    let listed = reader.list(filter, None, 2).await.expect("both stores answer");
    assert_eq!(numbers(&listed), [310, 309]);
    let name = "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%FROM coupons%'";
    let names: Vec<String> =
        sqlx::query_scalar(name).persistent(false).fetch_all(&pool).await.expect("a list");
    assert_eq!(names.len(), 1, "the reader has asked with one statement: {names:?}");
    let explain = format!(
        "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {}('{{regular}}', '{{active,paused,ended}}', NULL, 2)",
        names[0]
    );
    let plan: Value =
        sqlx::query_scalar(AssertSqlSafe(explain)).fetch_one(&pool).await.expect("a plan");
    let rows = read(&plan[0]["Plan"]);
    assert!(rows <= 20.0, "{rows} rows: {plan:#}");
}

#[tokio::test]
async fn a_row_has_the_sale_of_its_own_coupon() {
    let app = coupons().await;
    app.execute(
        "UPDATE flash_sales SET loaded_at = NULL, load_id = NULL, applied_revision = 0 WHERE coupon_id >> 10 = 2;
         UPDATE flash_sales SET archived_at = now() WHERE coupon_id >> 10 = 3",
    )
    .await;
    let reader = CouponReader::new(&app.app.stores);
    let told = |coupon: &Coupon| {
        let sale = coupon.sale.as_ref().map(|sale| (sale.total, sale.left));
        (coupon.row.title.clone(), coupon.row.pay_cents, sale)
    };
    // By Redis, which does not have it; by Postgres before its load, and after it has left Redis.
    let rows = [
        (1, ("sale 1".to_owned(), 1, Some((101, None)))),
        (2, ("sale 2".to_owned(), 2, Some((102, Some(100))))),
        (3, ("sale 3".to_owned(), 3, Some((103, Some(100))))),
        (7, ("regular 7".to_owned(), 7, None)),
    ];
    let all = reader.list(CouponFilter::default(), None, 100).await.expect("both stores answer");
    let of_filters = async |kind| {
        let filter = CouponFilter { kind: Some(kind), state: None };
        reader.list(filter, None, 100).await.expect("both stores answer")
    };
    let by_kind =
        [of_filters(CouponKind::Flash).await, of_filters(CouponKind::Regular).await].concat();
    for (number, expected) in rows {
        let one = reader.get(sale(number)).await.expect("both stores answer");
        assert_eq!(one.as_ref().map(told), Some(expected.clone()), "coupon {number}");
        for listed in [&all, &by_kind] {
            let found = listed.iter().find(|it| it.id == sale(number)).map(told);
            assert_eq!(found, Some(expected.clone()), "coupon {number} in a list");
        }
    }
    assert_eq!(reader.get(sale(11)).await.expect("both stores answer"), None);
}

/// A process that has not heard of it asks for the newest coupon first.
#[tokio::test]
async fn the_newest_coupon_bounds_the_ids_that_are_looked_up() {
    let app = TestApp::start().await;
    let first = app.create_flash(9).await;
    let newest = app.create_flash(9).await;
    let behind = CouponId::compose(newest.sequence() + 1, 1);
    for (coupon, status) in [(first, 200), (newest, 200), (behind, 404)] {
        let reply = app.get(&format!("/v1/coupons/{coupon}"), &app.token(1)).await;
        assert_eq!(reply.status, status, "{coupon}");
    }
}

#[tokio::test]
async fn an_edit_updates_each_of_its_fields_in_its_coupon_alone() {
    let app = coupons().await;
    app.let_rows_age("coupons").await;
    app.let_rows_age("flash_sales").await;
    let edit: CouponEdit = serde_json::from_value(json!({
        "title": "t", "sub_title": "s", "rules": "r", "pay_cents": 11, "value_cents": 12,
        "sale": {"total": 500}
    }))
    .expect("an edit");
    app.decide(sale(3), Change::Edit(edit)).await.expect("it may");
    let fields = async |number: i64| {
        let query = format!(
            "SELECT concat_ws(' ', title, sub_title, rules, pay_cents, value_cents, state, revision, total)
             FROM coupons JOIN flash_sales ON coupon_id = id WHERE id = {number} << 10"
        );
        app.texts(&query).await
    };
    assert_eq!(fields(3).await, ["t s r 11 12 active 3 500"]);
    assert_eq!(fields(1).await, ["sale 1   1 2 active 2 101"]);
    assert_eq!(app.touched("coupons", "id").await, [sale(3).get()]);
    assert_eq!(app.touched("flash_sales", "coupon_id").await, [sale(3).get()]);
}

#[tokio::test]
async fn an_update_to_another_state_notes_the_time_of_the_end() {
    let app = coupons().await;
    let ended_at = async || {
        let query = "SELECT (CASE WHEN ended_at IS NULL THEN 0 WHEN ended_at <= now() THEN 1 ELSE 2 END)::bigint
                     FROM coupons WHERE id = 3 << 10";
        app.number(query).await
    };
    app.decide_on(sale(3), CouponState::Paused).await;
    assert_eq!(ended_at().await, 0);
    app.decide_on(sale(3), CouponState::Active).await;
    assert_eq!(ended_at().await, 0);
    app.decide_on(sale(3), CouponState::Ended).await;
    assert_eq!(ended_at().await, 1, "the time of now");
    let states = "SELECT concat_ws(' ', id >> 10, state, revision) FROM coupons WHERE kind = 'flash' ORDER BY id";
    let states = app.texts(states).await;
    assert_eq!(states[1..4], ["2 paused 2", "3 ended 5", "4 ended 2"]);
}

/// Two changes of one coupon, of which the second begins before the first has ended.
#[tokio::test]
async fn a_change_waits_for_the_lock_of_another_and_goes_on_from_its_values() {
    let app = coupons().await;
    let update = "UPDATE coupons SET title = 'of the first', revision = revision + 1, updated_at = now() WHERE id = 1024";
    let other = app.holding(update).await;
    let edit: CouponEdit =
        serde_json::from_value(json!({"sub_title": "of the second"})).expect("an edit");
    let first = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    let (decided, ()) = tokio::join!(app.decide(sale(1), Change::Edit(edit)), first);
    decided.expect("it may");
    let values = "SELECT concat_ws(', ', title, sub_title, revision) FROM coupons WHERE id = 1024";
    assert_eq!(app.texts(values).await, ["of the first, of the second, 4"]);
}
