//! `ask`: comparisons on request, under a key and without one, and their records.

use std::time::Duration;

use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::RunId;
use flash_sale::sale::reconcile::pass::Asked;
use flash_sale::sale::reconcile::runs::{Run, RunKey};
use flash_sale::sale::reconcile::turn::Turn;

use private_servers::testing::RedisProxy;
use sqlx::PgPool;

use super::HOLDERS;
use crate::support::lines::Lines;
use crate::support::{Bounded, TestApp, bounded, eventually, user};

fn key(asker: i64, body: &[u8]) -> Option<RunKey> {
    Some(RunKey::new(user(asker), "a key".to_owned(), body))
}

async fn ask(app: &TestApp, key: Option<RunKey>, repairs: bool) -> Asked {
    let asked = app.app.reconciler.ask(key, repairs, &Actor::command_line()).bounded().await;
    asked.expect("both stores answer")
}

async fn run_of(app: &TestApp, key: Option<RunKey>, repairs: bool) -> Run {
    match ask(app, key, repairs).await {
        Asked::Compared(run) => run,
        refused => panic!("{refused:?}"),
    }
}

async fn runs(app: &TestApp) -> i64 {
    app.number("SELECT count(*) FROM reconcile_runs").await
}

/// The record has no end: its comparison goes on, or its process died.
async fn take_end_away(app: &TestApp, run: RunId) {
    app.execute(&format!(
        "UPDATE reconcile_runs SET finished_at = NULL, failure = NULL, at_rest = NULL, sales = NULL, in_flight = NULL,
                                   orders = NULL, disagreements = NULL WHERE id = {}",
        run.get()
    ))
    .await;
}

#[tokio::test]
async fn ask_begins_one_comparison_for_a_key_and_one_for_each_request_without() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    app.order(1, coupon).await;
    app.execute("UPDATE flash_sales SET sold = 0").await;
    let first = run_of(&app, key(1, b"a"), false).await;
    assert_eq!((first.disagreements, first.repairs.len(), first.sales), (Some(1), 0, Some(1)));
    assert_eq!(run_of(&app, key(1, b"a"), false).await.run_id, first.run_id);
    assert!(matches!(ask(&app, key(1, b"b"), false).await, Asked::KeyReused));
    assert_eq!(runs(&app).await, 1);
    let second = run_of(&app, key(2, b"a"), false).await;
    assert!(second.run_id > first.run_id);
    let book = "SELECT subject_id FROM audit WHERE action = 'repair_stores'";
    assert_eq!(app.numbers(book).await, [0; 0]);
    let third = run_of(&app, None, true).await;
    assert_eq!((third.disagreements, third.repairs.len()), (Some(1), 1));
    assert_eq!(app.numbers(book).await, [third.run_id.get()]);
    let fourth = run_of(&app, None, false).await;
    assert_eq!((fourth.disagreements, runs(&app).await), (Some(0), 4));
    assert_eq!(app.number(HOLDERS).await, 0, "the turn is free");

    let reconciler = &app.app.reconciler;
    app.execute(&format!("DELETE FROM reconcile_runs WHERE id = {}", second.run_id.get())).await;
    for (run, found) in [(&first, true), (&second, false), (&third, true), (&fourth, true)] {
        let told = reconciler.get(run.run_id).await.expect("Postgres answers");
        assert_eq!(told.map(|told| told.run_id), found.then_some(run.run_id));
    }
}

