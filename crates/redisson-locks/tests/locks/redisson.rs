//! The re-entrant lock and Java's Redisson on the same Redis: each sees, waits for and counts the other's locks.
//!
//! Where Java and Maven are installed, a real Redisson is asked. Everywhere, the calls that a Redisson had sent when
//! `tests/locks/java/trace.jsonl` was recorded are replayed against the scripts here.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use private_servers::testing::{Bounded, RedisServer, eventually};
use redis::Value;
use redis::aio::MultiplexedConnection;
use redisson_locks::{ReentrantLocks, Released};
use serde_json::{Value as Json, json};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::support::java::Peer;
use crate::support::{ask, connection, listeners, reentrant};

const LEASE: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(30);
const ROUNDS: usize = 15;

struct Rig {
    server: RedisServer,
    redis: MultiplexedConnection,
    port: u16,
    locks: ReentrantLocks,
    java: Peer,
}

impl Rig {
    /// `None` where there is no Java.
    async fn start() -> Option<Self> {
        Self::with_lease(LEASE).await
    }

    async fn with_lease(lease: Duration) -> Option<Self> {
        let (server, port) = RedisServer::on_tcp(&[]);
        let java = Peer::start(port, lease)?;
        let redis = connection(&server.url()).await;
        let locks = reentrant(&server.url(), LEASE).await;
        Some(Self { server, redis, port, locks, java })
    }

    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&self.redis, words).await
    }

    async fn is_waited_for(&self, name: &str) {
        eventually("a waiter listens", async || listeners(&self.redis, name).await == 1).await;
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Java is waited for with a blocked thread, beside which locks are renewed.
#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_wait_for_each_other_and_are_woken_up() {
    let Some(mut rig) = Rig::start().await else { return };
    let mut rust_woke = Vec::new();
    let mut java_woke = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("lock-{round}");
        let lock = rig.locks.lock(name.as_str());
        let holder = rig.locks.holder();
        assert_eq!(rig.java.does(&format!("a try {name}")), "true");
        assert!(lock.try_acquire(&holder).bounded().await.unwrap().is_none(), "Java has it");
        let waiting = {
            let lock = lock.clone();
            let holder = holder.clone();
            let wait = async move { (lock.acquire(&holder, LONG).bounded().await, Instant::now()) };
            TaskTracker::new().spawn(wait)
        };
        rig.is_waited_for(&name).await;
        let began = Instant::now();
        rig.java.tell(&format!("a unlock {name}"));
        let (guard, woke) = waiting.await.unwrap();
        rust_woke.push(woke - began);
        assert_eq!(rig.java.answer(), "a unlocked");
        let guard = guard.unwrap().expect("it was released");

        assert_eq!(rig.java.does(&format!("a try {name}")), "false");
        rig.java.tell(&format!("b wait {name} 30000"));
        rig.is_waited_for(&name).await;
        let began = Instant::now();
        assert_eq!(guard.release().bounded().await.unwrap(), Released::Freed);
        assert_eq!(rig.java.answer(), "b true");
        java_woke.push(began.elapsed());
        assert_eq!(rig.java.does(&format!("b unlock {name}")), "unlocked");
    }
    println!("woken up: Rust after {rust_woke:.1?}, Java after {java_woke:.1?}");
    // Woken up, not waited out.
    assert!(median(rust_woke) < LEASE);
    assert!(median(java_woke) < LEASE);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_count_entries_force_locks_open_and_draw_rising_tokens() {
    let Some(mut rig) = Rig::start().await else { return };
    let lock = rig.locks.lock("a");
    let holder = rig.locks.holder();
    let other = rig.locks.holder();
    for count in 1..=3_i64 {
        assert_eq!(rig.java.does("a try a"), "true");
        assert_eq!(rig.ask::<Vec<i64>>(&["HVALS", "a"]).await, [count]);
    }
    for left in [2_i64, 1] {
        assert_eq!(rig.java.does("a unlock a"), "unlocked");
        assert_eq!(rig.ask::<Vec<i64>>(&["HVALS", "a"]).await, [left]);
        assert!(lock.try_acquire(&holder).bounded().await.unwrap().is_none());
    }
    assert_eq!(rig.java.does("a unlock a"), "unlocked");
    let outer = lock.try_acquire(&holder).bounded().await.unwrap().expect("it is free");
    let inner = lock.try_acquire(&holder).bounded().await.unwrap().expect("it is ours");
    assert_eq!(rig.java.does("a locked a"), "true");
    assert_eq!(rig.java.does("a unlock a"), "not-the-holder");
    assert_eq!(inner.release().bounded().await.unwrap(), Released::StillHeld);
    assert_eq!(rig.java.does("a try a"), "false");

    assert_eq!(rig.java.does("a force a"), "true");
    timeout(LONG, outer.lost().cancelled()).bounded().await.expect("told at the next renewal");
    assert_eq!(outer.release().bounded().await.unwrap(), Released::NotHeld);
    assert_eq!(rig.java.does("a try a"), "true");
    assert!(lock.force_release().bounded().await.unwrap());
    assert!(lock.try_acquire(&other).bounded().await.unwrap().is_some());

    let fenced = rig.locks.fenced_lock("b");
    for token in [1_u64, 3, 5] {
        assert_eq!(rig.java.does("a fenced b"), token.to_string());
        assert_eq!(rig.java.does("a unfenced b"), "unlocked");
        let guard = fenced.try_acquire(&holder).bounded().await.unwrap().expect("it is free");
        assert_eq!(guard.fencing_token(), Some(token + 1));
        assert_eq!(rig.java.does("a fenced b"), "null");
        guard.release().bounded().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_ours_keeps_java_out_and_wakes_it_up() {
    let Some(mut rig) = Rig::start().await else { return };
    assert_eq!(rig.java.does("a try {1}:a"), "true");
    let names = vec!["{1}:a".to_owned(), "{1}:b".to_owned()];
    let batch = rig.locks.try_acquire_batch(names).bounded().await.unwrap();
    assert_eq!((batch.holds("{1}:a"), batch.holds("{1}:b")), (false, true));
    rig.java.tell("b wait {1}:b 30000");
    rig.is_waited_for("{1}:b").await;
    let began = Instant::now();
    batch.release().bounded().await;
    assert_eq!(rig.java.answer(), "b true");
    assert!(began.elapsed() < LEASE, "woken up, not waited out: {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_client_that_was_killed_runs_out() {
    let Some(mut rig) = Rig::start().await else { return };
    let lock = rig.locks.lock("a");
    let holder = rig.locks.holder();
    assert_eq!(rig.java.does("a try a"), "true");
    // Its watchdog works: the lock outlives its lease.
    assert!(lock.acquire(&holder, 2 * LEASE).bounded().await.unwrap().is_none());
    rig.java.kill();
    let began = Instant::now();
    let guard = lock.acquire(&holder, LONG).bounded().await.unwrap().expect("no process renews it");
    println!("{LEASE:?} of lease ran out within {:.1?}", began.elapsed());
    guard.release().bounded().await.unwrap();

    let mut java = Peer::start(rig.port, LEASE).expect("it has been there before");
    let mut rust = crate::paused::Holder::on(&rig.server.url(), "b");
    rust.says("child: token ");
    assert_eq!(java.does(&format!("a wait b {}", 2 * LEASE.as_millis())), "false");
    rust.kill();
    assert_eq!(java.does("a wait b 30000"), "true");
}

// ---- the calls of Redisson ----

/// The scripts here, by the purpose of Redisson's.
const SCRIPTS: [(&str, &str); 5] = [
    ("acquire", include_str!("../../lua/reentrant/acquire.lua")),
    ("acquire_fenced", include_str!("../../lua/reentrant/acquire_fenced.lua")),
    ("unlock", include_str!("../../lua/reentrant/unlock.lua")),
    ("renew", include_str!("../../lua/reentrant/renew.lua")),
    ("force_unlock", include_str!("../../lua/reentrant/force_unlock.lua")),
];

/// Long enough that nothing is renewed before the last lock is taken.
const LONG_LEASE: Duration = Duration::from_secs(9);

const TRACE: &str = include_str!("java/trace.jsonl");

/// Each call of a script that a real Redisson sent has the same reply and leaves the same state behind with the scripts here.
#[tokio::test]
async fn calls_of_redisson_are_answered_the_same() {
    let server = RedisServer::start(&[]);
    let redis = connection(&server.url()).await;
    let mut seen = Vec::new();
    for line in TRACE.lines() {
        let call: Json = serde_json::from_str(line).expect("a line of JSON");
        let script = call["script"].as_str().expect("the name of a script");
        let text = script_of_ours(script);
        let outcome = run(&redis, text, &words(&call["keys"]), &words(&call["argv"])).await;
        assert_eq!(outcome, (call["reply"].clone(), call["state"].clone()), "{line}");
        seen.push(script.to_owned());
    }
    for (name, _) in SCRIPTS {
        assert!(seen.iter().any(|seen| seen == name), "{name} is not in the trace");
    }
}

/// Listens to a real Redisson, compares its scripts with those here call by call, and compares its calls with the trace
/// that was recorded. To record the trace anew: run this, and take the text that it prints when it fails.
#[tokio::test]
async fn redisson_still_sends_what_was_recorded() {
    let Some(mut rig) = Rig::with_lease(LONG_LEASE).await else { return };
    let servers = [RedisServer::start(&[]), RedisServer::start(&[])];
    let theirs = connection(&servers[0].url()).await;
    let ours = connection(&servers[1].url()).await;
    let mut monitor = Monitor::start(rig.port);
    for order in [
        "a try m",
        "a try m",
        "b try m",
        "a unlock m",
        "b unlock m",
        "a unlock m",
        "a lease m 60000",
        "b force m",
        "b force m",
        "a fenced {m}f",
        "a fenced {m}f",
        "b fenced {m}f",
        "a unfenced {m}f",
        "a unfenced {m}f",
    ] {
        rig.java.does(order);
    }
    // Held until it has been renewed once.
    rig.java.does("a try m");
    let mut trace = String::new();
    loop {
        let (text, keys, argv) = monitor.next_script();
        let script = name_of(&text, &argv);
        let outcome = run(&theirs, &text, &keys, &argv).await;
        assert_eq!(run(&ours, script_of_ours(script), &keys, &argv).await, outcome, "{script}");
        let (reply, state) = outcome;
        let call =
            json!({"script": script, "keys": keys, "argv": argv, "reply": reply, "state": state});
        writeln!(trace, "{call}").expect("a String takes everything");
        if script == "renew" {
            break;
        }
    }
    assert_eq!(shape(&trace), shape(TRACE), "Redisson sent this:\n{trace}");
}

/// Runs a script, and looks at everything that is there then: types, values, and whether it expires.
async fn run(
    redis: &MultiplexedConnection,
    text: &str,
    keys: &[String],
    argv: &[String],
) -> (Json, Json) {
    let mut eval = redis::cmd("EVAL");
    eval.arg(text).arg(keys.len()).arg(keys).arg(argv);
    let reply: Value = eval.query_async(&mut redis.clone()).await.expect("it runs");
    let mut names: Vec<String> = ask(redis, &["KEYS", "*"]).await;
    names.sort_unstable();
    let mut state = serde_json::Map::new();
    for name in names {
        let expires = ask::<i64>(redis, &["PTTL", &name]).await > 0;
        let kind: String = ask(redis, &["TYPE", &name]).await;
        let value = if kind == "hash" {
            json!(ask::<BTreeMap<String, String>>(redis, &["HGETALL", &name]).await)
        } else {
            json!(ask::<String>(redis, &["GET", &name]).await)
        };
        state.insert(name, json!({"type": kind, "value": value, "expires": expires}));
    }
    (to_json(&reply), Json::Object(state))
}

/// Times left are told as "ms".
fn to_json(reply: &Value) -> Json {
    match reply {
        Value::Nil => Json::Null,
        Value::Int(number) if *number > 1_000 => json!("ms"),
        Value::Int(number) => json!(number),
        Value::Array(items) => items.iter().map(to_json).collect(),
        other => panic!("no script replies {other:?}"),
    }
}

fn words(json: &Json) -> Vec<String> {
    let words = json.as_array().expect("a list").iter();
    words.map(|word| word.as_str().expect("a text").to_owned()).collect()
}

fn name_of(text: &str, argv: &[String]) -> &'static str {
    match () {
        () if text.contains("table.insert") => "renew",
        () if argv.len() == 5 => "unlock",
        () if text.contains("'incr'") => "acquire_fenced",
        () if text.contains("hincrby") => "acquire",
        () => "force_unlock",
    }
}

fn script_of_ours(name: &str) -> &'static str {
    let script = SCRIPTS.iter().find(|(known, _)| *known == name);
    script.map(|(_, text)| *text).expect("one of ours")
}

/// A trace without what is different each time: the ids of client, threads and latches, and how long a latch is kept.
fn shape(trace: &str) -> Vec<String> {
    let in_id = |c: char| c.is_ascii_hexdigit() || c == '-';
    let is_id = |word: &str| word.len() >= 32 || word.len() > 1 && word.parse::<u64>().is_ok();
    let shorten = |text: &str| {
        let mut short = String::new();
        for part in text.split_inclusive(|c| !in_id(c)) {
            let word = part.trim_end_matches(|c| !in_id(c));
            short.push_str(if is_id(word) { "ID" } else { word });
            short.push_str(&part[word.len()..]);
        }
        short
    };
    let call = |line: &str| {
        let mut call: Json = serde_json::from_str(line).expect("a line of JSON");
        // It names the latches in the order of their ids; the replay looks at it.
        call["state"].take();
        shorten(&call.to_string())
    };
    trace.lines().map(call).collect()
}

/// A connection that is told every command that the server runs.
struct Monitor {
    lines: std::io::BufReader<std::net::TcpStream>,
    /// Texts of scripts by their hashes.
    texts: HashMap<String, String>,
}

impl Monitor {
    fn start(port: u16) -> Self {
        use std::io::{BufRead, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("not zero");
        stream.write_all(b"MONITOR\r\n").expect("it reads");
        let mut lines = std::io::BufReader::new(stream);
        let mut ok = String::new();
        lines.read_line(&mut ok).expect("it answers");
        assert_eq!(ok.trim(), "+OK");
        Self { lines, texts: HashMap::new() }
    }

    /// Text, keys and arguments of the next script that is run. (One that Redis doesn't know yet isn't: it is loaded, and
    /// asked for again.)
    fn next_script(&mut self) -> (String, Vec<String>, Vec<String>) {
        use std::io::BufRead;
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("a renewal comes in time");
            let Some((_, command)) = line.split_once("] ") else { continue };
            let words: Vec<String> =
                command.trim().trim_matches('"').split("\" \"").map(str::to_owned).collect();
            match words[0].as_str() {
                "SCRIPT" => {
                    let hash = redis::Script::new(&words[2]).get_hash().to_owned();
                    self.texts.insert(hash, words[2].clone());
                }
                "EVALSHA" => {
                    let Some(text) = self.texts.get(&words[1]) else { continue };
                    let keys: usize = words[2].parse().expect("the number of keys");
                    let (keys, argv) = words[3..].split_at(keys);
                    return (text.clone(), keys.to_vec(), argv.to_vec());
                }
                _ => {}
            }
        }
    }
}
