//! `postponed`: items of passes that are noted, due, settled and listed, beside those of other passes.

use flash_sale::kit::postgres;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::PostponedId;
use flash_sale::sale::pass::Pass;
use flash_sale::sale::postponed::{PostponedPart, note_settled};

use crate::support::TestApp;

fn id(id: i64) -> PostponedId {
    PostponedId::new(id).expect("a positive number")
}

/// Notes by id, pass, item, tries, and minutes until the next try.
async fn write(app: &TestApp, rows: &[(i64, &str, i64, i64, i64)]) {
    let line = |(id, pass, item, tries, minutes): &(i64, &str, i64, i64, i64)| {
        format!("({id}, '{pass}', {item}, {tries}, {minutes})")
    };
    let rows: Vec<String> = rows.iter().map(line).collect();
    app.execute(&format!(
        "INSERT INTO postponed (id, pass, item, tries, error, since, next_try_at, updated_at)
         OVERRIDING SYSTEM VALUE
         SELECT id, pass, item, tries, 'old', now() - interval '1 day', now() + minutes * interval '1 minute',
                now() - interval '1 day'
         FROM (VALUES {}) AS row (id, pass, item, tries, minutes)",
        rows.join(", ")
    ))
    .await;
}

/// All notes by id: pass, item, tries, error, and minutes until the next try, which may have begun.
async fn notes(app: &TestApp) -> Vec<String> {
    app.texts(
        "SELECT concat_ws(' ', id, pass, item, tries, error,
                          CASE WHEN next_try_at > now() + interval '20 minutes' THEN 'waits' ELSE 'due' END)
         FROM postponed ORDER BY id",
    )
    .await
}

#[tokio::test]
async fn note_notes_each_item_once_and_again_only_when_it_is_due() {
    let app = TestApp::start().await;
    let postponed = &app.app.postponed;
    postponed.note(Pass::Expiry, &[5, 3, 4], "a\0b").await.expect("Postgres answers");
    assert_eq!(app.numbers("SELECT item FROM postponed ORDER BY id").await, [3, 4, 5]);
    let pause = "SELECT round(extract(epoch FROM next_try_at - updated_at))::bigint FROM postponed ORDER BY item";
    assert_eq!(app.numbers(pause).await, [1, 1, 1]);
    app.execute("DELETE FROM postponed").await;

    write(
        &app,
        &[
            (101, "expiry", 1, 1, 30),
            (102, "expiry", 2, 1, -1),
            (103, "expiry", 3, 8, -1),
            (104, "expiry", 4, 9, -1),
            (105, "expiry", 5, 40, -1),
            (106, "expiry", 6, 5_000, -1),
            (107, "archive", 2, 7, -1),
            (108, "expiry", 8, 7, -1),
        ],
    )
    .await;
    postponed.note(Pass::Expiry, &[1, 2, 3, 4, 5, 6], "new").await.expect("Postgres answers");
    let noted = "SELECT concat_ws(' ', id, tries, error, updated_at > now() - interval '1 hour') FROM postponed ORDER BY id";
    assert_eq!(
        app.texts(noted).await,
        [
            "101 1 old f",
            "102 2 new t",
            "103 9 new t",
            "104 10 new t",
            "105 41 new t",
            "106 5001 new t",
            "107 7 old f",
            "108 7 old f"
        ]
    );
    let pause = "SELECT round(extract(epoch FROM next_try_at - updated_at))::bigint FROM postponed
                 WHERE error = 'new' ORDER BY id";
    assert_eq!(app.numbers(pause).await, [2, 256, 300, 300, 300]);
}

#[tokio::test]
async fn begin_finds_what_is_due_of_its_pass_and_waits_tells_what_is_not() {
    let app = TestApp::start().await;
    write(
        &app,
        &[
            (101, "expiry", 1, 1, -1),
            (102, "expiry", 2, 1, 0),
            (103, "expiry", 3, 1, 30),
            (104, "archive", 4, 1, -1),
            (105, "archive", 1, 1, 30),
        ],
    )
    .await;
    let postponed = &app.app.postponed;
    let due = async |pass| postponed.begin(pass).await.expect("Postgres answers").due();
    assert_eq!(due(Pass::Expiry).await, [1, 2]);
    assert_eq!(due(Pass::Archive).await, [4]);
    assert_eq!(due(Pass::Refunds).await, [0; 0]);
    for (pass, item, waits) in [
        (Pass::Expiry, 1, false),
        (Pass::Expiry, 3, true),
        (Pass::Expiry, 4, false),
        (Pass::Archive, 1, true),
        (Pass::Archive, 3, false),
        (Pass::Archive, 4, false),
    ] {
        let told = postponed.waits(pass, item).await.expect("Postgres answers");
        assert_eq!(told, waits, "{pass:?} {item}");
    }
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at)
         SELECT 'refunds', 100 - n, 'x', now() - n * interval '1 minute' FROM generate_series(1, 22) AS n",
    )
    .await;
    assert_eq!(due(Pass::Refunds).await, (78..=97).collect::<Vec<i64>>(), "due for longest");
}

