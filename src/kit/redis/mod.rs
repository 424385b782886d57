//! Connecting to Redis, in one place.
//!
//! All commands share one multiplexed connection. When that breaks, the next command opens another one. No connection
//! is reopened by itself, so no script can run on a new connection before its server has been identified. Two answers
//! with different [`ServerId`]s come from two lives of Redis; a fact of one life (a block of ids, a loaded script)
//! needn't hold in the next.
//!
//! Only a master is used, once it has loaded its data. A server that stops being one (a fail-over behind the same
//! address leaves the old master there as a replica) ends the connection with its first refusal, and the next one is
//! opened only when a master answers again.
//!
//! Where Sentinel watches the master, each new connection asks the sentinels for its place (`sentinel.rs`).
//!
//! Where the [`Owner`] of the data is known, a connection to a server with another owner's data is refused.
//!
//! A command that timed out may have been executed. Errors here therefore mean *unknown*, never *no*.

// The master of a Redis that Sentinel watches.
mod sentinel;

// The end of a connection, as its users learn of it.
mod line;

// URLs.
mod url;

// A server for tests.
#[cfg(test)]
pub mod fake;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use chrono::{DateTime, TimeDelta, Utc};
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, InfoDict, Pipeline, RedisError,
    RedisFuture, RedisResult, ServerErrorKind, Value,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use self::line::Line;
use self::sentinel::Sentinels;
use self::url::understood;
use crate::base::host_port::HostPort;
use crate::base::limits;
use crate::base::shutdown::Shutdown;

/// One life of a Redis server: its `run_id`, which changes with every start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerId(Arc<str>);

/// Mark by which the data of a server is known to be ours: a field of a hash that has this value, or isn't there yet.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Key of the hash.
    pub key: String,
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
}

/// Facts about a server when a connection to it begins.
struct Identity {
    server: ServerId,
    /// Start of this life, by the server's clock.
    started_at: DateTime<Utc>,
    /// Whether the server refuses writes while it has too few replicas.
    needs_replicas: bool,
}

/// A Redis server, connected to when needed. Clones share the connection.
#[derive(Clone)]
pub struct Redis(Arc<Shared>);

struct Shared {
    place: Place,
    /// Whether this connection logs a new life of the server: one of each process does.
    tells: bool,
    /// Owner that the data has to have.
    owner: Option<Owner>,
    /// Time in which the server has to answer, and a connection to be established.
    timeout: Duration,
    /// The connection in use, if there is one; read by every command, without a lock.
    link: ArcSwapOption<Link>,
    /// Lets one caller connect at a time, and remembers the time and the error of the last failure.
    connecting: Mutex<Option<(Instant, RedisError)>>,
}

/// Way to the server.
#[derive(Clone)]
enum Place {
    /// One address.
    Server(Arc<ArcSwap<Client>>),
    /// The address that sentinels name.
    Master(Arc<Sentinels>),
}

/// A live connection to an identified server.
pub struct Link {
    connection: MultiplexedConnection,
    identity: Identity,
    line: Arc<Line>,
}

impl ServerId {
    /// The life with this `run_id`.
    pub fn named(run_id: &str) -> Self {
        Self(run_id.into())
    }

    /// The `run_id`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Redis {
    /// Names the server, which has [`limits::REDIS_TIMEOUT`] to answer; connects at the first command.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood.
    pub fn new(url: &str) -> RedisResult<Self> {
        Self::with_timeout(url, limits::REDIS_TIMEOUT)
    }

    /// Names the server, which has `timeout` to answer; connects at the first command.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood.
    pub fn with_timeout(url: &str, timeout: Duration) -> RedisResult<Self> {
        let client = Arc::new(ArcSwap::from_pointee(Client::open(understood(url)?.server)?));
        Ok(Self::of(Place::Server(client), true, timeout))
    }

