//! Keys of one test, and what a script does to them.
//!
//! What a key holds is told in words: `field=value` for a hash, and so is what changed: `lane.beat=6` for a field that
//! was written, `-lane.beat` for one that went, `told=7` for a message. So one line shows that nothing else changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flash_sale::kit::redis::{Link, Redis};
use flash_sale::kit::script::VariadicScript;
use futures_util::StreamExt;
use redis::aio::PubSub;
use redis::{FromRedisValue, Value};
use uuid::Uuid;

use crate::support::{bounded, shared};

/// The last message that is read after a call.
const END: &str = "that is all";

/// Keys under a prefix of the test's own.
pub struct Stage {
    link: Arc<Link>,
    prefix: String,
    messages: PubSub,
}

/// What a call has done.
#[derive(Debug, PartialEq, Eq)]
pub struct Done {
    /// The reply in words.
    pub reply: String,
    /// All that is different now.
    pub changes: String,
}

impl Stage {
    /// Without any key.
    pub async fn new() -> Self {
        let url = &shared().redis_url;
        let link = Redis::new(url).expect("a URL").link().await.expect("it runs");
        let prefix = format!("{{{}}}:", Uuid::new_v4().simple());
        let client = redis::Client::open(url.as_str()).expect("a URL");
        let mut messages = client.get_async_pubsub().await.expect("it runs");
        messages.psubscribe(format!("{prefix}*")).await.expect("it runs");
        Self { link, prefix, messages }
    }

    /// The whole name of a key or a channel.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// One command.
    pub async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        self.link.query(&command).await.expect("the command is right")
    }

    /// Removes a key, or makes it a hash of these words; the word `string` or `stream` makes a key of that type.
    pub async fn set(&self, name: &str, words: &str) {
        let key = self.key(name);
        let _: i64 = self.redis(&["DEL", &key]).await;
        match words {
            "" => {}
            "string" => self.redis::<()>(&["SET", &key, "x"]).await,
            "stream" => drop(self.redis::<String>(&["XADD", &key, "*", "a", "b"]).await),
            _ => {
                for word in words.split(' ') {
                    let (field, value) = word.split_once('=').expect("field=value");
                    let _: i64 = self.redis(&["HSET", &key, field, value]).await;
                }
            }
        }
    }

    /// Sets all keys of a row.
    pub async fn set_all(&self, keys: &[(&str, &str)]) {
        for (name, words) in keys {
            self.set(name, words).await;
        }
    }

    /// Runs a script with these keys and arguments.
    pub async fn run(
        &mut self,
        script: &VariadicScript,
        keys: &[&str],
        arguments: &[&str],
    ) -> Done {
        let keys: Vec<String> = keys.iter().map(|name| self.key(name)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let before = self.all().await;
        let reply = match script.run::<Value>(&self.link, &keys, arguments).await {
            Ok(reply) => words(&reply),
            Err(error) => format!("error {}", error.code().unwrap_or("without a code")),
        };
        let after = self.all().await;
        let mut changes: Vec<String> = Vec::new();
        for fact in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            match (before.get(fact), after.get(fact)) {
                (old, Some(new)) if old != Some(new) => changes.push(format!("{fact}={new}")),
                (Some(_), None) => changes.push(format!("-{fact}")),
                _ => {}
            }
        }
        changes.extend(self.told().await.into_iter().map(|text| format!("told={text}")));
        Done { reply, changes: changes.join(" ") }
    }

    /// Redis's clock.
    pub async fn now_ms(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.redis(&["TIME"]).await;
        seconds * 1_000 + micros / 1_000
    }

    /// A reply whose last number may be the time of its call, which was after `from_ms`: the word `now` in its place.
    pub async fn with_now(&self, reply: &str, from_ms: i64) -> String {
        let (begin, last) = reply.trim_end_matches(']').rsplit_once(' ').expect("some words");
        let to_ms = self.now_ms().await;
        match last.parse::<i64>() {
            Ok(ms) if (from_ms..=to_ms).contains(&ms) => format!("{begin} now]"),
            _ => reply.to_owned(),
        }
    }

    /// All that the keys hold.
    async fn all(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let mut keys: Vec<String> = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let pattern = format!("{}*", self.prefix);
            let step = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", "10000"];
            let (next, found): (String, Vec<String>) = self.redis(&step).await;
            keys.extend(found);
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        for key in keys {
            let name =
                key.strip_prefix(&self.prefix).expect("that is what was looked for").to_owned();
            if self.redis::<i64>(&["PTTL", &key]).await > 0 {
                facts.insert(format!("{name}.ttl"), "set".to_owned());
            }
            match self.redis::<String>(&["TYPE", &key]).await.as_str() {
                "hash" => {
                    let fields: BTreeMap<String, String> = self.redis(&["HGETALL", &key]).await;
                    facts.extend(
                        fields.into_iter().map(|(field, value)| (format!("{name}.{field}"), value)),
                    );
                }
                "string" => drop(facts.insert(name, self.redis(&["GET", &key]).await)),
                "stream" => {
                    let entries: Vec<(String, Vec<String>)> =
                        self.redis(&["XRANGE", &key, "-", "+"]).await;
                    let texts = entries.into_iter().map(|(_, fields)| fields.join(","));
                    facts.insert(name, format!("[{}]", texts.collect::<Vec<_>>().join(" ")));
                }
                other => drop(facts.insert(name, other.to_owned())),
            }
        }
        facts
    }

    /// Messages since the last call.
    async fn told(&mut self) -> Vec<String> {
        let _: i64 = self.redis(&["PUBLISH", &self.key("end"), END]).await;
        let mut texts = Vec::new();
        let mut messages = self.messages.on_message();
        loop {
            let message =
                bounded("a message", messages.next()).await.expect("the connection stands");
            match message.get_payload::<String>().expect("a text") {
                text if text == END => return texts,
                text => texts.push(text),
            }
        }
    }
}

/// A reply in words.
fn words(reply: &Value) -> String {
    match reply {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(words).collect::<Vec<_>>().join(" "))
        }
        other => String::from_redis_value_ref(other).unwrap_or_else(|_| format!("{other:?}")),
    }
}
