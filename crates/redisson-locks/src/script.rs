//! Lua scripts, sent by their hash. A server that doesn't know a script is sent its text, which runs the script and makes
//! it known in one step.

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
            // The script hasn't run.
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