#[tokio::test]
async fn make_due_ends_the_pause_of_one_item_in_these_passes() {
    let app = TestApp::start().await;
    write(
        &app,
        &[
            (101, "expiry", 7, 1, 30),
            (102, "archive", 7, 1, 30),
            (103, "refunds", 7, 1, 30),
            (104, "expiry", 8, 1, 30),
        ],
    )
    .await;
    let passes = [Pass::Expiry, Pass::Archive];
    app.app.postponed.make_due(&passes, 7).await.expect("Postgres answers");
    assert_eq!(
        notes(&app).await,
        [
            "101 expiry 7 1 old due",
            "102 archive 7 1 old due",
            "103 refunds 7 1 old waits",
            "104 expiry 8 1 old waits"
        ]
    );
    let changed =
        "SELECT id FROM postponed WHERE updated_at > now() - interval '1 hour' ORDER BY id";
    assert_eq!(app.numbers(changed).await, [101, 102]);
}

#[tokio::test]
async fn retry_makes_one_item_due_that_waits_and_enters_it_in_the_book() {
    let app = TestApp::start().await;
    write(
        &app,
        &[
            (101, "expiry", 1, 1, 30),
            (102, "refunds", 2, 1, 30),
            (103, "archive", 3, 1, -60),
            (104, "changes", 4, 1, 30),
        ],
    )
    .await;
    app.execute("UPDATE postponed SET next_try_at = 'infinity' WHERE id = 102").await;
    let due_before = "SELECT extract(epoch FROM next_try_at)::bigint FROM postponed WHERE id = 103";
    let before = app.number(due_before).await;
    for (note, there) in [(101, true), (102, true), (103, true), (105, false)] {
        let told = app.app.postponed.retry(id(note), &Actor::command_line()).await;
        assert_eq!(told.expect("Postgres answers"), there, "{note}");
    }
    let due = "SELECT concat_ws(' ', id, next_try_at <= now(), updated_at > now() - interval '1 hour') FROM postponed ORDER BY id";
    assert_eq!(app.texts(due).await, ["101 t t", "102 t t", "103 t f", "104 f f"]);
    assert_eq!(app.number(due_before).await, before);
    let book = "SELECT concat_ws(' ', subject_id, before->>'pass', after->>'pass', before->>'item', after->>'item',
                                 (before->>'next_try_at')::timestamptz > now() + interval '20 minutes',
                                 (after->>'next_try_at')::timestamptz <= now())
                FROM audit WHERE action = 'retry_postponed' ORDER BY id";
    assert_eq!(app.texts(book).await, ["101 expiry expiry 1 1 t t", "102 refunds refunds 2 2 t"]);
}

/// The other one is noted alone.
#[tokio::test]
async fn retry_waits_for_another_retry_and_changes_nothing_then() {
    let app = TestApp::start().await;
    write(&app, &[(101, "expiry", 1, 1, 30)]).await;
    let makes_due =
        "UPDATE postponed SET next_try_at = now() - interval '1 hour', updated_at = now()";
    let other = app.holding(makes_due).await;
    let by = Actor::command_line();
    let retries = app.app.postponed.retry(id(101), &by);
    let commits = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    let (there, ()) = tokio::join!(retries, commits);
    assert!(there.expect("Postgres answers"));
    assert_eq!(app.number("SELECT count(*) FROM audit").await, 0);
    let left = "SELECT count(*) FROM postponed WHERE next_try_at < now() - interval '30 minutes'";
    assert_eq!(app.number(left).await, 1);
}

