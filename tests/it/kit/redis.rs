//! The connection to Redis: facts about the server, and what is told of a new one.

use flash_sale::store::redis::{Redis, trouble};
use private_servers::testing::RedisServer;

use crate::support::eventually;
use crate::support::lines::Lines;

#[tokio::test]
async fn a_server_that_forbids_config_has_facts_without_settings() {
    let server = RedisServer::start(&[]);
    let redis = Redis::new(&server.url()).expect("a valid URL");
    let mut rule = redis::cmd("ACL");
    rule.arg("SETUSER").arg("limited").arg(&["on", ">secret", "~*", "+@all", "-config"]);
    redis.query::<String>(&rule).await.expect("Redis answers");
    let url = format!("{}?user=limited&pass=secret", server.url());
    let limited = Redis::new(&url).expect("a valid URL");
    let facts = limited.facts().await.expect("Redis answers");
    assert!(facts.settings.is_none() && !facts.program.is_empty());
    drop(server);
    assert!(limited.facts().await.is_err());
}

#[tokio::test]
async fn a_new_life_of_the_server_is_told_once_by_the_connection_of_the_process() {
    const NEW: &str = "Redis has been started anew, or another server answers";
    let mut server = RedisServer::start(&[]);
    let redis = Redis::new(&server.url()).expect("a valid URL");
    let another = redis.another();
    let lines = Lines::heard();
    let ping = redis::cmd("PING");
    for life in 0..3 {
        for redis in [&redis, &another] {
            let answers = async || redis.query::<String>(&ping).await.is_ok();
            eventually("Redis answers", answers).await;
        }
        assert_eq!(lines.count(NEW), life);
        server.kill();
        server.start_again();
    }
    // A connection that breaks within one life is no news.
    let answers = async || redis.query::<String>(&ping).await.is_ok();
    eventually("Redis answers", answers).await;
    let id: i64 = redis.query(redis::cmd("CLIENT").arg("ID")).await.expect("Redis answers");
    let own = Redis::new(&server.url()).expect("a valid URL");
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(id);
    assert_eq!(own.query::<i64>(&kill).await.expect("Redis answers"), 1);
    let other = async || {
        redis.query::<i64>(redis::cmd("CLIENT").arg("ID")).await.is_ok_and(|now| now != id)
    };
    eventually("there is a new connection", other).await;
    assert_eq!(lines.count(NEW), 3);
    assert_eq!(lines.count("min-replicas-to-write"), 0, "no sentinel watches it");
}

/// A server that has become a replica is left with its first refusal.
#[tokio::test]
async fn a_replica_takes_no_commands() {
    let server = RedisServer::start(&[]);
    let redis = Redis::new(&server.url()).expect("a valid URL");
    let link = redis.link().await.expect("Redis answers");
    let mut follow = redis::cmd("REPLICAOF");
    // Its master doesn't answer.
    follow.arg("127.0.0.1").arg("1");
    redis.query::<String>(&follow).await.expect("Redis answers");
    for words in [&["SET", "a", "b"][..], &["PING"]] {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let refused = redis.query::<String>(&command).await.expect_err("it is a replica");
        assert_eq!(trouble(&refused), "is a replica, which takes no writes", "{words:?}");
    }
    let pinged = link.query::<String>(&redis::cmd("PING")).await;
    assert!(pinged.expect_err("the connection has ended").is_io_error());
    let facts = redis.facts().await.expect("it answers");
    assert!(facts.is_replica);
    let mut lead = redis::cmd("REPLICAOF");
    lead.arg("NO").arg("ONE");
    let mut other = crate::support::servers::connection(&server.url()).await;
    lead.query_async::<String>(&mut other).await.expect("it answers");
    let answers = async || redis.query::<String>(&redis::cmd("PING")).await.is_ok();
    eventually("it is a master again", answers).await;
}
