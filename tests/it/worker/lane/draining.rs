//! The end of a worker: it writes the entries that are in its log, and leaves the group.

use flash_sale::worker::LaneWorker;
use private_servers::testing::RedisServer;

use super::{app_on, append, consumers, reader, rows, worker_of, worker_with};
use crate::support::lines::Lines;
use crate::support::process::pending;
use crate::support::{Bounded, TestApp, bounded, command_calls, lane};

async fn drained(worker: &mut LaneWorker) {
    bounded("the worker has left", worker.drain()).await;
}

#[tokio::test]
async fn a_drain_writes_all_batches_and_leaves_the_group() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |with| with.batch_orders_max = 2).await;
    append(&app, coupon, 1..=7).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").inserted, 2);
    assert_eq!(consumers(&app).await, 1);
    let lines = Lines::heard();
    drained(&mut worker).await;
    assert_eq!((rows(&app).await, consumers(&app).await), (7, 0));
    assert_eq!(lines.count("WARN"), 0);
}

/// Such entries come by an answer that was lost.
#[tokio::test]
async fn a_drain_finds_own_entries_that_the_worker_does_not_know_of() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").positions, 0);
    append(&app, coupon, 1..=2).await;
    assert_eq!(worker.log().read_new(2).await.expect("Redis answers").len(), 2);
    drained(&mut worker).await;
    assert_eq!((rows(&app).await, consumers(&app).await), (2, 0));
}

#[tokio::test]
async fn a_worker_that_has_read_nothing_leaves_without_a_word() {
    let app = TestApp::start().await;
    let mut worker = worker_of(app.app.clone(), (&app.config).into());
    let lines = Lines::heard();
    drained(&mut worker).await;
    assert_eq!(lines.count(""), 0, "{:?}", lines.with(""));
    worker.log().ensure_group().bounded().await.expect("Redis answers");
    drained(&mut worker).await;
    assert_eq!(consumers(&app).await, 0);
}

#[tokio::test]
async fn a_drain_without_postgres_leaves_the_entries_to_others() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    worker_with(&app, |_| {}).await;
    let another = app.another_instance().await;
    let mut worker = worker_of(another.clone(), (&app.config).into());
    append(&app, coupon, 1..=2).await;
    another.stores.pool.close().await;
    assert!(worker.write_pass().bounded().await.is_err());
    let lines = Lines::heard();
    drained(&mut worker).await;
    let told = lines.with("the order log can't be drained; the rest stays in it");
    // Known to be away, Postgres is asked for a sign of life, and Redis for nothing.
    assert!(told.len() == 1 && told[0].contains("error=Postgres doesn't answer"), "{told:?}");
    assert_eq!((pending(&app).await, consumers(&app).await, rows(&app).await), (2, 1, 0));
}

#[tokio::test]
async fn a_consumer_that_can_not_be_removed_is_told() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let mut worker = worker_with(&app, |_| {}).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").positions, 0);
    let key = app.log(lane());
    let _: i64 = app.redis(&["DEL", &key]).await;
    let _: String = app.redis(&["SET", &key, "no log"]).await;
    let lines = Lines::down_to(tracing::Level::DEBUG);
    drained(&mut worker).await;
    assert_eq!(lines.count("the consumer could not be removed"), 1);
}

#[tokio::test]
async fn a_drain_ends_with_the_first_pass_that_finds_nothing() {
    let server = RedisServer::start(&[]);
    let app = app_on(&server).await;
    let mut worker = worker_with(&app, |_| {}).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").positions, 0);
    let before = command_calls(&app, "xreadgroup").await;
    drained(&mut worker).await;
    // The own entries, and new ones.
    assert_eq!(command_calls(&app, "xreadgroup").await, before + 2);
    assert_eq!(reader(&app).lane(), lane());
}
