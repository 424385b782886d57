//! Keys of one test, and what a script does to them.
//!
//! Contents of a key are told in words: `field=value` for a hash, and so is what changed: `lane.used=6` for a field that
//! was written, `-lane.used` for one that went, `told=7` for a message. So one line shows that nothing else changed.
//! In what a key holds, and in what is called, an `_` stands for a space; `replid=@` is the server's replication ID.
//! `streams.rs` has the words of streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flash_sale::kit::redis::{Link, Redis};
use flash_sale::kit::script::VariadicScript;
use futures_util::StreamExt;
use redis::aio::PubSub;
use redis::{FromRedisValue, Value};
use uuid::Uuid;

use super::streams;
use crate::support::{bounded, shared};

/// The last message that is read after a call.
const END: &str = "that is all";

/// A row of a table: how the keys differ from their usual state, the call, its reply, and all that changed.
///
/// The call is `arguments`, or `further keys: arguments`. Of an argument, `@name` is the whole name of a channel, and
/// `''` is empty.
pub type Row = (&'static [(&'static str, &'static str)], &'static str, &'static str, &'static str);

/// Keys under a prefix of the test's own.
pub struct Stage {
    link: Arc<Link>,
    prefix: String,
    replid: String,
    messages: PubSub,
}

/// Effects of a call.
#[derive(Debug, PartialEq, Eq)]
pub struct Done {
    /// The reply in words.
    pub reply: String,
    /// All that is different now.
    pub changes: String,
}

impl Stage {
    /// Without any key, on the Redis of all tests.
    pub async fn new() -> Self {
        Self::on(&shared().redis_url).await
    }

    /// Without any key, on a Redis of the test's own.
    pub async fn on(url: &str) -> Self {
        let link = Redis::new(url).expect("a URL").link().await.expect("it runs");
        let prefix = format!("{{{}}}:", Uuid::new_v4().simple());
        let client = redis::Client::open(url).expect("a URL");
        let mut messages = client.get_async_pubsub().await.expect("it runs");
        messages.psubscribe(format!("{prefix}*")).await.expect("it runs");
        let mut command = redis::cmd("INFO");
        let info: redis::InfoDict = link.query(command.arg("replication")).await.expect("it tells");
        let replid = info.get("master_replid").expect("it has one");
        Self { link, prefix, replid, messages }
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

    /// Removes a key, or makes it a hash of these words; the word `string` or `stream` makes a key of that type, `=x` a
    /// string with this text, and `stream` with more words a stream that holds them.
    pub async fn set(&self, name: &str, words: &str) {
        let _: i64 = self.redis(&["DEL", &self.key(name)]).await;
        self.change(name, words).await;
    }

    /// Adds these words to a hash. `-field` takes a field out, `gone` removes the key, and `string`, `=x` or `stream`
    /// puts a key of that type in its place.
    pub async fn change(&self, name: &str, words: &str) {
        let key = self.key(name);
        let text = if words == "string" { Some("x") } else { words.strip_prefix('=') };
        let entries = words.strip_prefix("stream");
        if words == "gone" || text.is_some() || entries.is_some() {
            let _: i64 = self.redis(&["DEL", &key]).await;
        }
        match (words, text, entries) {
            ("" | "gone", ..) => return,
            (_, Some(text), _) => return self.redis(&["SET", &key, text]).await,
            (_, _, Some("")) => return streams::fill(self, &key, "1*").await,
            (_, _, Some(entries)) => return streams::fill(self, &key, entries).await,
            _ => {}
        }
        let mut written = vec!["HSET".to_owned(), key.clone()];
        let mut removed = vec!["HDEL".to_owned(), key];
        for word in words.split(' ') {
            match word.split_once('=') {
                Some((field, "@")) => written.extend([field.to_owned(), self.replid.clone()]),
                Some((field, value)) => written.extend([field.to_owned(), value.replace('_', " ")]),
                None => removed.push(word.strip_prefix('-').expect("-field").to_owned()),
            }
        }
        for command in [written, removed].iter().filter(|command| command.len() > 2) {
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            let _: i64 = self.redis(&command).await;
        }
    }

    /// Sets all keys of a row.
    pub async fn set_all(&self, keys: &[(&str, &str)]) {
        for (name, words) in keys {
            self.set(name, words).await;
        }
    }

    /// Checks each row of a table. The script is called with these keys, and those that the row adds.
    pub async fn holds(
        &mut self,
        script: &VariadicScript,
        keys: &str,
        usual: &[(&str, &str)],
        rows: &[Row],
    ) {
        let mut wrong = Vec::new();
        for (differences, call, reply, changes) in rows {
            self.set_all(usual).await;
            for (name, words) in *differences {
                self.change(name, words).await;
            }
            let (keys, arguments) = self.call(keys, call);
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let done = self.run(script, &keys, &arguments).await;
            if (&*done.reply, &*done.changes) != (*reply, *changes) {
                wrong.push(format!("{differences:?} {call}: {done:?}"));
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    /// The reply to a call as a row has it.
    pub async fn reply(&self, script: &VariadicScript, keys: &str, call: &str) -> String {
        let (keys, arguments) = self.call(keys, call);
        let keys: Vec<String> = keys.iter().map(|name| self.key(name)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        words(&script.run::<Value>(&self.link, &keys, &arguments).await.expect("it runs"))
    }

    /// The keys and the arguments of a call.
    fn call(&self, keys: &str, call: &str) -> (Vec<String>, Vec<String>) {
        let (further, arguments) = call.split_once(':').unwrap_or(("", call));
        let keys = keys.split(' ').chain(further.split_whitespace());
        let argument = |word: &str| match word.strip_prefix('@') {
            Some(name) => self.key(name),
            None if word == "''" => String::new(),
            None => word.replace('_', " "),
        };
        let arguments = arguments.split_whitespace().map(argument).collect();
        (keys.map(str::to_owned).collect(), arguments)
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
                "stream" => facts.extend(streams::facts(self, &key, &name).await),
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
