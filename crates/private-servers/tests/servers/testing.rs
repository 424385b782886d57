//! The tools for tests that break servers.

use private_servers::testing::{
    RedisProxy, RedisServer, Switch, bound_this_test, bounded, eventually,
};
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use crate::support::command;

async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("a valid URL");
    // Without a time limit: each wait of these tests has its bound.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.expect("Redis answers")
}

fn increment() -> redis::Cmd {
    let mut command = redis::cmd("INCR");
    command.arg("count");
    command
}

/// The result of the only task.
async fn ended(tasks: &mut JoinSet<RedisResult<i64>>) -> RedisResult<i64> {
    let ended = bounded("the answer, or its loss", tasks.join_next()).await;
    ended.expect("there is a task").expect("no panic")
}

#[tokio::test]
async fn a_paused_server_executes_nothing_and_a_killed_one_comes_back_with_its_data() {
    bound_this_test();
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    for is_resumed in [true, false] {
        let mut connection = connect(&server.url()).await;
        server.pause();
        let mut waiting: JoinSet<RedisResult<i64>> = JoinSet::new();
        waiting.spawn(async move { increment().query_async(&mut connection).await });
        if is_resumed {
            server.resume();
        }
        let mut answered = async || ended(&mut waiting).await;
        if is_resumed {
            assert_eq!(answered().await, Ok(1));
            server.kill();
        } else {
            server.kill();
            assert!(answered().await.is_err());
        }
        server.start_again();
        let count: i64 = command(&server.url(), redis::cmd("GET").arg("count")).await;
        assert_eq!(count, 1);
    }
}

#[tokio::test]
async fn the_clock_of_a_server_can_be_set() {
    bound_this_test();
    let server = RedisServer::with_a_clock_to_set(&[]);
    let time = async || {
        let (seconds, _): (i64, i64) = command(&server.url(), &redis::cmd("TIME")).await;
        seconds
    };
    let before = time().await;
    server.set_clock(-3_600);
    assert!(before - time().await > 3_000);
}

#[tokio::test]
async fn a_proxy_loses_a_reply_to_a_command_that_was_executed() {
    bound_this_test();
    let server = RedisServer::start(&[]);
    let proxy = RedisProxy::before(&server.url(), "INCR").await;
    assert_eq!(command::<i64>(proxy.url(), &increment()).await, 1);
    proxy.lose_next_reply();
    let mut connection = connect(proxy.url()).await;
    let lost = bounded("an error", increment().query_async::<i64>(&mut connection)).await;
    assert!(lost.is_err());
    assert_eq!(proxy.replies_to_lose(), 0);
    let count: i64 = command(&server.url(), redis::cmd("GET").arg("count")).await;
    assert_eq!(count, 2);
}

#[tokio::test]
async fn a_proxy_holds_a_command_back_that_is_never_executed() {
    bound_this_test();
    let server = RedisServer::start(&[]);
    let proxy = RedisProxy::before(&server.url(), "INCR").await;
    proxy.hold();
    let mut connection = connect(proxy.url()).await;
    let mut waiting: JoinSet<RedisResult<i64>> = JoinSet::new();
    waiting.spawn(async move { increment().query_async(&mut connection).await });
    eventually("the command is held back", async || proxy.held() == 1).await;
    let count: Option<i64> = command(&server.url(), redis::cmd("GET").arg("count")).await;
    assert_eq!(count, None);
    drop(proxy);
    assert!(ended(&mut waiting).await.is_err());
}

#[tokio::test]
async fn a_proxy_cuts_and_heals() {
    bound_this_test();
    let server = RedisServer::start(&[]);
    let proxy = RedisProxy::before(&server.url(), "INCR").await;
    let mut carrier = connect(proxy.url()).await;
    let mut other = connect(proxy.url()).await;
    increment().query_async::<i64>(&mut carrier).await.expect("an answer");
    proxy.cut().await;
    assert!(bounded("an error", increment().query_async::<i64>(&mut carrier)).await.is_err());
    redis::cmd("PING").query_async::<()>(&mut other).await.expect("not a carrier");
    proxy.heal();
    assert_eq!(command::<i64>(proxy.url(), &increment()).await, 2);
}

#[tokio::test]
async fn a_switch_leads_new_connections_to_another_server() {
    bound_this_test();
    let old = RedisServer::start(&[]);
    let new = RedisServer::start(&[]);
    let switch = Switch::to(&old.url()).await;
    let mut stays = connect(switch.url()).await;
    switch.lead_to(&new.url());
    increment().query_async::<i64>(&mut stays).await.expect("an answer");
    let seen: Option<i64> = command(switch.url(), redis::cmd("GET").arg("count")).await;
    assert_eq!(seen, None);
    let kept: i64 = command(&old.url(), redis::cmd("GET").arg("count")).await;
    assert_eq!(kept, 1);
}
