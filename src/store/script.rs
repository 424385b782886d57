//! Lua scripts. Where the number of keys is fixed, the compiler checks it.
//!
//! A script is called by its hash. If the server doesn't know the hash (it is new, or after SCRIPT FLUSH), it is sent
//! the text. That runs and stores the script in one step, so no flush can come in between.

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
    /// `text` is the script's source, from `include_str!`.
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
    /// `text` is the script's source, from `include_str!`.
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

    /// Runs the script with `keys` keys. `add` appends the keys and then the arguments to the command, so that scripts
    /// with many keys need no list of them.
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
            // The script hasn't run yet.
            Err(error) if is_unknown_script(&error) => link.query(&self.by_text(keys, &add)).await,
            reply => reply,
        }
    }

    /// Like [`run_with`](Self::run_with). Then waits, for `patience` at most, until `replicas` replicas have everything
    /// that this connection wrote. Also returns the number of replicas that have it. The connection must be the
    /// caller's alone, because WAIT blocks it.
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
        // Both in one round trip: as the first command of a connection, WAIT waits for nothing.
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
