//! `audit`: entries of the book of changes that are told, that lose their words, and that are deleted.

use std::time::Duration;

use flash_sale::base::limits::{AUDIT_BATCH, PASS_BATCHES_MAX};
use flash_sale::kit::postgres;
use flash_sale::sale::audit::{self, Action, Kind};

use crate::support::{TestApp, bounded, user};

#[tokio::test]
async fn erase_notes_takes_the_words_of_these_actions_on_these_things() {
    let app = TestApp::start().await;
    app.execute(
        r#"INSERT INTO audit (scope, action, subject_id, after)
           SELECT 'command_line', action, subject, '{"status": "s", "note": "n", "reason": "r"}'
           FROM (VALUES ('close_payment', 5), ('close_payment', 6), ('hand_payment_back', 5), ('settle_recovery', 7),
                        ('cancel_order', 5), ('close_payment', 7)) AS entry (action, subject)"#,
    )
    .await;
    let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let actions = [Action::ClosePayment, Action::SettleRecovery];
    audit::erase_notes(&mut tx, &actions, &[5, 7]).await.expect("Postgres answers");
    tx.commit().await.expect("Postgres answers");
    let entries = "SELECT concat_ws(' ', action, subject_id, after->>'status', after->>'note', after->>'reason')
                   FROM audit ORDER BY id";
    assert_eq!(
        app.texts(entries).await,
        [
            "close_payment 5 s",
            "close_payment 6 s n r",
            "hand_payment_back 5 s n r",
            "settle_recovery 7 s",
            "cancel_order 5 s n r",
            "close_payment 7 s"
        ]
    );
}

/// Newer ids have older times: as many as one run deletes, and one more.
#[tokio::test]
async fn pass_of_the_audit_deletes_the_oldest_entries_up_to_its_bound() {
    let app = TestApp::start().await;
    let batches = i64::try_from(PASS_BATCHES_MAX).expect("it is small");
    let most = i64::from(AUDIT_BATCH) * batches;
    app.execute(&format!(
        "INSERT INTO audit (scope, action, subject_id, at)
         SELECT 'command_line', 'end_coupon', n, now() - interval '25 hours' - n * interval '1 second'
         FROM generate_series(1, {most} + 1) AS n"
    ))
    .await;
    let pass = async || {
        let pass = app.app.audit.pass(Duration::from_hours(24));
        i64::try_from(pass.await.expect("Postgres answers")).expect("it is small")
    };
    assert_eq!(pass().await, most);
    assert_eq!(app.numbers("SELECT subject_id FROM audit").await, [1], "the youngest of them");
    assert_eq!((pass().await, pass().await), (1, 0));
}

#[tokio::test]
async fn pass_of_the_audit_ends_with_the_first_batch_that_is_not_full() {
    let app = TestApp::start().await;
    app.count_statements("DELETE", "audit").await;
    let batch = i64::from(AUDIT_BATCH);
    for (old, batches) in [(0, 1), (batch - 1, 1), (batch, 2)] {
        app.execute(&format!(
            "INSERT INTO audit (scope, action, at)
             SELECT 'command_line', 'end_coupon', now() - interval '25 hours' FROM generate_series(1, {old})"
        ))
        .await;
        let deleted = app.app.audit.pass(Duration::from_hours(24)).await.expect("Postgres answers");
        let deleted = i64::try_from(deleted).expect("it is small");
        assert_eq!((deleted, app.statements().await), (old, batches));
    }
}

#[tokio::test]
async fn pass_of_the_audit_leaves_an_entry_that_another_process_has_locked() {
    let app = TestApp::start().await;
    app.execute(
        "INSERT INTO audit (scope, action, subject_id, at)
         SELECT 'command_line', 'end_coupon', n, now() - interval '25 hours' FROM generate_series(1, 3) AS n",
    )
    .await;
    let mut other = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let lock = "SELECT FROM audit WHERE subject_id = 2 FOR UPDATE";
    sqlx::query(lock).execute(&mut *other).await.expect("Postgres answers");
    let pass = app.app.audit.pass(Duration::from_hours(24));
    assert_eq!(bounded("the end of the pass", pass).await.expect("it waits for no lock"), 2);
    assert_eq!(app.numbers("SELECT subject_id FROM audit").await, [2]);
    other.rollback().await.expect("Postgres answers");
}

#[tokio::test]
async fn entries_by_a_member_of_the_staff_and_about_things_are_told_oldest_first() {
    let app = TestApp::start().await;
    app.execute(
        "INSERT INTO audit (at, actor, scope, action, subject_id) VALUES
             ('2024-01-03', 7, 'admin', 'edit_coupon', 1), ('2024-01-01', 7, 'admin', 'cancel_order', 1),
             ('2024-01-02', 8, 'admin', 'pause_coupon', 1), ('2024-01-02', 7, 'admin', 'recover_lane', NULL),
             ('2024-01-01', NULL, 'command_line', 'end_coupon', 2), ('2024-01-01', 7, 'admin', 'end_coupon', 2)",
    )
    .await;
    let mut connection = app.app.stores.pool.acquire().await.expect("Postgres answers");
    for (actor, expected) in [
        (7, &["cancel_order", "end_coupon", "recover_lane", "edit_coupon"][..]),
        (8, &["pause_coupon"]),
        (9, &[]),
    ] {
        let entries = audit::by(&mut connection, user(actor)).await.expect("Postgres answers");
        let actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
        assert_eq!(actions, expected, "{actor}");
    }
    for (kind, ids, expected) in [
        (Kind::Coupon, vec![1], &["pause_coupon", "edit_coupon"][..]),
        (Kind::Coupon, vec![1, 2], &["end_coupon", "end_coupon", "pause_coupon", "edit_coupon"]),
        (Kind::Order, vec![1, 2], &["cancel_order"]),
        (Kind::Payment, vec![1], &[]),
    ] {
        let subjects = [(kind, ids)];
        let entries = audit::about(&mut connection, &subjects).await.expect("Postgres answers");
        let actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
        assert_eq!(actions, expected, "{subjects:?}");
    }
}
