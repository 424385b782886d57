//! `records` and `closures`: the record of recoveries, row by row: listed, settled, forgotten, and without a user.

use chrono::DateTime;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::fence::ClosureReason;
use flash_sale::sale::ids::RecoveryId;
use flash_sale::sale::operations::{OpenKind, Operations};
use flash_sale::sale::recovery::closures::{self, RecoveryFilter, RecoveryState};
use flash_sale::sale::recovery::records::{self, Recovery};
use sqlx::AssertSqlSafe;

use crate::support::{TestApp, now};

fn recovery(id: i64) -> RecoveryId {
    RecoveryId::new(id).expect("a positive number")
}

fn ids(recoveries: &[Recovery]) -> Vec<i64> {
    recoveries.iter().map(|recovery| recovery.id.get()).collect()
}

async fn lines(app: &TestApp, query: &str) -> Vec<String> {
    let lines = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
    lines.fetch_all(&app.app.stores.pool).await.expect("Postgres answers")
}

/// Recoveries in each state, an hour apart.
const STATES: &str = r#"
    INSERT INTO recoveries (id, lane, epoch, reason, closed_at, opened_at, lost, unknown, settled_at, note)
    OVERRIDING SYSTEM VALUE
    SELECT id, lane, 10 + id, reason, '2026-03-01T00:00:00Z'::timestamptz + id * interval '1 hour',
           CASE WHEN opened THEN '2026-03-02'::timestamptz END,
           CASE WHEN lost THEN '[{"coupon_id": "1", "user_id": "7", "order_id": "5", "reason": "superseded"}]'::jsonb ELSE '[]' END,
           unknown, CASE WHEN settled THEN now() END, CASE WHEN settled THEN 'told before' END
    FROM (VALUES (1, 0, 'Redis went back in time', true, false, NULL, false),
                 (2, 0, 'Redis went back in time', true, true, NULL, false),
                 (3, 0, 'Redis has lost its data', true, false, 0, false),
                 (4, 0, 'Redis went back in time', true, false, 2, false),
                 (5, 1, 'Redis went back in time', false, false, NULL, false),
                 (6, 1, 'Redis has lost its data', true, true, 0, true),
                 (7, 1, 'Redis went back in time', true, false, 2, true))
         AS row (id, lane, reason, opened, lost, unknown, settled)"#;

#[tokio::test]
async fn recoveries_with_unsettled_losses_wait_for_a_person() {
    let app = TestApp::start().await;
    app.execute(STATES).await;
    let pool = &app.app.stores.pool;
    let waiting = Operations::new(pool.clone()).list(Some(OpenKind::Recovery), None, 9).await;
    let waiting: Vec<String> =
        waiting.expect("Postgres answers").into_iter().map(|item| item.id).collect();
    assert_eq!(waiting, ["4", "2"], "those that lost claims, and that nobody has settled");
}

#[tokio::test]
async fn closures_are_listed_by_lane_state_reason_and_time() {
    use RecoveryState::{KeptAll, Settled, Unfinished, Unsettled};
    let app = TestApp::start().await;
    app.execute(STATES).await;
    // The newest row has the oldest closure, and two have one time.
    app.execute("UPDATE recoveries SET closed_at = '2026-03-01T00:00:00Z' WHERE id = 7; UPDATE recoveries SET closed_at = '2026-03-01T02:00:00Z' WHERE id = 3").await;
    let at = |hour: i64| DateTime::from_timestamp(1_772_323_200 + 3_600 * hour, 0);
    let all = RecoveryFilter::default();
    let of = |state| RecoveryFilter { state: Some(state), ..all };
    for (filter, behind, limit, expected) in [
        (all, None, 9, &[6, 5, 4, 3, 2, 1, 7][..]),
        (all, None, 2, &[6, 5]),
        (all, Some(4), 9, &[3, 2, 1, 7]),
        (all, Some(3), 9, &[2, 1, 7]),
        (all, Some(2), 9, &[1, 7]),
        (all, Some(7), 9, &[]),
        (all, Some(99), 9, &[]),
        (RecoveryFilter { lane: Some(1), ..all }, None, 9, &[6, 5, 7]),
        (RecoveryFilter { lane: Some(2), ..all }, None, 9, &[]),
        (RecoveryFilter { reason: Some(ClosureReason::DataLost), ..all }, None, 9, &[6, 3]),
        (of(Unfinished), None, 9, &[5]),
        (of(KeptAll), None, 9, &[3, 1]),
        (of(Unsettled), None, 9, &[4, 2]),
        (of(Settled), None, 9, &[6, 7]),
        (RecoveryFilter { from: at(4), ..all }, None, 9, &[6, 5, 4]),
        (RecoveryFilter { to: at(4), ..all }, None, 9, &[3, 2, 1, 7]),
        (RecoveryFilter { from: at(1), to: at(5), lane: Some(0), ..all }, None, 9, &[4, 3, 2, 1]),
    ] {
        let list = closures::list(&app.app.stores.pool, &filter, behind.map(recovery), limit).await;
        assert_eq!(
            ids(&list.expect("Postgres answers")),
            expected,
            "{filter:?} {behind:?} {limit}"
        );
    }
}

