//! Each script that reads the lane's hash, with its reply while the lane is recovering: it refuses, whatever epoch it
//! is told, and leaves every key as it is, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use flash_sale::store::redis::{Link, Redis};
use flash_sale::store::script::VariadicScript;
use private_servers::testing::RedisServer;
use redis::Value;

use crate::faults::failover::ask;

const LANE: &str = "lane";
const SALE: &str = "sale";
const SHARD: &str = "shard";
const EPOCH: &str = "7";
/// The replication ID of another server.
const OTHER: &str = "0123456789012345678901234567890123456789";

/// The sale in Redis.
#[derive(Clone, Copy, PartialEq)]
enum Sale {
    Absent,
    Loading,
    Loaded,
}

/// One call of a script, and its reply while the lane is recovering.
struct Row {
    script: &'static str,
    sale: Sale,
    keys: &'static [&'static str],
    arguments: &'static [&'static str],
    refusal: &'static [&'static str],
}

/// Calls that sell, return, load or change, and would do so in an open lane.
const ROWS: [Row; 7] = [
    Row {
        script: "claim",
        sale: Sale::Loaded,
        keys: &[SALE, LANE, "log", "unpaid", SHARD],
        arguments: &["5", "0", EPOCH, "1", "1", "1", "2"],
        refusal: &["V", "", ""],
    },
    Row {
        script: "release_units",
        sale: Sale::Loaded,
        keys: &[SALE, LANE, SHARD],
        arguments: &["5", EPOCH, "1", "restocks", "1", "101"],
        refusal: &["RECOVERING"],
    },
    Row {
        script: "admit",
        sale: Sale::Loaded,
        keys: &[SALE, LANE, SHARD],
        arguments: &[EPOCH, "1", "2", "102"],
        refusal: &["RECOVERING"],
    },
    Row {
        script: "apply_coupon",
        sale: Sale::Loaded,
        keys: &[SALE, LANE],
        arguments: &["5", "load", EPOCH, "2", "0", "9999999999999", "20", "paused", "restocks"],
        refusal: &["RECOVERING"],
    },
    Row {
        script: "load_sale",
        sale: Sale::Absent,
        keys: &[SALE, LANE],
        arguments: &["load", "0", "9999999999999", "10", "1", EPOCH, "1", "active", ""],
        refusal: &["CLOSED", "", ""],
    },
    Row {
        script: "make_shards",
        sale: Sale::Loading,
        keys: &[SALE, LANE, "another shard"],
        arguments: &["load"],
        refusal: &["RECOVERING"],
    },
    Row {
        script: "open_sale",
        sale: Sale::Loading,
        keys: &[SALE, LANE],
        arguments: &["load", "1024"],
        refusal: &["RECOVERING"],
    },
];

/// Scripts that read or write the lane's hash, and have no row.
const OTHERS: [(&str, &str); 8] = [
    ("acknowledge", "the log is written while the lane is recovering, under its epoch"),
    ("begin_lane", "makes a lane where there is none"),
    ("ensure_group", "the log is read while the lane is recovering"),
    ("fence", "a step of a recovery"),
    ("open_lane", "a step of a recovery"),
    ("switch_sale", "a step of a recovery"),
    ("switch_unpaid", "a step of a recovery"),
    ("trim_log", "the log is trimmed at any time"),
];

fn scripts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("lua")
}

fn source(script: &str) -> String {
    fs::read_to_string(scripts().join(script).with_extension("lua"))
        .expect("there is such a script")
}

/// The scripts of the rows.
fn script(name: &str) -> VariadicScript {
    match name {
        "claim" => VariadicScript::new(include_str!("../../../lua/claim.lua")),
        "release_units" => VariadicScript::new(include_str!("../../../lua/release_units.lua")),
        "admit" => VariadicScript::new(include_str!("../../../lua/admit.lua")),
        "apply_coupon" => VariadicScript::new(include_str!("../../../lua/apply_coupon.lua")),
        "load_sale" => VariadicScript::new(include_str!("../../../lua/load_sale.lua")),
        "make_shards" => VariadicScript::new(include_str!("../../../lua/make_shards.lua")),
        "open_sale" => VariadicScript::new(include_str!("../../../lua/open_sale.lua")),
        name => panic!("{name} is in no row"),
    }
}