    /// Names the master `master` of these sentinels. Each server has `timeout` to answer; the first command connects. The
    /// URL has the name of the master in place of host and port: `redis://user:password@master/0`.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood, or names another host, or there is no sentinel.
    pub fn behind_sentinels(
        url: &str,
        sentinels: &[HostPort],
        master: &str,
        timeout: Duration,
    ) -> RedisResult<Self> {
        let sentinels = Sentinels::new(understood(url)?, sentinels, master, timeout)?;
        Ok(Self::of(Place::Master(Arc::new(sentinels)), true, timeout))
    }

    /// Uses this URL for each new connection; those that are open stay. Clones, and what was made of them, follow.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood.
    pub fn change_url(&self, url: &str) -> RedisResult<()> {
        let url = understood(url)?;
        match &self.0.place {
            Place::Server(client) => client.store(Client::open(url.server)?.into()),
            Place::Master(sentinels) => sentinels.change_url(url),
        }
        Ok(())
    }

    /// Starts the task that ends connections to a master that has been replaced; none where no sentinel tells of that.
    pub fn follow_master(&self, shutdown: &Shutdown) {
        if let Place::Master(sentinels) = &self.0.place {
            let (sentinels, stop) = (sentinels.clone(), shutdown.stop_token().clone());
            shutdown.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = sentinels.follow() => {}
                }
            });
        }
    }

    /// The same server over another connection, opened at its first command: for replies that would hold up all other
    /// commands.
    #[must_use]
    pub fn another(&self) -> Self {
        let Shared { place, owner, timeout, .. } = &*self.0;
        Self::with_owner(place.clone(), owner.clone(), false, *timeout)
    }

    /// The same server, over connections that are refused while its data has another owner.
    #[must_use]
    pub fn of_owner(&self, owner: Owner) -> Self {
        let Shared { place, tells, timeout, .. } = &*self.0;
        Self::with_owner(place.clone(), Some(owner), *tells, *timeout)
    }

    fn of(place: Place, tells: bool, timeout: Duration) -> Self {
        Self::with_owner(place, None, tells, timeout)
    }

    fn with_owner(place: Place, owner: Option<Owner>, tells: bool, timeout: Duration) -> Self {
        let link = ArcSwapOption::empty();
        let connecting = Mutex::new(None);
        Self(Arc::new(Shared { place, tells, owner, timeout, link, connecting }))
    }

    /// Whether sentinels name the server.
    pub fn has_sentinels(&self) -> bool {
        matches!(self.0.place, Place::Master(_))
    }

    /// Time in which the server has to answer.
    pub fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// The live connection; opens one if there is none.
    ///
    /// # Errors
    ///
    /// When no master can be reached within [`timeout`](Self::timeout), which each sentinel has, too.
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
    /// As Redis or the connection reports; after a time-out the command may have been executed.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        self.link().await?.query(command).await
    }

    /// Runs several commands in one round trip; between two of them Redis may run commands of other clients.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query); the other commands may have been executed.
    pub async fn query_all<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<Vec<T>> {
        let replies = commands.query_async::<Vec<Value>>(&mut self.clone()).await?;
        replies.into_iter().map(read).collect()
    }

    /// Runs several commands in one round trip, each for itself: the error of one is its own answer.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query), when there is no answer to any.
    pub async fn query_each<T: FromRedisValue>(
        &self,
        commands: &mut Pipeline,
    ) -> RedisResult<Vec<RedisResult<T>>> {
        let sent = commands.ignore_errors().query_async(&mut self.clone()).await;
        let replies: Vec<RedisResult<Value>> = sent?;
        Ok(replies.into_iter().map(|reply| reply.and_then(read)).collect())
    }

    /// Whether the server is still a master that has its data, and the data is ours. Otherwise the live connection ends.
    ///
    /// # Errors
    ///
    /// When there is no such server: [`trouble`] names the fault in words.
    pub async fn check(&self) -> RedisResult<()> {
        let link = self.link().await?;
        let owner = self.0.owner.as_ref();
        let identified = identify(&mut link.connection.clone(), owner).await.map(drop);
        identified.inspect_err(|error| link.notice(error))
    }

    /// A connection of its own for subscriptions, and the life of its server. `heard` gets every published message,
    /// and the end of the connection.
    ///
    /// # Errors
    ///
    /// When no master can be reached.
    pub async fn listening_connection(
        &self,
        heard: impl AsyncPushSender,
    ) -> RedisResult<(MultiplexedConnection, ServerId)> {
        let line = Arc::new(Line::for_messages(heard));
        let (connection, identity) = self.open(&line).await?;
        Ok((connection, identity.server))
    }

    /// A connection of its own to any server at the address, even one that can't be used: for facts about it.
    ///
    /// # Errors
    ///
    /// When no server can be reached.
    pub(super) async fn connection_to_any(&self) -> RedisResult<MultiplexedConnection> {
        let client = match &self.0.place {
            Place::Server(client) => Client::clone(&client.load()),
            Place::Master(sentinels) => sentinels.client(&sentinels.ask().await?)?,
        };
        let config = line::config(self.0.timeout);
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Place of the server, without user and password: `host:6379, database 0`, or the path of a socket.
    pub fn address(&self) -> String {
        let place = match &self.0.place {
            Place::Server(client) => client.load().get_connection_info().addr().to_string(),
            Place::Master(sentinels) => sentinels.address(),
        };
        format!("{place}, database {}", self.get_db())
    }

    async fn connect(&self) -> RedisResult<Arc<Link>> {
        let Ok(mut failed) = timeout(self.0.timeout, self.0.connecting.lock()).await else {
            return Err(unreachable());
        };
        if let Some(link) = self.0.link.load_full().filter(|link| link.is_alive()) {
            return Ok(link);
        }
        // All callers that queued behind a failed attempt get its answer, instead of an attempt each.
        if let Some((at, error)) = &*failed
            && at.elapsed() < limits::REDIS_RECONNECT_PAUSE
        {
            return Err(error.clone());
        }
        match self.open_link().await {
            Ok(link) => {
                let link = Arc::new(link);
                let last = self.0.link.swap(Some(link.clone()));
                if self.0.tells {
                    self.tell_new_server(&link, last.as_deref());
                }
                *failed = None;
                Ok(link)
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn tell_new_server(&self, link: &Link, last: Option<&Link>) {
        if last.is_some_and(|last| last.server() == link.server()) {
            return;
        }
        if last.is_some() {
            tracing::warn!("Redis has been started anew, or another server answers");
        }
        if self.has_sentinels() && !link.identity.needs_replicas {
            tracing::warn!(
                "the master of Redis has min-replicas-to-write 0: once it has been replaced, it would go on accepting writes that are lost; set 1, on each server that may become the master"
            );
        }
    }

    async fn open_link(&self) -> RedisResult<Link> {
        let line = Arc::new(Line::for_commands());
        let (connection, identity) = self.open(&line).await?;
        Ok(Link { connection, identity, line })
    }

    /// A connection to a server that has been identified.
    async fn open(&self, line: &Arc<Line>) -> RedisResult<(MultiplexedConnection, Identity)> {
        let config = line::config(self.0.timeout).set_push_sender(line.clone());
        let owner = self.0.owner.as_ref();
        match &self.0.place {
            Place::Server(client) => identified(&client.load_full(), &config, owner).await,
            Place::Master(sentinels) => {
                let word = sentinels.ask().await?;
                sentinels.enter(&word, line)?;
                let opened = identified(&sentinels.client(&word)?, &config, owner).await;
                opened.inspect_err(|_| sentinels.doubt(&word))
            }
        }
    }
}

/// The way of each pipeline, and of libraries that take a connection: over the live link, which a refusal may end.
impl ConnectionLike for Redis {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.query(command))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let link = self.link().await?;
            let mut connection = link.connection.clone();
            let replies = connection.req_packed_commands(commands, offset, count).await;
            let replies = replies.inspect_err(|error| link.notice(error))?;
            link.refuse_late_reply()?;
            for reply in &replies {
                if let Value::ServerError(error) = reply {
                    link.notice(&error.clone().into());
                }
            }
            Ok(replies)
        })
    }

    fn get_db(&self) -> i64 {
        match &self.0.place {
            Place::Server(client) => client.load().get_connection_info().redis_settings().db(),
            Place::Master(sentinels) => sentinels.database(),
        }
    }
}