#[tokio::test]
async fn broken_off_is_a_comparison_without_an_end_once_the_turn_is_free() {
    let app = TestApp::start().await;
    let first = run_of(&app, key(1, b"a"), false).await;
    take_end_away(&app, first.run_id).await;
    let held = Turn::take(&app.app.stores.pool, Duration::ZERO).await;
    let held = held.expect("Postgres answers").expect("it is free");
    let goes_on = run_of(&app, key(1, b"a"), false).await;
    assert_eq!((goes_on.run_id, goes_on.finished_at, goes_on.failure), (first.run_id, None, None));
    match ask(&app, None, false).await {
        Asked::Busy(run) => assert_eq!(run, Some(first.run_id)),
        other => panic!("{other:?}"),
    }
    held.end().await.expect("Postgres answers");
    let ended = run_of(&app, key(1, b"a"), false).await;
    let why = ended.failure.as_deref();
    assert_eq!((ended.run_id, why), (first.run_id, Some("its process died before it was done")));
    assert!(ended.finished_at.is_some());
    assert_eq!((runs(&app).await, app.number(HOLDERS).await), (1, 0));
    // It has an end now, which stays.
    let again = run_of(&app, key(1, b"a"), false).await;
    assert_eq!(again.finished_at, ended.finished_at);
}

/// New sessions of this pool are led over a proxy that can hold `command` back: it forwards bytes, whatever the server.
async fn proxy_before_postgres(pool: &PgPool, command: &'static str) -> RedisProxy {
    let options = pool.connect_options();
    let folder = options.get_socket().expect("a Unix socket").display();
    let socket = format!("redis+unix://{folder}/.s.PGSQL.{}", options.get_port());
    let proxy = RedisProxy::before(&socket, command).await;
    let address = proxy.url().strip_prefix("redis://").expect("it listens on TCP");
    let (name, database) = (options.get_username(), options.get_database().expect("a name"));
    let url = format!("postgres://{name}@{address}/{database}");
    pool.set_connect_options(url.parse().expect("a valid URL"));
    proxy
}

/// Its process notes the end after the record was read, and before the turn is asked for.
#[tokio::test]
async fn broken_off_is_no_comparison_that_ends_before_the_turn_is_taken() {
    let app = TestApp::start().await;
    let run = run_of(&app, key(1, b"a"), false).await.run_id;
    take_end_away(&app, run).await;
    let other = app.another_instance().await;
    let proxy = proxy_before_postgres(&other.stores.pool, "pg_try_advisory_xact_lock").await;
    proxy.hold();
    let by = Actor::command_line();
    let asks = other.reconciler.ask(key(1, b"a"), false, &by);
    let ends = async {
        eventually("the turn is asked for", async || proxy.held() == 1).await;
        app.execute(
            "UPDATE reconcile_runs SET finished_at = now(), at_rest = true, sales = 0, in_flight = 0, orders = '{}',
                                       disagreements = 0",
        )
        .await;
        proxy.release();
    };
    let both = async { tokio::join!(asks.bounded(), ends) };
    let (asked, ()) = bounded("the answer", both).await;
    let Ok(Asked::Compared(told)) = asked else { panic!("{asked:?}") };
    assert_eq!((told.run_id, told.failure, told.disagreements), (run, None, Some(0)));
}

/// Postgres has answered the statements that end them. Without a sale, no other transaction is rolled back.
#[tokio::test]
async fn ask_and_broken_off_end_their_turns() {
    let app = TestApp::start().await;
    let other = app.another_instance().await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    let ends = || lines.count("summary=\"ROLLBACK\"");
    let run = run_of(&app, key(1, b"a"), false).await.run_id;
    assert_eq!(ends(), 1);
    take_end_away(&app, run).await;
    assert_eq!(run_of(&app, key(1, b"a"), false).await.run_id, run);
    assert_eq!(ends(), 2);
    // The same request comes again before the first one has the turn, and is done before it.
    let proxy = proxy_before_postgres(&other.stores.pool, "pg_try_advisory_xact_lock").await;
    proxy.hold();
    let by = Actor::command_line();
    let asks = other.reconciler.ask(key(2, b"a"), false, &by).bounded();
    let comes_again = async {
        eventually("the turn is asked for", async || proxy.held() == 1).await;
        let run = run_of(&app, key(2, b"a"), false).await.run_id;
        assert_eq!(ends(), 3);
        proxy.release();
        run
    };
    let (asked, run) = tokio::join!(asks, comes_again);
    assert!(matches!(&asked, Ok(Asked::Compared(told)) if told.run_id == run), "{asked:?}");
    assert_eq!(ends(), 4);
}
