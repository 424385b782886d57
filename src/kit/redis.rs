//! Connecting to Redis, in one place.
//!
//! All commands share one multiplexed connection. When it breaks, the next command opens another one;
//! nothing reconnects by itself, so no script can run on a new connection before the server behind
//! it has been identified. Two answers with different [`ServerId`]s come from two lives of Redis, and
//! what one life said (a block of ids, a script that is loaded) needn't hold in the next.
//!
//! A command that timed out may have been executed. Errors here therefore mean *unknown*, never *no*.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, InfoDict,
    IntoConnectionInfo, Pipeline, ProtocolVersion, PushKind, RedisError, RedisResult,
    ServerErrorKind, Value,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::base::limits;

/// One life of a Redis server: its `run_id`, which changes with every start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerId(Arc<str>);

/// A Redis server, connected to when needed. Clones share the connection.
#[derive(Clone)]
pub struct Redis(Arc<Shared>);

struct Shared {
    client: Client,
    /// The connection in use, if there is one; read by every command, without a lock.
    link: ArcSwapOption<Link>,
    /// Lets one caller connect at a time, and remembers when that last failed.
    connecting: Mutex<Option<Instant>>,
}

/// A live connection to an identified server.
pub struct Link {
    connection: MultiplexedConnection,
    server: ServerId,
    /// Cleared when the connection is known to have broken.
    alive: Arc<AtomicBool>,
}

impl Redis {
    /// Names the server; connects at the first command.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood.
    pub fn new(url: &str) -> RedisResult<Self> {
        let info: ConnectionInfo = url.into_connection_info()?;
        // RESP3, because only there a lost connection is noticed before the next command fails.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info
            .set_redis_settings(settings)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        Ok(Self(Arc::new(Shared {
            client: Client::open(info)?,
            link: ArcSwapOption::empty(),
            connecting: Mutex::new(None),
        })))
    }

    /// The live connection; opens one if there is none.
    ///
    /// # Errors
    ///
    /// When Redis can't be reached, within [`limits::REDIS_CONNECT_TIMEOUT`].
    pub async fn link(&self) -> RedisResult<Arc<Link>> {
        match self.0.link.load_full() {
            Some(link) if link.is_alive() => Ok(link),
            _ => self.connect().await,
        }
    }

