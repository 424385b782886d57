//! Any connection of the caller's, behind one type.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, ProtocolVersion, RedisError,
    RedisFuture, RedisResult, Value,
};
use tokio::time::timeout;

/// Any connection that can be cloned and shared: `MultiplexedConnection`, `ConnectionManager`, or the program's own.
///
/// A `MultiplexedConnection` that has ended stays ended, and so do the locks on it. `ConnectionManager` (a feature of
/// `redis`) reconnects. The connection's response time-out bounds each command, so leave it on.
pub trait Connection: ConnectionLike + Clone + Send + Sync + 'static {}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connection for C {}

/// Opens the connection on which a client of the locks learns that they were released.
pub trait Subscribe: Send + Sync + 'static {
    /// Opens a separate RESP3 connection that sends `heard` each message, and its own end.
    ///
    /// # Errors
    ///
    /// When no server can be reached.
    fn open(&self, heard: Arc<dyn AsyncPushSender>) -> RedisFuture<'_, MultiplexedConnection>;
}

/// Uses RESP3 whatever the client's URL says. Enable keepalive in the client's TCP settings: it notices a peer that has
/// silently gone.
impl Subscribe for Client {
    fn open(&self, heard: Arc<dyn AsyncPushSender>) -> RedisFuture<'_, MultiplexedConnection> {
        Box::pin(async move {
            let info = self.get_connection_info().clone();
            let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            let client = Self::open(info.set_redis_settings(settings))?;
            let config = AsyncConnectionConfig::new().set_push_sender(heard);
            client.get_multiplexed_async_connection_with_config(&config).await
        })
    }
}

#[derive(Clone)]
pub(crate) struct Server(Arc<dyn Ask>);

/// [`Connection`] without its type. Each command clones the connection, because the methods of `redis` need `&mut`.
trait Ask: Send + Sync {
    fn ask<'a>(&'a self, command: &'a Cmd) -> RedisFuture<'a, Value>;

    #[cfg(feature = "redlock")]
    fn ask_all<'a>(&'a self, commands: &'a redis::Pipeline) -> RedisFuture<'a, Value>;
}

impl<C: Connection> Ask for C {
    fn ask<'a>(&'a self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let mut connection = self.clone();
        Box::pin(async move { command.query_async(&mut connection).await })
    }

    #[cfg(feature = "redlock")]
    fn ask_all<'a>(&'a self, commands: &'a redis::Pipeline) -> RedisFuture<'a, Value> {
        let mut connection = self.clone();
        Box::pin(async move { commands.query_async(&mut connection).await })
    }
}

impl Server {
    pub(crate) fn new(connection: impl Connection) -> Self {
        Self(Arc::new(connection))
    }

    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        Ok(redis::from_redis_value(self.0.ask(command).await?)?)
    }

    /// Sends the commands together, so that one connection carries them all.
    #[cfg(feature = "redlock")]
    pub(crate) async fn query_all<T: FromRedisValue>(
        &self,
        commands: &redis::Pipeline,
    ) -> RedisResult<T> {
        Ok(redis::from_redis_value(self.0.ask_all(commands).await?)?)
    }
}

/// Waits for the answer for at most `time`.
pub(crate) async fn answer_within<T>(
    time: Duration,
    answer: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    timeout(time, answer).await.unwrap_or_else(|_| Err(no_answer()))
}

pub(crate) fn no_answer() -> RedisError {
    RedisError::from((ErrorKind::Io, "no answer in time"))
}

/// Error of a task that ended because its runtime was shut down.
pub(crate) fn interrupted() -> RedisError {
    RedisError::from((ErrorKind::Io, "interrupted"))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use redis::{Arg, Pipeline};
    use tokio::time::sleep;

    use super::*;

    /// Connects anew for each command.
    #[derive(Clone)]
    pub(crate) struct Dialled(pub(crate) Client);

    impl Dialled {
        /// Connects to a place without a server, so that every command fails.
        pub(crate) fn nowhere() -> Self {
            Self(Client::open("redis+unix:///nowhere/redis.sock").expect("a valid URL"))
        }
    }

    impl ConnectionLike for Dialled {
        fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
            Box::pin(async move {
                let mut connection = self.0.get_multiplexed_async_connection().await?;
                connection.req_packed_command(command).await
            })
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            commands: &'a Pipeline,
            offset: usize,
            count: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            Box::pin(async move {
                let mut connection = self.0.get_multiplexed_async_connection().await?;
                connection.req_packed_commands(commands, offset, count).await
            })
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    type Answer = dyn Fn(&str) -> RedisResult<Value> + Send + Sync;

    /// A server that answers each command at once, as a function says, and records the commands without the hashes of
    /// scripts.
    #[derive(Clone)]
    pub(crate) struct Played {
        answer: Arc<Answer>,
        asked: Arc<Mutex<Vec<String>>>,
        /// Prefix of commands that are answered late, and the delay.
        slow: Option<(&'static str, Duration)>,
    }

    impl Played {
        pub(crate) fn new(
            answer: impl Fn(&str) -> RedisResult<Value> + Send + Sync + 'static,
        ) -> Self {
            Self { answer: Arc::new(answer), asked: Arc::default(), slow: None }
        }

        /// The same server, with a delay for commands that begin like this.
        pub(crate) fn slow(self, beginning: &'static str, pause: Duration) -> Self {
            Self { slow: Some((beginning, pause)), ..self }
        }

        pub(crate) fn asked(&self) -> Vec<String> {
            std::mem::take(&mut *self.asked.lock().expect("no holder panics"))
        }

        async fn answer(&self, command: &Cmd) -> RedisResult<Value> {
            let mut words: Vec<String> = command.args_iter().map(word).collect();
            if words[0] == "EVALSHA" {
                words.remove(1);
            }
            let text = words.join(" ");
            self.asked.lock().expect("no holder panics").push(text.clone());
            if let Some((_, pause)) = self.slow.filter(|(slow, _)| text.starts_with(slow)) {
                sleep(pause).await;
            }
            (self.answer)(&text)
        }
    }

    impl ConnectionLike for Played {
        fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
            Box::pin(async move { self.answer(command).await })
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            commands: &'a Pipeline,
            _offset: usize,
            _count: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            Box::pin(async move {
                let mut answers = Vec::new();
                for command in commands.cmd_iter() {
                    answers.push(self.answer(command).await?);
                }
                Ok(answers)
            })
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    fn word(argument: Arg<&[u8]>) -> String {
        match argument {
            Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => panic!("no command here has a cursor"),
        }
    }

    /// The error of a server that is down.
    pub(crate) fn away() -> RedisResult<Value> {
        Err(RedisError::from((ErrorKind::Io, "away")))
    }
}