async fn link(server: &RedisServer) -> Arc<Link> {
    Redis::new(&server.url()).expect("a URL").link().await.expect("it runs")
}

/// Redis with a lane in this state, and a sale.
async fn prepare(server: &RedisServer, state: &str, sale: Sale) {
    let _: String = ask(server, &["FLUSHALL"]).await;
    let info: String = ask(server, &["INFO", "replication"]).await;
    let replid = info.lines().find_map(|line| line.strip_prefix("master_replid:"));
    let replid = replid.expect("it is told");
    let lane = ["epoch", EPOCH, "state", state, "replid", replid, "accepted", "0", "written", "0"];
    let _: i64 = ask(server, &[&["HSET", LANE][..], &lane].concat()).await;
    if sale == Sale::Absent {
        return;
    }
    let state = if sale == Sale::Loading { "loading" } else { "active" };
    let facts: [&[&str]; 3] = [
        &["opens_ms", "0", "closes_ms", "9999999999999", "stock", "9", "total", "10"],
        &["state", state, "opens_as", "active", "load", "load", "restocks", "0"],
        &["revision", "1", "epoch", EPOCH, "shards", "1"],
    ];
    let _: i64 = ask(server, &[&["HSET", SALE][..], &facts.concat()].concat()).await;
    let _: i64 = ask(server, &["HSET", SHARD, "-", "", "1", "101"]).await;
}

/// All keys, each with its bytes.
async fn dump(server: &RedisServer) -> BTreeMap<String, Vec<u8>> {
    let mut dumped = BTreeMap::new();
    for key in ask::<Vec<String>>(server, &["KEYS", "*"]).await {
        let bytes = ask(server, &["DUMP", &key]).await;
        dumped.insert(key, bytes);
    }
    dumped
}

async fn run(link: &Link, row: &Row) -> Vec<String> {
    let reply = script(row.script).run(link, row.keys, row.arguments).await;
    match reply.expect("it runs") {
        Value::Array(words) => words.into_iter().map(word).collect(),
        reply => vec![word(reply)],
    }
}

fn word(value: Value) -> String {
    redis::from_redis_value(value).expect("a text or a number")
}

#[tokio::test]
async fn each_script_refuses_while_its_lane_is_recovering_and_changes_no_key() {
    let server = RedisServer::start(&[]);
    let link = link(&server).await;
    let mut wrong = Vec::new();
    for row in &ROWS {
        prepare(&server, "open", row.sale).await;
        let before = dump(&server).await;
        let told = run(&link, row).await;
        let changes = dump(&server).await != before;
        assert!(changes && told != row.refusal, "{} does nothing: {told:?}", row.script);

        prepare(&server, "recovering", row.sale).await;
        let before = dump(&server).await;
        let told = run(&link, row).await;
        if dump(&server).await != before || told != row.refusal {
            wrong.push(format!("{}, recovering: {told:?}", row.script));
        }

        // So does one of another server, or of this one before it was started anew.
        prepare(&server, "open", row.sale).await;
        let _: i64 = ask(&server, &["HSET", LANE, "replid", OTHER]).await;
        let before = dump(&server).await;
        let told = run(&link, row).await;
        if dump(&server).await != before || told != row.refusal {
            wrong.push(format!("{}, of another server: {told:?}", row.script));
        }

        // And a lane that Redis has lost.
        let _: i64 = ask(&server, &["DEL", LANE]).await;
        let before = dump(&server).await;
        let told = run(&link, row).await;
        if dump(&server).await != before || told != row.refusal {
            wrong.push(format!("{}, lost: {told:?}", row.script));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn each_script_that_names_the_lane_is_in_a_table() {
    let names_lane = |source: &str| {
        let is_lane = |line: &str| line.starts_with("-- KEYS[") && line.contains("]  lane ");
        source.lines().any(is_lane)
    };
    let files = fs::read_dir(scripts()).expect("the scripts are there");
    let files = files.map(|file| file.expect("it can be read").path());
    let named: BTreeSet<String> = files
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|script| names_lane(&source(script)))
        .collect();
    let rows = ROWS.iter().map(|row| row.script);
    let known = rows.chain(OTHERS.iter().map(|(script, _)| *script));
    assert_eq!(named, known.map(str::to_owned).collect());
}