impl Link {
    /// The life of the server that this connection leads to.
    pub fn server(&self) -> &ServerId {
        &self.identity.server
    }

    /// Start of that life, by the server's clock.
    pub fn server_started_at(&self) -> DateTime<Utc> {
        self.identity.started_at
    }

    /// Runs one command.
    ///
    /// # Errors
    ///
    /// As [`Redis::query`].
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        self.check()?;
        let reply = command.query_async::<Value>(&mut self.connection.clone()).await;
        let reply = reply.inspect_err(|error| self.notice(error))?;
        self.refuse_late_reply()?;
        read(reply)
    }

    /// Runs two commands in one round trip, each for itself: the error of one is its own answer.
    ///
    /// # Errors
    ///
    /// As [`Redis::query`], when there is no answer to either.
    pub async fn query_both(
        &self,
        commands: &Pipeline,
    ) -> RedisResult<(RedisResult<Value>, RedisResult<Value>)> {
        self.check()?;
        let sent = commands.query_async(&mut self.connection.clone()).await;
        let replies: (RedisResult<Value>, RedisResult<Value>) =
            sent.inspect_err(|error| self.notice(error))?;
        self.refuse_late_reply()?;
        for reply in [&replies.0, &replies.1] {
            let _ = reply.as_ref().inspect_err(|error| self.notice(error));
        }
        Ok(replies)
    }

    /// Runs several commands in one round trip, each for itself: the error of one is its own answer.
    ///
    /// # Errors
    ///
    /// As [`Redis::query`], when there is no answer to any.
    pub async fn query_each(
        &self,
        commands: &mut Pipeline,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        self.check()?;
        let sent = commands.ignore_errors().query_async(&mut self.connection.clone()).await;
        let replies: Vec<RedisResult<Value>> = sent.inspect_err(|error| self.notice(error))?;
        self.refuse_late_reply()?;
        for reply in &replies {
            let _ = reply.as_ref().inspect_err(|error| self.notice(error));
        }
        Ok(replies)
    }

    /// Fails at once if a command on this link has timed out: a caller that queued behind that command (for a block
    /// of ids, say) doesn't wait for a time-out of its own.
    fn check(&self) -> RedisResult<()> {
        if self.is_alive() {
            return Ok(());
        }
        Err(unreachable())
    }

    fn is_alive(&self) -> bool {
        self.line.is_alive()
    }

    /// Fails once another master has taken over: the data that a reply speaks of may be gone, so the outcome is unknown.
    fn refuse_late_reply(&self) -> RedisResult<()> {
        if self.line.is_replaced() { Err(sentinel::replaced()) } else { Ok(()) }
    }

    /// Ends the connection after trouble on the wire, so that the next command gets a new one. Trouble includes
    /// time-outs: a connection whose other end has silently gone away would time out for ever. Commands that are
    /// under way on the old connection still get their replies.
    fn notice(&self, error: &RedisError) {
        let is_unfit = is_unfit_server(error) || is_foreign(error);
        if error.is_io_error() || error.is_unrecoverable_error() || is_unfit {
            self.line.end();
        }
    }
}

