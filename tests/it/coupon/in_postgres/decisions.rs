//! Decisions about changes: the rows that each writes, its entry in the book of changes, and repeats, which write nothing.

use flash_sale::sale::audit::Actor;
use flash_sale::sale::coupon::input::{CouponEdit, Restock};
use flash_sale::sale::coupon::model::CouponState;
use flash_sale::sale::coupon::rules::{Change, Refusal};
use serde_json::{Value, json};

use crate::support::{TestApp, sale};

fn edit(edit: Value) -> Change {
    Change::Edit(serde_json::from_value::<CouponEdit>(edit).expect("an edit"))
}

fn restock(key: &str, units: i64) -> Change {
    Change::Restock(Restock { key: key.to_owned(), units })
}

/// Tables that a change has written.
const BOTH: &[&str] = &["coupons", "flash_sales"];
const COUPON: &[&str] = &["coupons"];
const WITH_KEY: &[&str] = &["coupons", "flash_sales", "restocks"];
const NONE: &[&str] = &[];

#[tokio::test]
async fn decide_in_writes_what_changes_and_enters_it_once() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.write_sales(2).await;
    app.execute("UPDATE flash_sales SET closes_at = '2030-01-01T00:00:00Z'").await;
    let by = Actor::command_line();
    let at = |time: &str| Change::EndClosed(time.parse().expect("a time"));
    let pause = || Change::Move(CouponState::Paused, None);
    let used = Err(Refusal::RestockKeyUsed { units: 5 });
    for (change, told, written, entry) in [
        (edit(json!({"title": "new"})), Ok(()), COUPON, "edit_coupon 2 3"),
        (edit(json!({"title": "new"})), Ok(()), NONE, ""),
        (edit(json!({"sale": {"total": 200}})), Ok(()), BOTH, "edit_coupon 3 4"),
        (edit(json!({"sale": {"total": 200}})), Ok(()), NONE, ""),
        (pause(), Ok(()), COUPON, "pause_coupon 4 5"),
        (pause(), Ok(()), NONE, ""),
        (restock("k", 5), Ok(()), WITH_KEY, "restock_coupon 5 6"),
        (restock("k", 5), Ok(()), NONE, ""),
        (restock("k", 6), used, NONE, ""),
        (restock("other", 6), Ok(()), WITH_KEY, "restock_coupon 6 7"),
        (Change::Move(CouponState::Active, None), Ok(()), COUPON, "resume_coupon 7 8"),
        (at("2030-01-02T00:00:00Z"), Ok(()), NONE, ""),
        (at("2030-01-01T00:00:00Z"), Ok(()), COUPON, "end_coupon 8 9"),
        (restock("more", 6), Err(Refusal::Ended), NONE, ""),
    ] {
        app.let_rows_age("flash_sales").await;
        let before = app.tables().await;
        let case = format!("{change:?}");
        let decided = app.app.coupon_changes.decide(sale(1), change, Some(&by)).await;
        assert_eq!(decided.expect("Postgres answers"), told, "{case}");
        assert_eq!(app.changed_since(&before).await, written, "{case}");
        let touched = !app.touched("flash_sales", "coupon_id").await.is_empty();
        assert_eq!(touched, written.contains(&"flash_sales"), "{case}");
        let entries = "DELETE FROM audit
            RETURNING concat_ws(' ', action, before->>'revision', after->>'revision')";
        let expected: &[&str] = if entry.is_empty() { &[] } else { &[entry] };
        assert_eq!(app.texts(entries).await, expected, "{case}");
    }
    let rows = "SELECT concat_ws(' ', title, total, state, revision)
        FROM coupons JOIN flash_sales ON coupon_id = id ORDER BY id";
    assert_eq!(app.texts(rows).await, ["new 211 ended 9", "sale 2 102 active 2"]);
}

#[tokio::test]
async fn decide_in_without_staff_enters_nothing_and_refuses_what_is_not_there() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.write_sales(1).await;
    let pause = || Change::Move(CouponState::Paused, None);
    assert_eq!(app.decide(sale(2), pause()).await, Err(Refusal::NotFound));
    assert_eq!(app.decide(sale(1), pause()).await, Ok(()));
    assert_eq!(app.decide(sale(1), restock("k", 5)).await, Ok(()));
    assert_eq!(app.number("SELECT count(*) FROM audit").await, 0);
    assert_eq!(app.number("SELECT revision FROM coupons").await, 4);
}
