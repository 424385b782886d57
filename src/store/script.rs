//! Lua scripts. Where the number of keys is fixed, the compiler reads the count.
//!
//! A script is sent by its hash. A server that doesn't know the hash (a new one, or after SCRIPT FLUSH) is sent the
//! text, which runs the script and makes it known in one step: no flush can come in between.

use std::time::Duration;

use redis::{
    Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind,
    ToRedisArgs, Value, from_redis_value,
};

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
        match link.query(&self.by_hash(keys, &add)).await {
            // The script hasn't run.
            Err(error) if is_unknown_script(&error) => link.query(&self.by_text(keys, &add)).await,
            reply => reply,
        }
    }

    /// [`run_with`](Self::run_with), and then waits for so many replicas to have all that was written before, for
    /// `patience` at most. Returns the number of replicas that have it, too. The connection must be the caller's alone:
    /// WAIT holds it up.
    ///
    /// # Errors
    ///
    /// As [`super::redis::Redis::query`].
    pub async fn run_and_wait<T: FromRedisValue>(
        &self,
        link: &Link,
        keys: usize,
        add: impl Fn(&mut Cmd),
        (replicas, patience): (u32, Duration),
    ) -> RedisResult<(T, u32)> {
        // In one round trip: as the first command of a connection, WAIT waits for nothing.
        let then_wait = |script: Cmd| -> Pipeline {
            let mut commands = redis::pipe();
            commands.add_command(script).cmd("WAIT").arg(replicas).arg(patience.as_millis());
            commands
        };
        let mut replies = link.query_each(&then_wait(self.by_hash(keys, &add))).await?;
        if matches!(&replies[..], [Err(error), _] if is_unknown_script(error)) {
            replies = link.query_each(&then_wait(self.by_text(keys, &add))).await?;
        }
        let mut replies = replies.into_iter();
        let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
        Ok((from_redis_value(next()?)?, from_redis_value(next()?)?))
    }

    fn by_hash(&self, keys: usize, add: &impl Fn(&mut Cmd)) -> Cmd {
        command("EVALSHA", &self.hash, keys, add)
    }

    fn by_text(&self, keys: usize, add: &impl Fn(&mut Cmd)) -> Cmd {
        command("EVAL", self.text, keys, add)
    }
}

fn command(name: &str, script: &str, keys: usize, add: &impl Fn(&mut Cmd)) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys);
    add(&mut command);
    command
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