#[tokio::test]
async fn settle_notes_once_that_lost_claims_are_settled() {
    let app = TestApp::start().await;
    app.execute(STATES).await;
    let by = Actor::command_line();
    for (id, note, settled) in [
        (1, "told", false),
        (2, "told", true),
        (2, "told again", true),
        (3, "told", false),
        (4, "asked", true),
        (5, "told", false),
        (6, "told", true),
        (7, "told", true),
        (8, "told", false),
    ] {
        let told = records::settle(&app.app.stores.pool, recovery(id), note, &by).await;
        assert_eq!(told.expect("Postgres answers"), settled, "{id} {note}");
    }
    let notes = "SELECT id || ' ' || note FROM recoveries WHERE settled_at <= now() ORDER BY id";
    assert_eq!(lines(&app, notes).await, ["2 told", "4 asked", "6 told before", "7 told before"]);
    let book = "SELECT concat_ws(' ', subject_id, before->>'state', before->>'lane', before->>'epoch', before->>'claims_lost',
                                 before->>'claims_unknown', after->>'state', after->>'note', before->>'reason')
                FROM audit WHERE action = 'settle_recovery' ORDER BY id";
    assert_eq!(
        lines(&app, book).await,
        [
            "2 unsettled 0 12 1 0 settled told Redis went back in time",
            "4 unsettled 0 14 0 2 settled asked Redis went back in time"
        ]
    );
}

/// Recoveries that were closed some days ago.
const OLD: &str = "
    INSERT INTO recoveries (id, lane, epoch, reason, closed_at, opened_at, lost, unknown, settled_at, note)
    OVERRIDING SYSTEM VALUE
    SELECT id, lane, id, 'x', to_timestamp(SECONDS) + later * interval '1 s', CASE WHEN opened THEN now() END, lost::jsonb, unknown,
           CASE WHEN settled THEN now() END, CASE WHEN settled THEN 'told' END
    FROM (VALUES (1, 2, -1, true, '[]', NULL, false),
                 (2, 0, -1, true, '[]', NULL, false),
                 (3, 0, -1, true, '[{}]', NULL, false),
                 (4, 0, -1, false, '[{}]', NULL, true),
                 (5, 0, -1, true, '[]', 2, false),
                 (6, 0, -1, true, '[]', 0, false),
                 (7, 0, 0, true, '[]', NULL, false),
                 (8, 0, -1, true, '[]', 2, true),
                 (9, 0, -1, true, '[]', NULL, false),
                 (10, 1, -1, true, '[]', NULL, false),
                 (11, 1, -1, false, '[]', NULL, false))
         AS row (id, lane, later, opened, lost, unknown, settled)";

#[tokio::test]
async fn forget_deletes_what_a_newer_recovery_of_the_lane_has_ended() {
    let app = TestApp::start().await;
    let time = DateTime::from_timestamp(now().timestamp() - 864_000, 0).expect("a time");
    app.execute(&OLD.replace("SECONDS", &time.timestamp().to_string())).await;
    for (limit, deleted, left) in [
        (1, 1, "1 3 4 5 6 7 8 9 10 11"),
        (2, 2, "1 3 5 7 8 9 10 11"),
        (9, 1, "1 3 5 7 9 10 11"),
        (9, 0, "1 3 5 7 9 10 11"),
    ] {
        let forgotten = records::forget(&app.app.stores.pool, time, limit).await;
        assert_eq!(forgotten.expect("Postgres answers"), deleted, "{left}");
        let there = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM recoveries";
        assert_eq!(lines(&app, there).await, [left]);
    }
    app.execute("DELETE FROM recoveries").await;
}
