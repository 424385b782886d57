//! Lua scripts, called by their hash. If the server doesn't know a script, it is sent the text, which runs and stores
//! the script in one step.

use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind, ToRedisArgs};

use super::connection::Server;

/// A script whose keys all lie in one slot.
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        server: &Server,
        keys: &[&str],
        arguments: impl ToRedisArgs,
    ) -> RedisResult<T> {
        let by_hash = command("EVALSHA", &self.hash, keys, &arguments);
        match server.query(&by_hash).await {
            // The script hasn't run yet.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                server.query(&command("EVAL", self.text, keys, &arguments)).await
            }
            reply => reply,
        }
    }
}

fn command(name: &str, script: &str, keys: &[&str], arguments: &impl ToRedisArgs) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}

#[cfg(test)]
pub(crate) mod tests {
    use futures_util::StreamExt;
    use private_servers::testing::{PATIENCE, RedisServer, bound_this_test, bounded};
    use redis::aio::PubSub;
    use redis::{AsyncConnectionConfig, Client, InfoDict, RedisError, Value, cmd};

    use super::*;
    use crate::connection::tests::Played;

    /// Unit of the leases: long, so that none ends during a test. Leases are rounded up, so that the duration of a call
    /// doesn't show.
    const UNIT_MS: i64 = 1_000_000;
    /// Prefix of the channels' names.
    const CHANNEL: &str = "redisson_lock__channel:";
    /// Channel of a message that marks the end of a call's messages.
    const END: &str = "end";