/// Reads a reply that has arrived. A value of an unexpected type says nothing about the connection, which stays in use.
fn read<T: FromRedisValue>(reply: Value) -> RedisResult<T> {
    Ok(redis::from_redis_value(reply)?)
}

/// Whether the *data* is at fault: a key of the wrong type, a value that can't be read, a script that stumbles over
/// either. The server answers, and other keys can be used. Any other failure (an outage, a full memory, a replica)
/// concerns all keys.
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

/// Redis has no code of its own for a script's error, nor for a field that is no number; the texts are those of Redis
/// 7 and Valkey.
fn is_data_reply(code: &str, details: Option<&str>) -> bool {
    let says = |text| details.is_some_and(|details| details.contains(text));
    match code {
        "WRONGTYPE" => true,
        "ERR" => says("user_script") || says("is not an integer") || says("is not a valid float"),
        _ => false,
    }
}

/// The fault of a server that can't be used, in words that follow the server's name.
pub fn trouble(error: &RedisError) -> &'static str {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::ReadOnly) => "is a replica, which takes no writes",
        ErrorKind::Server(ServerErrorKind::BusyLoading) => "is loading its data",
        FOREIGN => "holds the data of another installation",
        _ => "can't be reached",
    }
}

/// Kind of our own error about the owner of the data. The driver uses this kind for URLs that can't be understood, and a
/// [`Redis`] has a good one.
const FOREIGN: ErrorKind = ErrorKind::InvalidClientConfig;

