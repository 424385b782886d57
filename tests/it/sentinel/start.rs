//! The start of a process behind sentinels.

use private_servers::testing::RedisServer;

use super::watched::{MASTER, sentinel};
use crate::support::process::{Finished, flash_sale, run};
use crate::support::servers::connection;
use crate::support::{SECRET, TestApp};

const PASSWORD: &str = "hunter2";

/// Arguments of a command on the app's database, with Redis behind these sentinels.
fn arguments(app: &TestApp, master: &str, sentinels: &str) -> Vec<String> {
    let mut arguments = app.store_arguments();
    let at = arguments.iter().position(|word| word == "--redis-url").expect("it is given") + 1;
    arguments[at] = format!("redis://:{PASSWORD}@{master}/2");
    arguments.extend(["--redis-sentinels", sentinels].map(str::to_owned));
    arguments
}

async fn said(words: &[&str], arguments: &[String]) -> Finished {
    let mut command = flash_sale(words);
    command.args(arguments);
    let said = run(command).await;
    for text in [&said.stdout, &said.stderr] {
        assert!(!text.contains(PASSWORD) && !text.contains(SECRET), "{text}");
    }
    said
}

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

#[tokio::test]
async fn sentinels_that_are_all_away_are_named_with_the_reason_of_each() {
    let app = TestApp::start().await;
    let nowhere = arguments(&app, MASTER, "127.0.0.1:1,127.0.0.1:2");
    let refused = said(&SERVE, &nowhere).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let why = refused.last_words();
    for words in
        ["--redis-sentinels", "no sentinel names the master", "127.0.0.1:1: ", "127.0.0.1:2: "]
    {
        assert!(why.contains(words), "{words}: {why}");
    }
    let found = said(&["doctor"], &nowhere).await;
    assert_eq!(found.code, Some(5), "{found:?}");
    assert!(found.stdout.contains("correct --redis-sentinels"), "{found:?}");
}

#[tokio::test]
async fn sentinels_may_want_a_password_of_their_own() {
    let app = TestApp::start().await;
    let (_server, port) = RedisServer::on_tcp(&[]);
    let (_sentinel, sentinel) = sentinel(port, 1, &["requirepass guard"]);
    let at = format!("127.0.0.1:{sentinel}");
    let mut arguments = arguments(&app, MASTER, &at);
    let url = arguments.iter_mut().find(|word| word.starts_with("redis://")).expect("a URL");
    *url = format!("redis://{MASTER}/2");
    let refused = said(&["doctor"], &arguments).await;
    assert!(refused.stdout.contains("sentinel_password="), "{refused:?}");
    let url = arguments.iter_mut().find(|word| word.starts_with("redis://")).expect("a URL");
    url.push_str("?sentinel_password=gu%61rd");
    let found = said(&["doctor"], &arguments).await;
    assert!(found.stdout.contains(&format!("ok    Redis at the master {MASTER}")), "{found:?}");
}

#[tokio::test]
async fn a_master_that_would_go_on_alone_is_refused() {
    let app = TestApp::start().await;
    let (server, port) = RedisServer::on_tcp(&[]);
    set(&server.url(), "requirepass", PASSWORD).await;
    let password = format!("sentinel auth-pass {MASTER} {PASSWORD}");
    let (_sentinel, sentinel) = sentinel(port, 1, &[&password]);
    let at = format!("127.0.0.1:1,127.0.0.1:{sentinel}");

    let unknown = said(&SERVE, &arguments(&app, "another", &at)).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.last_words().contains("there is no master of that name"), "{unknown:?}");

    let known = arguments(&app, MASTER, &at);
    let refused = said(&SERVE, &known).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let remedy = "Set min-replicas-to-write 1 and min-replicas-max-lag 2";
    assert!(refused.last_words().contains("Redis min-replicas-to-write is 0"), "{refused:?}");
    assert!(refused.last_words().contains(remedy), "{refused:?}");

    let found = said(&["doctor"], &known).await;
    assert_eq!(found.code, Some(5), "{found:?}");
    let place =
        format!("the master {MASTER} of the sentinels {}, database 2", at.replace(',', ", "));
    assert!(found.stdout.contains(&format!("ok    Redis at {place}: Redis")), "{found:?}");
    assert!(found.stdout.contains("\nFAIL  Redis min-replicas-to-write is 0"), "{found:?}");

    let client = format!(
        "redis+unix://{}?pass={PASSWORD}",
        server.url().trim_start_matches("redis+unix://")
    );
    set(&client, "min-replicas-to-write", "1").await;
    let found = said(&["doctor"], &known).await;
    assert!(found.stdout.contains("\nok    Redis min-replicas-to-write is set"), "{found:?}");
    // A lag of 0 switches the setting off.
    set(&client, "min-replicas-max-lag", "0").await;
    let refused = said(&SERVE, &known).await;
    assert!(refused.last_words().contains("Redis min-replicas-to-write is 0"), "{refused:?}");
}

async fn set(url: &str, name: &str, value: &str) {
    let mut connection = connection(url).await;
    let mut command = redis::cmd("CONFIG");
    command.arg("SET").arg(name).arg(value);
    command.query_async::<()>(&mut connection).await.expect("it does that");
}