    /// A row of a table: what Redis holds, keys and arguments of the call, its reply, and what Redis holds then.
    ///
    /// A key with `h:1:2/5` is a hash in which the holder `h:1` has two entries and a lease of five units; a key with
    /// `x` is a string. In a call, `@a` is the channel of the lock `a`. After the keys comes `logged` if something was
    /// written to the append-only file, and `told:{a}` for a message in that channel.
    pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str);

    /// A server for one test. Waiters listen to the locks `a` and `{t}:c`.
    pub(crate) struct Stage {
        _process: RedisServer,
        server: Server,
        messages: PubSub,
    }

    impl Stage {
        pub(crate) async fn new() -> Self {
            // Without fsync, no write to the file waits for an earlier one.
            let process = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "no"]);
            let client = Client::open(process.url()).expect("a valid URL");
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(PATIENCE))
                .set_response_timeout(Some(PATIENCE));
            let one = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut messages = client.get_async_pubsub().await.expect("it runs");
            let channels = ["{a}", "{t}:c"].map(|lock| format!("{CHANNEL}{lock}"));
            for channel in channels.iter().map(String::as_str).chain([END]) {
                messages.subscribe(channel).await.expect("it runs");
            }
            Self { _process: process, server: Server::new(one.expect("it runs")), messages }
        }

        /// The server on which the scripts run.
        pub(crate) fn server(&self) -> &Server {
            &self.server
        }

        /// Checks each row of a table.
        pub(crate) async fn holds(&mut self, script: &Script, rows: &[Row]) {
            let mut wrong = Vec::new();
            for (state, call, reply, then) in rows {
                self.set(state).await;
                let before = self.file_bytes().await;
                let (keys, arguments) = call.split_once(" | ").expect("keys | arguments");
                let keys: Vec<String> = keys.split(' ').map(whole).collect();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let arguments: Vec<String> = arguments.split(' ').map(whole).collect();
                let found = match script.run::<Value>(&self.server, &keys, &arguments).await {
                    Ok(found) => words(&found),
                    Err(_) => "error".to_owned(),
                };
                let is_logged = self.file_bytes().await > before;
                let mut there = self.there().await;
                there.extend(is_logged.then(|| "logged".to_owned()));
                there.extend(self.told().await);
                let there = there.join(" ");
                if (&*found, &*there) != (*reply, *then) {
                    wrong.push(format!("{state:?} {call:?}: {found} {there:?}"));
                }
            }
            assert_eq!(wrong, Vec::<String>::new());
        }

        /// Describes all keys.
        pub(crate) async fn there(&self) -> Vec<String> {
            let mut keys: Vec<String> = self.ask(&["KEYS", "*"]).await;
            keys.sort_unstable();
            let mut there = Vec::new();
            for key in keys {
                let left_ms: i64 = self.ask(&["PTTL", &key]).await;
                let lease =
                    if left_ms > 0 { format!("/{}", units(left_ms)) } else { String::new() };
                let kind: String = self.ask(&["TYPE", &key]).await;
                let value = if kind == "hash" {
                    let entries: Vec<String> = self.ask(&["HGETALL", &key]).await;
                    entries.join(":")
                } else {
                    self.ask(&["GET", &key]).await
                };
                there.push(format!("{key}={value}{lease}"));
            }
            there
        }

        /// Creates the keys of a row, and deletes all others.
        pub(crate) async fn set(&self, state: &str) {
            for key in self.ask::<Vec<String>>(&["KEYS", "*"]).await {
                self.ask::<i64>(&["DEL", &key]).await;
            }
            for word in state.split_whitespace() {
                let (key, value) = word.split_once('=').expect("key=value");
                let (value, lease) = value.split_once('/').unwrap_or((value, ""));
                match value.rsplit_once(':') {
                    Some((holder, count)) => {
                        self.ask::<i64>(&["HSET", key, holder, count]).await;
                    }
                    None => self.ask::<()>(&["SET", key, value]).await,
                }
                if !lease.is_empty() {
                    let lease: i64 = lease.parse().expect("a number of units");
                    self.ask::<i64>(&["PEXPIRE", key, &(lease * UNIT_MS).to_string()]).await;
                }
            }
        }

        /// Sends one command.
        pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
            self.server.query(cmd(words[0]).arg(&words[1..])).await.expect("the command is right")
        }

        /// Size of the append-only file, in bytes.
        async fn file_bytes(&self) -> u64 {
            let facts: InfoDict = self.ask(&["INFO", "persistence"]).await;
            facts.get("aof_current_size").expect("there is a file")
        }

        /// Channels of the messages since the last call.
        async fn told(&mut self) -> Vec<String> {
            self.ask::<i64>(&["PUBLISH", END, "0"]).await;
            let mut told = Vec::new();
            let mut messages = self.messages.on_message();
            loop {
                let message = bounded("a message", messages.next()).await.expect("it runs");
                match message.get_channel_name() {
                    END => return told,
                    name => told.push(format!("told:{}", name.trim_start_matches(CHANNEL))),
                }
            }
        }
    }

    /// A key or an argument, with the shorthand for channels expanded.
    fn whole(word: &str) -> String {
        match word.strip_prefix('@') {
            Some(lock) if lock == "*" || lock.contains('{') => format!("{CHANNEL}{lock}"),
            Some(lock) => format!("{CHANNEL}{{{lock}}}"),
            None => word.to_owned(),
        }
    }

    /// Describes a reply; the rest of a lease is given in units.
    fn words(reply: &Value) -> String {
        match reply {
            Value::Nil => "nil".to_owned(),
            Value::Int(ms) if *ms >= UNIT_MS => format!("{}_units", units(*ms)),
            Value::Int(number) => number.to_string(),
            Value::Array(values) => {
                format!("[{}]", values.iter().map(words).collect::<Vec<_>>().join(" "))
            }
            other => panic!("no script replies {other:?}"),
        }
    }

    fn units(left_ms: i64) -> i64 {
        left_ms.div_euclid(UNIT_MS) + i64::from(left_ms % UNIT_MS > 0)
    }

    #[tokio::test]
    async fn run_sends_the_text_only_to_a_server_that_does_not_know_the_script() {
        bound_this_test();
        for (kind, sends_text) in [
            (ErrorKind::Server(ServerErrorKind::NoScript), true),
            (ErrorKind::Server(ServerErrorKind::BusyLoading), false),
            (ErrorKind::Io, false),
        ] {
            let server = Played::new(move |command| {
                if command.starts_with("EVALSHA ") {
                    return Err(RedisError::from((kind, "refused")));
                }
                Ok(Value::Int(5))
            });
            let script = Script::new("return 5");
            let found = script.run::<i64>(&Server::new(server.clone()), &["a"], &["x"]).await;
            assert_eq!(found.ok(), sends_text.then_some(5), "{kind:?}");
            let mut expected = vec!["EVALSHA 1 a x"];
            expected.extend(sends_text.then_some("EVAL return 5 1 a x"));
            assert_eq!(server.asked(), expected, "{kind:?}");
        }
    }
}
