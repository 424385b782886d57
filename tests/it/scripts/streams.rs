//! Contents of a stream, in words.
//!
//! | word | meaning |
//! |---|---|
//! | `1-0:first,3` | an entry |
//! | `1-0:a,b!` | an entry that fills a node of the stream: it can be trimmed alone |
//! | `1000*` | as many entries |
//! | `-1-0` | the entry is deleted |
//! | `g@2-0` | a group that has been delivered the entries up to this one, it is not known how many |
//! | `g@2-0/3` | the same, and it is said to have read three |
//! | `g>c:2` | the next two entries of the group are delivered to a consumer; with 0 the consumer is only there |
//! | `g^1-0` | the group acknowledges the entry |
//!
//! They are told so: `log=[first,3 a,b]` for the entries, `log.g=2-0/3` for a group, and `log.g.c=[1-0 2-0]` for the
//! pending entries of a consumer.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use redis::{FromRedisValue, Value};

use super::stage::Stage;

/// The field that makes an entry large.
const FILL: &str = "fill";
/// Larger than a node of a stream, whose default is 4,096 bytes.
const FILL_BYTES: usize = 5_000;
/// A stream with more entries is told by their number.
const SHOWN_MAX: usize = 20;

/// Does what the words say.
pub async fn fill(stage: &Stage, key: &str, words: &str) {
    for word in words.split_whitespace() {
        if let Some(id) = word.strip_prefix('-') {
            stage.redis::<i64>(&["XDEL", key, id]).await;
        } else if let Some(count) = word.strip_suffix('*') {
            let count: usize = count.parse().expect("a number of entries");
            let add = ["XADD", key, "*", "a", "b"];
            join_all((0..count).map(|_| stage.redis::<String>(&add))).await;
        } else if let Some((group, last)) = word.split_once('@') {
            create_group(stage, key, group, last).await;
        } else if let Some((group, delivery)) = word.split_once('>') {
            deliver(stage, key, group, delivery).await;
        } else if let Some((group, id)) = word.split_once('^') {
            stage.redis::<i64>(&["XACK", key, group, id]).await;
        } else {
            add(stage, key, word).await;
        }
    }
}

async fn add(stage: &Stage, key: &str, word: &str) {
    let (id, fields) = word.split_once(':').expect("id:field,value");
    let filling = "x".repeat(FILL_BYTES);
    let mut command = vec!["XADD", key, id];
    command.extend(fields.trim_end_matches('!').split(','));
    if fields.ends_with('!') {
        command.extend([FILL, &filling]);
    }
    stage.redis::<String>(&command).await;
}

async fn create_group(stage: &Stage, key: &str, group: &str, last: &str) {
    let (last, read) = last.split_once('/').unwrap_or((last, ""));
    let mut command = vec!["XGROUP", "CREATE", key, group, last, "MKSTREAM"];
    if !read.is_empty() {
        command.extend(["ENTRIESREAD", read]);
    }
    stage.redis::<()>(&command).await;
}

async fn deliver(stage: &Stage, key: &str, group: &str, delivery: &str) {
    let (consumer, count) = delivery.split_once(':').expect("consumer:count");
    stage.redis::<i64>(&["XGROUP", "CREATECONSUMER", key, group, consumer]).await;
    if count != "0" {
        let read = ["XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", key, ">"];
        stage.redis::<Value>(&read).await;
    }
}

/// All that a stream holds, by its name.
pub async fn facts(stage: &Stage, key: &str, name: &str) -> BTreeMap<String, String> {
    let entries: Vec<(String, Vec<String>)> = stage.redis(&["XRANGE", key, "-", "+"]).await;
    let texts: Vec<String> = entries
        .iter()
        .map(|(_, fields)| fields.split(|text| text == FILL).next().unwrap_or_default().join(","))
        .collect();
    let shown = if texts.len() > SHOWN_MAX {
        format!("{} entries", texts.len())
    } else {
        format!("[{}]", texts.join(" "))
    };
    let mut facts = BTreeMap::from([(name.to_owned(), shown)]);
    let groups: Vec<BTreeMap<String, Value>> = stage.redis(&["XINFO", "GROUPS", key]).await;
    for group in &groups {
        let group_name = text(&group["name"]);
        let (last, read) = (text(&group["last-delivered-id"]), text(&group["entries-read"]));
        facts.insert(format!("{name}.{group_name}"), format!("{last}/{read}"));
        let list = ["XINFO", "CONSUMERS", key, &group_name];
        let consumers: Vec<BTreeMap<String, Value>> = stage.redis(&list).await;
        for consumer in &consumers {
            let consumer = text(&consumer["name"]);
            let list = ["XPENDING", key, &group_name, "-", "+", "1000", &consumer];
            let pending: Vec<(String, String, i64, i64)> = stage.redis(&list).await;
            let ids: Vec<String> = pending.into_iter().map(|(id, ..)| id).collect();
            let held = format!("[{}]", ids.join(" "));
            facts.insert(format!("{name}.{group_name}.{consumer}"), held);
        }
    }
    facts
}

/// A value of XINFO; of a number that Redis doesn't know, the word `unknown`.
fn text(value: &Value) -> String {
    match value {
        Value::Nil => "unknown".to_owned(),
        value => String::from_redis_value_ref(value).expect("a text or a number"),
    }
}
