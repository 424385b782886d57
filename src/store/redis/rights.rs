//! Rights in Redis, tried without an effect.
//!
//! Redis checks the rights for a command when it queues it after MULTI. DISCARD then drops the queue.

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use super::Redis;

impl Redis {
    /// Those `commands` that the server denies to this user or doesn't know, and those `channels` that the user may not
    /// subscribe to, each with the server's answer.
    ///
    /// # Errors
    ///
    /// When the server can't be reached.
    pub async fn refused(&self, commands: &[Cmd], channels: &[String]) -> RedisResult<Vec<String>> {
        let mut connection = self.connection_to_any().await?;
        let mut refused = Vec::new();
        // Without MULTI, the commands would run.
        if let Err(error) = redis::cmd("MULTI").query_async::<Value>(&mut connection).await {
            return answer(&error).map(|answer| vec![format!("MULTI: {answer}")]).ok_or(error);
        }
        let mut queue = redis::pipe();
        for command in commands {
            queue.add_command(command.clone());
        }
        queue.cmd("DISCARD");
        let replies: Vec<RedisResult<Value>> =
            queue.ignore_errors().query_async(&mut connection).await?;
        for (command, reply) in commands.iter().zip(&replies) {
            if let Some(answer) = reply.as_ref().err().and_then(answer) {
                refused.push(format!("{}: {answer}", words(command)));
            }
        }
        for channel in channels {
            match connection.subscribe(channel).await {
                Ok(()) => connection.unsubscribe(channel).await?,
                Err(error) => {
                    let answer = answer(&error).ok_or(error)?;
                    refused.push(format!("SUBSCRIBE {channel}: {answer}"));
                }
            }
        }
        Ok(refused)
    }
}

/// The server's answer if it denies a right, or doesn't know the command. Other errors say nothing about rights: a full
/// server, for example, refuses to queue a write.
fn answer(error: &RedisError) -> Option<String> {
    let is_unknown = |error: &RedisError| error.to_string().contains("unknown command");
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoPerm) => Some(error.to_string()),
        ErrorKind::Server(_) if is_unknown(error) => Some(error.to_string()),
        _ => None,
    }
}

/// The command and its first arguments, in words.
fn words(command: &Cmd) -> String {
    let words = command.args_iter().filter_map(|word| match word {
        redis::Arg::Simple(word) => Some(String::from_utf8_lossy(word).into_owned()),
        _ => None,
    });
    words.take(4).collect::<Vec<_>>().join(" ")
}
