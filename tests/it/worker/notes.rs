//! Notes about postponed items, one by one: when they are made, when they are settled, and what is said.

use flash_sale::sale::Failure;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::{CouponId, PostponedId};
use flash_sale::sale::pass::Pass;
use tracing::Level;

use crate::support::lines::{Lines, number};
use crate::support::{TestApp, lane};

const ALARM: &str = "ALARM: an item can't be dealt with";
const SETTLED: &str = "what had been postponed is dealt with";

/// Items that are settled, each with the number of tries.
async fn settled(app: &TestApp) -> Vec<String> {
    let query =
        "SELECT concat_ws(' ', pass, item, tries) FROM postponed_settled ORDER BY pass, item";
    sqlx::query_scalar(query).fetch_all(&app.app.stores.pool).await.expect("Postgres answers")
}

#[tokio::test]
async fn settle_of_tries_goes_by_their_results() {
    let app = TestApp::start().await;
    let coupon = CouponId::compose(1, 1);
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at)
             SELECT 'archive', n, 'no', now() FROM generate_series(1, 5) AS n",
    )
    .await;
    let lines = Lines::heard();
    let mut tries = app.app.postponed.begin(Pass::Archive).await.expect("Postgres answers");
    for (item, tried, found, postponed) in [
        // Due before.
        (1, Ok(7), Ok(Some(7)), None),
        (2, Err(Failure::recovering(lane())), Ok(None), Some("archive 2 1")),
        (3, Err(Failure::Stale(coupon)), Ok(None), Some("archive 3 2")),
        (4, Err(Failure::NoReply), Err(()), Some("archive 4 1")),
        // Not postponed before.
        (11, Ok(7), Ok(Some(7)), None),
        (12, Err(Failure::recovering(lane())), Ok(None), None),
        (13, Err(Failure::Stale(coupon)), Ok(None), Some("archive 13 1")),
        (14, Err(Failure::NoReply), Err(()), None),
    ] {
        assert_eq!(tries.settle(item, tried).await.map_err(drop), found, "item {item}");
        let notes = app.postponed().await;
        let is_of_item = |note: &&String| note.starts_with(&format!("archive {item} "));
        assert_eq!(notes.iter().find(is_of_item).map(String::as_str), postponed);
    }
    assert_eq!(settled(&app).await, ["archive 1 1"]);
    assert_eq!((lines.count(ALARM), lines.count(SETTLED)), (1, 1));
    assert_eq!(tries.due(), [5], "it was no item of the pass");
    tries.end().await.expect("Postgres answers");
    assert_eq!(settled(&app).await, ["archive 1 1", "archive 5 1"]);
    assert_eq!(lines.count(SETTLED), 2);
}

#[tokio::test]
async fn a_try_without_a_result_puts_off_only_what_had_been_postponed() {
    let app = TestApp::start().await;
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('refunds', 1, 'no', now())",
    )
    .await;
    let mut tries = app.app.postponed.begin(Pass::Refunds).await.expect("Postgres answers");
    for (item, notes) in [(2, ["refunds 1 1"]), (1, ["refunds 1 2"])] {
        tries.put_off(item, &Failure::NoReply).await.expect("Postgres answers");
        assert_eq!(app.postponed().await, notes);
    }
    assert_eq!(tries.due(), [0; 0]);
    let lines = Lines::heard();
    tries.end().await.expect("Postgres answers");
    assert_eq!((settled(&app).await.len(), lines.count(SETTLED)), (0, 0));
}

/// Items that have failed in another process since the beginning of the run go on waiting.
#[tokio::test]
async fn end_wait_says_how_many_items_were_settled_and_asks_nothing_where_none_was_due() {
    let app = TestApp::start().await;
    for (due, put_off, statements, said) in [
        (0, 0, 0, None),
        (1, 0, 1, Some("count=1")),
        (2, 0, 1, Some("count=2")),
        (3, 1, 1, Some("count=2")),
        (1, 1, 1, None),
    ] {
        app.execute(&format!(
            "DELETE FROM postponed;
             INSERT INTO postponed (pass, item, error, next_try_at)
             SELECT 'expiry', n, 'no', now() FROM generate_series(1, {due}) AS n"
        ))
        .await;
        let tries = app.app.postponed.begin(Pass::Expiry).await.expect("Postgres answers");
        let put_off = format!("item <= {put_off}");
        let waits = "UPDATE postponed SET next_try_at = now() + interval '1 hour' WHERE";
        app.execute(&format!("{waits} {put_off}")).await;
        let lines = Lines::down_to(Level::DEBUG);
        tries.end().await.expect("Postgres answers");
        let case = format!("{due} without {put_off}");
        assert_eq!(lines.count("WITH settled AS"), statements, "{case}");
        let told = lines.with(SETTLED);
        assert_eq!(told.len(), usize::from(said.is_some()), "{case}: {told:?}");
        assert!(told.iter().zip(said).all(|(line, said)| line.contains(said)), "{told:?}");
    }
}

