//! The connection to Redis: the meaning of its errors, facts about the server, and what is told of a new one.

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::kit::redis::{Redis, is_data_error, trouble};
use flash_sale::kit::redis_facts::Replay;
use private_servers::testing::RedisServer;
use redis::{Pipeline, RedisResult, Value};

use crate::support::lines::Lines;
use crate::support::{TestApp, eventually};

fn pipeline(commands: &[&[&str]]) -> Pipeline {
    let mut pipeline = redis::pipe();
    for words in commands {
        pipeline.cmd(words[0]).arg(&words[1..]);
    }
    pipeline
}

#[tokio::test]
async fn an_error_of_several_commands_is_of_the_data_only_if_each_of_them_is() {
    let app = TestApp::start().await;
    let key = app.keys().additions_channel();
    let key = key.as_str();
    let _: String = app.redis(&["SET", key, "text"]).await;
    let (wrong_type, no_number, unknown) =
        (&["LPUSH", key, "1"][..], &["INCR", key][..], &["NONSENSE", key][..]);
    let no_script = &["EVAL", "return nil + 1", "0"][..];
    for (commands, is_of_data) in [
        (&[wrong_type][..], true),
        (&[no_number], true),
        (&[no_script], true),
        (&[unknown], false),
        (&[wrong_type, no_number, no_script], true),
        (&[wrong_type, unknown], false),
        (&[unknown, wrong_type], false),
        (&[&["GET", key], wrong_type], true),
    ] {
        let redis = &app.app.stores.redis;
        let error = redis.query_all::<Value>(&pipeline(commands)).await.expect_err("it is refused");
        assert_eq!(is_data_error(&error), is_of_data, "{error}");
        assert_eq!(trouble(&error), "can't be reached");
    }
}

#[tokio::test]
async fn each_of_several_commands_has_its_own_answer() {
    let app = TestApp::start().await;
    let key = app.keys().additions_channel();
    let key = key.as_str();
    let commands: [&[&str]; 4] =
        [&["SET", key, "7"], &["GET", key], &["LPUSH", key, "1"], &["INCR", key]];
    let redis = &app.app.stores.redis;
    let answers: Vec<RedisResult<String>> =
        redis.query_each(&mut pipeline(&commands)).await.expect("Redis answers");
    let answers: Vec<Option<&str>> =
        answers.iter().map(|answer| answer.as_ref().ok().map(String::as_str)).collect();
    assert_eq!(answers, [Some("OK"), Some("7"), None, Some("8")]);
    let answers: Vec<i64> =
        redis.query_all(&pipeline(&[&["GET", key], &["INCR", key]])).await.expect("Redis answers");
    assert_eq!(answers, [8, 9]);
}

#[tokio::test]
async fn the_clock_of_redis_and_the_begin_of_its_life_are_told_as_redis_has_them() {
    let app = TestApp::start().await;
    let redis = &app.app.stores.redis;
    let time = async || -> DateTime<Utc> {
        let (seconds, micros): (i64, i64) = app.redis(&["TIME"]).await;
        DateTime::from_timestamp_micros(seconds * 1_000_000 + micros).expect("a time")
    };
    let before = time().await;
    let told = redis.time().await.expect("Redis answers");
    assert!((before..=time().await).contains(&told), "{told}");

    let info: String = app.redis(&["INFO", "server"]).await;
    let field = |name: &str| {
        let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap_or_else(|| panic!("no {name}")).trim().to_owned()
    };
    let uptime: i64 = field("uptime_in_seconds").parse().expect("a number");
    let link = redis.link().await.expect("Redis answers");
    let began = link.server_started_at();
    // Both are told to the second.
    let apart = time().await - TimeDelta::seconds(uptime) - began;
    assert!(apart.abs() <= TimeDelta::seconds(60) && began <= time().await, "{apart}");
    assert_eq!(link.server().as_str(), field("run_id"));
    let facts = link.facts().await.expect("Redis answers");
    assert_eq!((facts.replay, facts.is_replica), (Replay::Whole, false));
    assert!(facts.settings.is_some());
    redis.check().await.expect("it is a master");
}

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
