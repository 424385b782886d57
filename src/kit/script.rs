//! Lua scripts. Where the number of keys is fixed, the compiler reads the count.
//!
//! A script is sent by its hash. A server that doesn't know the hash (a new one, or after SCRIPT FLUSH) is sent the
//! text, which runs the script and makes it known in one step: no flush can come in between.

use std::time::Duration;

use redis::{
    Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind,
    ToRedisArgs, from_redis_value,
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
            commands.ignore_errors().clone()
        };
        let (reply, has_it) = match link.query_both(&then_wait(self.by_hash(keys, &add))).await? {
            (Err(error), _) if is_unknown_script(&error) => {
                link.query_both(&then_wait(self.by_text(keys, &add))).await?
            }
            replies => replies,
        };
        Ok((from_redis_value(reply?)?, from_redis_value(has_it?)?))
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

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;
    use crate::kit::redis::fake::Fake;

    /// Only a script that is unknown is sent as text: any other refusal may come from the script, which has run.
    #[tokio::test]
    async fn a_script_is_sent_as_text_only_where_its_hash_is_unknown() {
        bound_this_test();
        for (refusal, texts) in [("-NOSCRIPT it is unknown\r\n", 1), ("-ERR it fails\r\n", 0)] {
            let answer = |command: &str| {
                Some(match command.split(' ').next() {
                    Some("EVALSHA") => refusal.to_owned(),
                    _ => ":7\r\n".to_owned(),
                })
            };
            let server = Fake::master("a", answer).await;
            let link = server.link().await;
            let script = VariadicScript::new("return 7");
            let add = |command: &mut Cmd| {
                command.arg("key").arg("argument");
            };
            let alone = script.run_with::<i64>(&link, 1, add).await;
            assert_eq!(server.commands("EVAL return 7 1 key argument").len(), texts, "{refusal}");
            let patience = (2, Duration::from_millis(50));
            let waited = script.run_and_wait::<i64>(&link, 1, add, patience).await;
            assert_eq!(server.commands("EVAL return 7 1 key argument").len(), 2 * texts);
            assert_eq!(server.commands("EVALSHA").len(), 2);
            assert_eq!(server.commands("WAIT 2 50").len(), 1 + texts);
            assert_eq!(
                (alone.ok(), waited.ok()),
                match texts {
                    1 => (Some(7), Some((7, 7))),
                    _ => (None, None),
                }
            );
        }
    }
}