#[tokio::test]
async fn end_wait_settles_due_items_of_its_pass() {
    let app = TestApp::start().await;
    write(
        &app,
        &[
            (101, "expiry", 1, 3, -1),
            (102, "expiry", 2, 1, -1),
            (103, "archive", 1, 1, -1),
            (104, "expiry", 4, 5, -1),
        ],
    )
    .await;
    let tries = app.app.postponed.begin(Pass::Expiry).await.expect("Postgres answers");
    assert_eq!(tries.due(), [1, 2, 4]);
    // One fails in another process meanwhile, one becomes due later, and an old note has an id that comes again.
    write(&app, &[(105, "expiry", 5, 1, -1)]).await;
    app.execute(
        "UPDATE postponed SET next_try_at = now() + interval '30 minutes' WHERE id = 102;
         INSERT INTO postponed_settled (id, pass, item, since, tries, error) VALUES (104, 'changes', 9, now(), 9, 'x')",
    )
    .await;
    tries.end().await.expect("Postgres answers");
    assert_eq!(
        notes(&app).await,
        ["102 expiry 2 1 old waits", "103 archive 1 1 old due", "105 expiry 5 1 old due"]
    );
    let settled =
        "SELECT concat_ws(' ', id, pass, item, tries, error, since < now() - interval '20 hours',
                                    settled_at > now() - interval '1 hour')
                   FROM postponed_settled ORDER BY id";
    assert_eq!(app.texts(settled).await, ["101 expiry 1 3 old t t", "104 changes 9 9 x f t"]);
}

/// An id that comes again stops no pass.
#[tokio::test]
async fn note_settled_keeps_the_older_note_of_an_id() {
    let app = TestApp::start().await;
    app.execute(
        "INSERT INTO postponed_settled (id, pass, item, since, tries, error) VALUES (2, 'changes', 9, now(), 9, 'x')",
    )
    .await;
    for item in [7, 8, 9] {
        let mut tx = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
        note_settled(&mut tx, Pass::Expiry, item, "e").await.expect("Postgres answers");
        tx.commit().await.expect("Postgres answers");
    }
    let settled =
        "SELECT concat_ws(' ', id, pass, item, tries, error) FROM postponed_settled ORDER BY id";
    assert_eq!(app.texts(settled).await, ["1 expiry 7 1 e", "2 changes 9 9 x", "3 expiry 9 1 e"]);
}

#[tokio::test]
async fn waiting_rows_and_settled_rows_are_listed_by_pass_newest_first() {
    use PostponedPart::{Settled, Waiting};
    let app = TestApp::start().await;
    write(
        &app,
        &[
            (101, "expiry", 1, 1, 1),
            (102, "archive", 2, 1, 1),
            (103, "expiry", 3, 1, 1),
            (104, "expiry", 4, 1, 1),
        ],
    )
    .await;
    app.execute(
        "INSERT INTO postponed_settled (id, pass, item, since, tries, error)
         SELECT id + 100, CASE pass WHEN 'expiry' THEN 'refunds' ELSE pass END, item, since, tries, error FROM postponed",
    )
    .await;
    for (part, pass, before, limit, expected) in [
        (Waiting, None, None, 9, &[104, 103, 102, 101][..]),
        (Waiting, None, None, 2, &[104, 103]),
        (Waiting, None, Some(103), 9, &[102, 101]),
        (Waiting, Some(Pass::Expiry), None, 9, &[104, 103, 101]),
        (Waiting, Some(Pass::Expiry), Some(103), 9, &[101]),
        (Waiting, Some(Pass::Expiry), None, 1, &[104]),
        (Waiting, Some(Pass::Refunds), None, 9, &[]),
        (Settled, None, None, 9, &[204, 203, 202, 201]),
        (Settled, None, None, 2, &[204, 203]),
        (Settled, None, Some(203), 9, &[202, 201]),
        (Settled, Some(Pass::Refunds), None, 9, &[204, 203, 201]),
        (Settled, Some(Pass::Refunds), Some(203), 9, &[201]),
        (Settled, Some(Pass::Refunds), None, 1, &[204]),
        (Settled, Some(Pass::Expiry), None, 9, &[]),
    ] {
        let list = app.app.postponed.list(part, pass, before.map(id), limit).await;
        let list = list.expect("Postgres answers");
        let ids: Vec<i64> = list.iter().map(|item| item.id.get()).collect();
        assert_eq!(ids, expected, "{part:?} {pass:?} {before:?} {limit}");
        let is_settled = part == Settled;
        for item in &list {
            let told = (item.settled_at.is_some(), item.next_try_at.is_some());
            assert_eq!(told, (is_settled, !is_settled), "{item:?}");
        }
    }
}
