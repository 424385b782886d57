//! What a recovery reports: the processes that it waited for in vain, and its metrics.

use serde_json::json;

use crate::faults::recovery::{keep, sell, start};
use crate::support::TestApp;
use crate::support::process::{Process, flash_sale};

/// The words of the command line about the stores of this app.
async fn command(app: &TestApp, words: &[&str]) -> String {
    let mut command = flash_sale(words);
    command.args(&app.store_arguments()[..4]).args(["--key-prefix", &app.store_arguments()[5]]);
    let said = tokio::task::spawn_blocking(move || command.output()).await.expect("it runs");
    let said = said.expect("it runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).expect("text")
}

/// It is registered, and seems to live.
async fn silent_process(app: &TestApp) {
    app.execute(
        "INSERT INTO processes (process, beat_at) VALUES ('silent-1', now() + interval '1 hour')",
    )
    .await;
}

#[tokio::test]
async fn a_process_that_handed_nothing_in_is_named() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    sell(&app, coupon, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    silent_process(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    keep(&app).await;
    let list = app.get("/v1/recoveries", &app.admin_token()).await;
    let recovery = &list.body["recoveries"][0];
    assert_eq!(recovery["absent"], 1, "{recovery}");
    assert_eq!(recovery["absent_processes"], json!(["silent-1"]), "{recovery}");
    let said = command(&app, &["recoveries"]).await;
    assert!(said.contains("handed no receipts in: silent-1"), "{said}");
}

#[tokio::test]
async fn the_log_line_of_the_opening_names_it() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(10).await;
    let service = Process::serve(&app, &[]);
    sell(&app, coupon, 1..=3).await;
    silent_process(&app).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    let line = service.logged("the lane is open again").await;
    assert!(line.contains("silent-1"), "{line}");
}
