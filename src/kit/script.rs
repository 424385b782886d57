//! Lua scripts. Where the number of keys is fixed, the compiler reads the count.
//!
//! A script is sent by its hash. A server that doesn't know the hash (a new one, or after SCRIPT FLUSH) is sent the
//! text, which runs the script and makes it known in one step: no flush can come in between.

use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind, ToRedisArgs};

use super::redis::Link;

/// A script that takes `KEYS` keys, all in one slot.
pub struct Script<const KEYS: usize>(VariadicScript);

/// A script that takes any number of keys, all in one slot.
pub struct VariadicScript {
    text: &'static str,
    hash: String,
}

impl<const KEYS: usize> Script<KEYS> {
    /// Takes the text of the script, as `include_str!` gives it.
    pub fn new(text: &'static str) -> Self {
        Self(VariadicScript::new(text))
    }

    /// Runs the script.
    ///
    /// # Errors
    ///
    /// As [`super::redis::Redis::query`].
    pub async fn run<T: FromRedisValue>(
        &self,
        link: &Link,
        keys: [&str; KEYS],
        arguments: impl ToRedisArgs,
    ) -> RedisResult<T> {
        self.0.run(link, &keys, arguments).await
    }
}

impl VariadicScript {
    /// Takes the text of the script, as `include_str!` gives it.
    pub fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// Runs the script.
    ///
    /// # Errors
    ///
    /// As [`super::redis::Redis::query`].
    pub async fn run<T: FromRedisValue>(
        &self,
        link: &Link,
        keys: &[&str],
        arguments: impl ToRedisArgs,
    ) -> RedisResult<T> {
        let add = |command: &mut Cmd| {
            command.arg(keys).arg(&arguments);
        };
        self.run_with(link, keys.len(), add).await
    }

    /// Runs the script with the keys and arguments that `add` adds to its command, in this order. For scripts with
    /// many keys: no list of them is built first.
    ///
    /// # Errors
    ///
    /// As [`super::redis::Redis::query`].
    pub async fn run_with<T: FromRedisValue>(
        &self,
        link: &Link,
        keys: usize,
        add: impl Fn(&mut Cmd),
    ) -> RedisResult<T> {
        let command = |name: &str, script: &str| {
            let mut command = redis::cmd(name);
            command.arg(script).arg(keys);
            add(&mut command);
            command
        };
        match link.query(&command("EVALSHA", &self.hash)).await {
            // The script hasn't run.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.query(&command("EVAL", self.text)).await
            }
            reply => reply,
        }
    }
}