/// Whether the data of the server has another [`Owner`].
pub fn is_foreign(error: &RedisError) -> bool {
    error.kind() == FOREIGN
}

/// Whether the server behind the connection is the wrong one, or not ready: another connection may lead elsewhere.
fn is_unfit_server(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly};
    let unfit = [ReadOnly, MasterDown, BusyLoading, ClusterDown, Moved];
    matches!(error.kind(), ErrorKind::Server(kind) if unfit.contains(&kind))
}

/// A connection to the master behind the client.
async fn identified(
    client: &Client,
    config: &AsyncConnectionConfig,
    owner: Option<&Owner>,
) -> RedisResult<(MultiplexedConnection, Identity)> {
    let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
    let identity = identify(&mut connection, owner).await?;
    Ok((connection, identity))
}

/// Identifies the master behind a connection, and its life. Refuses one whose data has another owner.
async fn identify(
    connection: &mut MultiplexedConnection,
    owner: Option<&Owner>,
) -> RedisResult<Identity> {
    let mut command = redis::cmd("INFO");
    command.arg("server").arg("replication").arg("persistence");
    let info: InfoDict = command.query_async(connection).await?;
    let of = |kind, what| RedisError::from((ErrorKind::Server(kind), what));
    if info.get::<String>("role").as_deref() != Some("master") {
        return Err(of(ServerErrorKind::ReadOnly, "the server is a replica and takes no writes"));
    }
    if info.get::<String>("loading").as_deref() != Some("0") {
        return Err(of(ServerErrorKind::BusyLoading, "the server is loading its data"));
    }
    if let Some(owner) = owner {
        require_owner(connection, owner).await?;
    }
    let run_id: String = info.get("run_id").ok_or_else(unreachable)?;
    let now = info.get("server_time_usec").and_then(DateTime::from_timestamp_micros);
    let started_at = now.zip(info.get("uptime_in_seconds"));
    let started_at = started_at.map(|(now, seconds)| now - TimeDelta::seconds(seconds));
    Ok(Identity {
        server: ServerId(run_id.into()),
        started_at: started_at.ok_or_else(unreachable)?,
        // Redis has this field only while the setting is in force.
        needs_replicas: info.get::<u32>("min_slaves_good_slaves").is_some(),
    })
}