    /// Runs one command on the live connection.
    ///
    /// # Errors
    ///
    /// Whatever Redis or the connection says; after a time-out the command may have been executed.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        self.link().await?.query(command).await
    }

    /// Runs several commands in one round trip; between two of them Redis may hear others.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query); those before and after the command that failed may have been executed.
    pub async fn query_all<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<Vec<T>> {
        let link = self.link().await?;
        let replies = commands.query_async::<Vec<Value>>(&mut link.connection.clone()).await;
        let replies = replies.inspect_err(|error| link.notice(error))?;
        replies.into_iter().map(read).collect()
    }

    /// A connection of its own for a caller that blocks in Redis. Its response time-out outlasts
    /// [`limits::LOG_BLOCK`]; on a shared connection the caller would hold up everybody else.
    ///
    /// # Errors
    ///
    /// When Redis can't be reached.
    pub async fn blocking_connection(&self) -> RedisResult<MultiplexedConnection> {
        let config = connection_config().set_response_timeout(Some(limits::LOG_READ_TIMEOUT));
        self.0.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// A connection of its own for subscriptions. Whatever is published there, and the end of the connection, is told
    /// to `heard`.
    ///
    /// # Errors
    ///
    /// When Redis can't be reached.
    pub async fn listening_connection(
        &self,
        heard: impl AsyncPushSender,
    ) -> RedisResult<MultiplexedConnection> {
        let config = connection_config().set_push_sender(heard);
        self.0.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Where the server is, without user and password: `host:6379, database 0`, or the path of a socket.
    pub fn address(&self) -> String {
        let info = self.0.client.get_connection_info();
        format!("{}, database {}", info.addr(), info.redis_settings().db())
    }

    async fn connect(&self) -> RedisResult<Arc<Link>> {
        let Ok(mut failed_at) =
            timeout(limits::REDIS_CONNECT_TIMEOUT, self.0.connecting.lock()).await
        else {
            return Err(unreachable());
        };
        if let Some(link) = self.0.link.load_full().filter(|link| link.is_alive()) {
            return Ok(link);
        }
        // Everybody who queued behind a failed attempt gets its answer, instead of an attempt each.
        if failed_at.is_some_and(|at| at.elapsed() < limits::REDIS_RECONNECT_PAUSE) {
            return Err(unreachable());
        }
        match self.open().await {
            Ok(link) => {
                let link = Arc::new(link);
                let last = self.0.link.swap(Some(link.clone()));
                if last.is_some_and(|last| last.server != link.server) {
                    tracing::warn!("Redis has been started anew");
                }
                *failed_at = None;
                Ok(link)
            }
            Err(error) => {
                *failed_at = Some(Instant::now());
                Err(error)
            }
        }
    }

    async fn open(&self) -> RedisResult<Link> {
        let alive = Arc::new(AtomicBool::new(true));
        let config = connection_config().set_push_sender({
            let alive = alive.clone();
            move |push: redis::PushInfo| {
                if push.kind == PushKind::Disconnection {
                    alive.store(false, Ordering::Release);
                }
                Ok::<_, redis::aio::SendError>(())
            }
        });
        let mut connection =
            self.0.client.get_multiplexed_async_connection_with_config(&config).await?;
        let info: InfoDict = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let run_id: String = info.get("run_id").ok_or_else(unreachable)?;
        Ok(Link { connection, server: ServerId(run_id.into()), alive })
    }
}

impl Link {
    /// Which life of the server this connection leads to.
    pub fn server(&self) -> &ServerId {
        &self.server
    }

    /// Runs one command.
    ///
    /// # Errors
    ///
    /// As [`Redis::query`].
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        self.check()?;
        let reply = command.query_async::<Value>(&mut self.connection.clone()).await;
        read(reply.inspect_err(|error| self.notice(error))?)
    }

    /// Who queued with this link in hand behind somebody whose command timed out (for a block of ids,
    /// say) fails at once, instead of waiting for a time-out of its own.
    fn check(&self) -> RedisResult<()> {
        if self.is_alive() {
            return Ok(());
        }
        Err(unreachable())
    }

    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// After trouble on the wire the next command gets a new connection. That includes time-outs:
    /// a connection whose other end has silently gone away would time out for ever. Commands that
    /// are under way on the old connection still get their replies.
    fn notice(&self, error: &RedisError) {
        if error.is_io_error() || error.is_unrecoverable_error() {
            self.alive.store(false, Ordering::Release);
        }
    }
}

/// Reads a reply that has arrived. A value of an unexpected type says nothing about the connection, which stays in use.
fn read<T: FromRedisValue>(reply: Value) -> RedisResult<T> {
    Ok(redis::from_redis_value(reply)?)
}

/// Whether the *data* is at fault: a key of the wrong type, a value that can't be read, a script that stumbles over either.
/// The server answers, and other keys can be used. Everything else (an outage, a full memory, a replica) concerns
/// all keys.
pub fn is_data_error(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => true,
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::Extension => {
            let errors = error.clone().into_server_errors();
            errors.is_some_and(|errors| {
                errors.iter().all(|(_, error)| is_data_reply(error.code(), error.details()))
            })
        }
        _ => false,
    }
}

/// Redis has no code of its own for a script's error, nor for a field that is no number; the texts are those of Redis 7 and
/// Valkey.
fn is_data_reply(code: &str, details: Option<&str>) -> bool {
    let says = |text| details.is_some_and(|details| details.contains(text));
    match code {
        "WRONGTYPE" => true,
        "ERR" => says("user_script") || says("is not an integer") || says("is not a valid float"),
        _ => false,
    }
}

fn connection_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limits::REDIS_CONNECT_TIMEOUT))
        .set_response_timeout(Some(limits::REDIS_RESPONSE_TIMEOUT))
        .set_pipeline_buffer_size(limits::REDIS_PIPELINE_BUFFER)
}

fn unreachable() -> RedisError {
    RedisError::from((ErrorKind::Io, "Redis can't be reached"))
}