/// Most items have never been postponed.
#[tokio::test]
async fn settle_of_an_item_that_was_not_due_asks_postgres_for_nothing() {
    let app = TestApp::start().await;
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('expiry', 1, 'no', now())",
    )
    .await;
    let mut tries = app.app.postponed.begin(Pass::Expiry).await.expect("Postgres answers");
    for (item, statements) in [(2, 0), (1, 1), (1, 0)] {
        let lines = Lines::down_to(Level::DEBUG);
        let told = tries.settle(item, Ok(())).await.expect("Postgres answers");
        assert_eq!((told, lines.count("WITH settled AS")), (Some(()), statements), "{item}");
    }
}

#[tokio::test]
async fn the_first_failure_of_an_item_is_an_alarm_and_each_is_counted() {
    let app = TestApp::start().await;
    let failures = || number(&app.app, "flash_sale_pass_failures_total{pass=\"expiry\"}");
    let lines = Lines::heard();
    let long = "ä\n".repeat(600);
    for (items, alarms, counted, notes) in [
        (&[7, 8][..], 1, 2.0, &["expiry 7 1", "expiry 8 1"][..]),
        // Noted a moment ago: nothing changes.
        (&[7], 1, 3.0, &["expiry 7 1", "expiry 8 1"]),
        (&[9], 2, 4.0, &["expiry 7 1", "expiry 8 1", "expiry 9 1"]),
    ] {
        app.app.postponed.note(Pass::Expiry, items, &long).await.expect("Postgres answers");
        assert_eq!((lines.count(ALARM), failures()), (alarms, counted), "{items:?}");
        assert_eq!(app.postponed().await, notes);
    }
    assert_eq!(lines.count("others=1"), 1);
    app.let_postponed_be_due().await;
    app.app.postponed.note(Pass::Expiry, &[7], "again").await.expect("Postgres answers");
    assert_eq!((lines.count(ALARM), app.postponed().await[0].as_str()), (2, "expiry 7 2"));
    let chars = "SELECT char_length(error)::bigint FROM postponed WHERE item = 8 AND error LIKE 'ä\u{fffd}ä%'";
    assert_eq!(app.number(chars).await, 1_000);
}

#[tokio::test]
async fn an_item_waits_until_it_is_due_or_made_due() {
    let app = TestApp::start().await;
    let postponed = &app.app.postponed;
    postponed.note(Pass::Expiry, &[7], "no").await.expect("Postgres answers");
    postponed.note(Pass::Archive, &[7, 8], "no").await.expect("Postgres answers");
    app.let_postponed_wait().await;
    let waits = async |pass, item| postponed.waits(pass, item).await.expect("Postgres answers");
    let all = async || {
        [waits(Pass::Expiry, 7).await, waits(Pass::Archive, 7).await, waits(Pass::Archive, 8).await]
    };
    assert_eq!(all().await, [true; 3]);
    assert!(!waits(Pass::Load, 7).await && !waits(Pass::Expiry, 8).await);
    let waiting = postponed.waiting().await.expect("Postgres answers");
    assert_eq!((waiting["expiry"].items, waiting["archive"].items, waiting.len()), (1, 2, 2));
    postponed.make_due(&[Pass::Archive, Pass::Load], 7).await.expect("Postgres answers");
    assert_eq!(all().await, [true, false, true]);

    let id = app.number("SELECT id FROM postponed WHERE pass = 'expiry'").await;
    let by = Actor::command_line();
    let retry = async |id| {
        let id = PostponedId::new(id).expect("an id");
        postponed.retry(id, &by).await.expect("Postgres answers")
    };
    let entries = "SELECT count(*) FROM audit WHERE action = 'retry_postponed'";
    for (id, is_there, noted) in [(id, true, 1), (id, true, 1), (id + 100, false, 1)] {
        assert_eq!((retry(id).await, app.number(entries).await), (is_there, noted));
    }
    assert_eq!(all().await, [false, false, true]);
}