async fn require_owner(connection: &mut MultiplexedConnection, owner: &Owner) -> RedisResult<()> {
    let mut command = redis::cmd("HGET");
    let command = command.arg(&owner.key).arg(owner.field);
    match command.query_async::<Option<String>>(connection).await {
        Ok(Some(found)) if found != owner.value => {
            Err((FOREIGN, "Redis holds the data of another installation").into())
        }
        // A key of another type tells of no owner.
        Err(error) if !is_data_error(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Asks the server behind a connection for its role, by the command that each connection begins with: a user of Redis
/// needs no other right.
///
/// # Errors
///
/// When it is no master that has its data, or doesn't answer.
pub async fn check_is_master(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    identify(connection, None).await.map(drop)
}

fn unreachable() -> RedisError {
    RedisError::from((ErrorKind::Io, "Redis can't be reached"))
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::FutureExt;
    use private_servers::testing::{
        Bounded, LogLines, bound_this_test, eventually, patience, tries,
    };

    use super::fake::{Fake, bulk, info};
    use super::*;

    fn server_error(kind: ServerErrorKind) -> RedisError {
        RedisError::from((ErrorKind::Server(kind), "it says"))
    }

    #[test]
    fn a_server_that_is_unfit_or_in_trouble_is_told_from_others() {
        use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, Moved, NoScript, ReadOnly};
        for (kind, is_unfit, words) in [
            (ReadOnly, true, "is a replica, which takes no writes"),
            (BusyLoading, true, "is loading its data"),
            (MasterDown, true, "can't be reached"),
            (ClusterDown, true, "can't be reached"),
            (Moved, true, "can't be reached"),
            (NoScript, false, "can't be reached"),
        ] {
            let error = server_error(kind);
            assert_eq!((is_unfit_server(&error), trouble(&error)), (is_unfit, words), "{kind:?}");
        }
        assert_eq!(
            (is_unfit_server(&unreachable()), trouble(&unreachable())),
            (false, "can't be reached")
        );
    }

    #[test]
    fn replies_about_the_data_are_known_by_their_code_and_words() {
        for (code, words, is_of_data) in [
            ("WRONGTYPE", None, true),
            ("WRONGTYPE", Some("Operation against a key"), true),
            ("ERR", None, false),
            ("ERR", Some("user_script:12: attempt to call a nil value"), true),
            ("ERR", Some("hash value is not an integer"), true),
            ("ERR", Some("value is not a valid float"), true),
            ("ERR", Some("unknown command"), false),
            ("OOM", Some("user_script:12: not allowed"), false),
        ] {
            assert_eq!(is_data_reply(code, words), is_of_data, "{code} {words:?}");
        }
    }

    #[test]
    fn a_place_is_told_without_user_and_password() {
        let timeout = Duration::from_secs(3);
        let sentinel: HostPort = "a:1".parse().expect("host and port");
        for (redis, place, has_sentinels) in [
            (Redis::with_timeout("redis://user:secret@host:6380/7", timeout), "host:6380", false),
            (
                Redis::behind_sentinels("redis://u:s@main/7", &[sentinel], "main", timeout),
                "the master main of the sentinels a:1",
                true,
            ),
        ] {
            let redis = redis.expect("a valid URL");
            for redis in [redis.another(), redis] {
                assert_eq!(redis.address(), format!("{place}, database 7"));
                let known = (redis.has_sentinels(), redis.timeout(), redis.get_db());
                assert_eq!(known, (has_sentinels, timeout, 7));
            }
        }
        assert_eq!(
            Redis::new("redis://host").expect("a valid URL").timeout(),
            limits::REDIS_TIMEOUT
        );
    }

    /// Answers GET with a text, and PING.
    fn answer(command: &str) -> Option<String> {
        Some(if command.starts_with("GET") { bulk("text") } else { "+PONG\r\n".to_owned() })
    }

    fn get() -> Cmd {
        redis::cmd("GET").arg("key").clone()
    }

    fn pipeline() -> Pipeline {
        redis::pipe().add_command(get()).cmd("PING").ignore_errors().clone()
    }

    #[tokio::test]
    async fn callers_that_connect_at_one_time_share_the_link() {
        bound_this_test();
        let server = Fake::master("a", answer).await;
        let redis = Redis::new(&server.url()).expect("a valid URL");
        let (one, other) = tokio::join!(redis.link(), redis.link());
        let [one, other] = [one, other].map(|link| link.expect("a master"));
        assert!(Arc::ptr_eq(&one, &other));
        for _ in 0..3 {
            assert_eq!(redis.query::<String>(&get()).bounded().await.expect("an answer"), "text");
        }
        assert_eq!(server.connections(), 1);
    }

    #[tokio::test]
    async fn a_live_link_is_taken_at_once_also_while_a_caller_connects() {
        bound_this_test();
        let server = Fake::master("a", answer).await;
        let redis = Redis::new(&server.url()).expect("a valid URL");
        let link = redis.link().bounded().await.expect("a master");
        let _connecting = redis.0.connecting.lock().await;
        let again = redis.link().now_or_never().expect("at once").expect("a master");
        assert!(Arc::ptr_eq(&link, &again));
    }

    #[tokio::test]
    async fn a_failed_attempt_to_connect_is_the_answer_to_all_for_a_moment() {
        bound_this_test();
        let server = Fake::start(|_| Some(info("a", "role:slave\r\nloading:0\r\n"))).await;
        let redis = Redis::new(&server.url()).expect("a valid URL");
        let fails = async || {
            let error = redis.link().bounded().await.map(drop).expect_err("it is a replica");
            assert_eq!(trouble(&error), "is a replica, which takes no writes");
        };
        // Until the second attempt comes early enough.
        for _ in tries() {
            let (began, before) = (Instant::now(), server.connections());
            fails().await;
            assert_eq!(server.connections(), before + 1);
            fails().await;
            let is_early = began.elapsed() < limits::REDIS_RECONNECT_PAUSE;
            let connections = server.connections();
            tokio::time::pause();
            tokio::time::advance(limits::REDIS_RECONNECT_PAUSE).await;
            tokio::time::resume();
            if is_early {
                assert_eq!(connections, before + 1);
                fails().await;
                assert_eq!(server.connections(), before + 2, "a new attempt");
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_server_that_loads_its_data_is_no_master_yet() {
        bound_this_test();
        let server = Fake::start(|_| Some(info("a", "role:master\r\nloading:1\r\n"))).await;
        let error = Redis::new(&server.url())
            .expect("a valid URL")
            .link()
            .bounded()
            .await
            .map(drop)
            .expect_err("it is loading");
        assert_eq!(trouble(&error), "is loading its data");
    }

    #[tokio::test]
    async fn a_link_that_has_ended_refuses_queries_at_once() {
        bound_this_test();
        let server = Fake::master("a", answer).await;
        let link = server.link().await;
        link.line.end();
        let refused = [
            link.query::<Value>(&get()).bounded().await.map(drop),
            link.query_both(&pipeline()).bounded().await.map(drop),
        ];
        for refused in refused {
            assert!(refused.expect_err("the link has ended").is_io_error());
        }
        assert_eq!(server.commands("GET").len(), 0, "nothing is sent");
    }

    #[tokio::test]
    async fn late_replies_of_a_master_that_was_replaced_are_refused() {
        bound_this_test();
        for way in 0..3 {
            let server = Fake::master("a", answer).await;
            let redis = Redis::new(&server.url()).expect("a valid URL");
            let link = redis.link().bounded().await.expect("a master");
            server.hold(true);
            let asked = async {
                match way {
                    0 => link.query::<Value>(&get()).bounded().await.map(drop),
                    1 => link.query_both(&pipeline()).bounded().await.map(drop),
                    _ => redis.query_all::<Value>(&pipeline()).bounded().await.map(drop),
                }
            };
            let replaced = async {
                let is_asked = async || !server.commands("GET").is_empty();
                eventually("the server is asked", is_asked).await;
                link.line.replace();
                server.hold(false);
            };
            let (reply, ()) = tokio::join!(asked, replaced);
            let error = reply.expect_err("it may be lost").to_string();
            assert!(error.contains("another master of Redis has taken over"), "{way}: {error}");
        }
    }

    /// Of one command, of two, and of a pipeline.
    #[tokio::test]
    async fn a_refusal_of_an_unfit_server_ends_the_link_and_no_other_refusal_does() {
        bound_this_test();
        for (refusal, is_alive) in [
            ("-READONLY it is a replica\r\n", false),
            ("-WRONGTYPE it is a list\r\n", true),
            ("-ERR no such command\r\n", true),
        ] {
            for way in 0..3 {
                let server = Fake::master("a", |_| Some(refusal.to_owned())).await;
                let redis = Redis::new(&server.url()).expect("a valid URL");
                let link = redis.link().bounded().await.expect("a master");
                match way {
                    0 => assert!(link.query::<Value>(&get()).bounded().await.is_err()),
                    1 => {
                        let both =
                            link.query_both(&pipeline()).bounded().await.expect("two answers");
                        assert!(both.0.is_err() && both.1.is_err());
                    }
                    _ => {
                        let each = redis.query_each::<Value>(&mut pipeline()).bounded().await;
                        assert!(each.expect("two answers").iter().all(Result::is_err));
                    }
                }
                assert_eq!(link.is_alive(), is_alive, "{refusal} {way}");
            }
        }
    }

    #[tokio::test]
    async fn trouble_on_the_wire_is_noticed_and_ends_the_link() {
        bound_this_test();
        let server = Fake::master("a", answer).await;
        let kind = |kind: ErrorKind| RedisError::from((kind, "it says"));
        for (error, is_alive) in [
            (unreachable(), false),
            (io::Error::from(io::ErrorKind::TimedOut).into(), false),
            (kind(ErrorKind::Parse), false),
            (server_error(ServerErrorKind::ReadOnly), false),
            (server_error(ServerErrorKind::NoScript), true),
            (kind(ErrorKind::UnexpectedReturnType), true),
        ] {
            let link = server.link().await;
            link.notice(&error);
            assert_eq!(link.is_alive(), is_alive, "{error:?}");
        }
    }

    /// By the connection of the process, whatever has named the server.
    #[tokio::test]
    async fn a_new_server_behind_sentinels_is_told_with_a_setting_that_it_lacks() {
        bound_this_test();
        const NEW: &str = "Redis has been started anew, or another server answers";
        const LACKS: &str = "the master of Redis has min-replicas-to-write 0";
        for (needs_replicas, behind_sentinels, lacks) in
            [(false, true, 2), (true, true, 0), (false, false, 0)]
        {
            let lives = std::sync::atomic::AtomicUsize::new(0);
            let server = Fake::start(move |_| {
                let life = lives.fetch_add(1, std::sync::atomic::Ordering::SeqCst).to_string();
                let more = if needs_replicas { "min_slaves_good_slaves:1\r\n" } else { "" };
                Some(info(&life, &format!("role:master\r\nloading:0\r\n{more}")))
            })
            .await;
            let (host, port) = server
                .place()
                .split_once(':')
                .map(|(host, port)| (host.to_owned(), port.to_owned()))
                .expect("host and port");
            let named = format!("*2\r\n{}{}", bulk(&host), bulk(&port));
            let sentinel = Fake::start(move |_| Some(named.clone())).await;
            let places = [sentinel.place().parse().expect("host and port")];
            let timeout = Duration::from_secs(10);
            let redis = match behind_sentinels {
                true => Redis::behind_sentinels("redis://main", &places, "main", timeout),
                false => Redis::with_timeout(&server.url(), timeout),
            };
            let redis = redis.expect("a valid URL");
            let lines = LogLines::heard();
            for news in 0..2 {
                redis.link().bounded().await.expect("a master").line.end();
                redis.another().link().bounded().await.expect("a master").line.end();
                assert_eq!(lines.count(NEW), news, "{behind_sentinels}");
            }
            assert_eq!(lines.count(LACKS), lacks, "{needs_replicas} {behind_sentinels}");
        }
    }

    #[tokio::test]
    async fn the_master_is_followed_by_a_task_of_the_service() {
        bound_this_test();
        let master = Fake::master("a", answer).await;
        let (place, next) = (master.place(), std::sync::Mutex::new(1));
        let sentinel = Fake::start(move |command| {
            if command.starts_with("SUBSCRIBE") {
                return Some(fake::subscribed("+switch-master"));
            }
            // The first answer names the master, the later ones name another server.
            let mut left = next.lock().expect("no holder of this lock panics");
            let (host, port) = place.split_once(':').expect("host and port");
            let port = if *left > 0 { port } else { "1" };
            *left -= 1;
            Some(format!("*2\r\n{}{}", bulk(host), bulk(port)))
        })
        .await;
        let places = [sentinel.place().parse().expect("host and port")];
        let timeout = Duration::from_secs(10);
        let redis = Redis::behind_sentinels("redis://main", &places, "main", timeout);
        let redis = redis.expect("a valid URL");
        let link = redis.link().bounded().await.expect("a master");
        assert!(link.is_alive());
        let shutdown = Shutdown::default();
        redis.follow_master(&shutdown);
        eventually("the link ends", async || !link.is_alive()).await;
        assert!(link.refuse_late_reply().is_err());
        assert!(shutdown.stop(patience()).await, "the task ends with the service");
    }
}
