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
//! Where Sentinel watches the master, each new connection asks the sentinels for its place (`sentinel.rs`); in a cluster, the
//! nodes (`cluster.rs`). There a [`Redis`] is the master of the slot of one lane.
//!
//! Where the [`Owner`] of the data is known, a connection to a server with another owner's data is refused.
//!
//! A command that timed out may have been executed. Errors here therefore mean *unknown*, never *no*.

// Facts about a Redis server: version, role and persistence.
pub mod facts;

// Rights in Redis.
mod rights;

// The masters of a cluster.
mod cluster;

// The master of a Redis that Sentinel watches.
mod sentinel;

// The end of a connection, as its users learn of it.
mod line;

// URLs.
mod url;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, InfoDict, Pipeline, RedisError,
    RedisFuture, RedisResult, ServerErrorKind, Value,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use self::cluster::{Cluster, Slot, slot_of};
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
    /// The address that nodes of a cluster name for a slot.
    Slot(Arc<Cluster>, Slot),
}

/// A live connection to an identified server.
pub struct Link {
    connection: MultiplexedConnection,
    identity: Identity,
    line: Arc<Line>,
    is_in_cluster: bool,
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

    /// Names the master of these sentinels. Each server has `timeout` to answer; the first command connects. The URL has
    /// the name of the master in place of host and port: `redis://user:password@master/0`.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood, or has a port.
    pub fn behind_sentinels(
        url: &str,
        sentinels: &[HostPort],
        timeout: Duration,
    ) -> RedisResult<Self> {
        let sentinels = Sentinels::new(understood(url)?, sentinels, timeout)?;
        Ok(Self::of(Place::Master(Arc::new(sentinels)), true, timeout))
    }

    /// Names the master of the keys with this hash tag in a cluster. Each server has `timeout` to answer. The URL has some nodes in place of a
    /// host: `redis+cluster://user:password@a:6379,b:6379`, or `rediss+cluster://`.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood, or names another database than 0.
    pub fn in_cluster(url: &str, tag: &str, timeout: Duration) -> RedisResult<Self> {
        let (url, nodes) = url::of_cluster(url)?;
        let cluster = Cluster::new(url, nodes, timeout)?;
        Ok(Self::of(Place::Slot(cluster, slot_of(tag)), true, timeout))
    }

    /// The master of the keys with another hash tag in the same cluster; `None` for a server that is in none.
    pub fn of_tag(&self, tag: &str) -> Option<Self> {
        let Shared { place: Place::Slot(cluster, _), tells, timeout, .. } = &*self.0 else {
            return None;
        };
        let place = Place::Slot(cluster.clone(), slot_of(tag));
        Some(Self::of(place, *tells, *timeout))
    }

    /// Uses this URL for each new connection; those that are open stay. Clones, and what was made of them, follow.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood.
    pub fn change_url(&self, url: &str) -> RedisResult<()> {
        match &self.0.place {
            Place::Server(client) => client.store(Client::open(understood(url)?.server)?.into()),
            Place::Master(sentinels) => sentinels.change_url(understood(url)?),
            Place::Slot(cluster, _) => cluster.change_url(url::of_cluster(url)?.0),
        }
        Ok(())
    }

    /// Starts the task that ends connections to a master that has been replaced; none where neither sentinels nor a cluster
    /// tell of that.
    pub fn follow_master(&self, shutdown: &Shutdown) {
        if let Place::Slot(cluster, _) = &self.0.place {
            cluster.follow(shutdown);
        }
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

    /// Whether the server is a master of a cluster.
    pub fn is_in_cluster(&self) -> bool {
        matches!(self.0.place, Place::Slot(..))
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
        self.query_each(commands).await?.into_iter().collect()
    }

    /// Runs several commands in one round trip, each for itself: the error of one is its own answer.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query), when there is no answer to any.
    pub async fn query_each<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
    ) -> RedisResult<Vec<RedisResult<T>>> {
        let replies = self.link().await?.query_each(commands).await?;
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
            Place::Slot(cluster, slot) => cluster.client(&cluster.master_of(*slot).await?)?,
        };
        let config = line::config(self.0.timeout);
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Place of the server, without user and password: `host:6379, database 0`, or the path of a socket.
    pub fn address(&self) -> String {
        let place = match &self.0.place {
            Place::Server(client) => client.load().get_connection_info().addr().to_string(),
            Place::Master(sentinels) => sentinels.address(),
            Place::Slot(cluster, slot) => format!("slot {slot} of {}", cluster.address()),
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
        Ok(Link { connection, identity, line, is_in_cluster: self.is_in_cluster() })
    }

    /// A connection to a server that has been identified.
    async fn open(&self, line: &Arc<Line>) -> RedisResult<(MultiplexedConnection, Identity)> {
        let config = line::config(self.0.timeout).set_push_sender(line.clone());
        let owner = self.0.owner.as_ref();
        match &self.0.place {
            Place::Server(client) => identified(&client.load_full(), &config, owner).await,
            Place::Master(sentinels) => {
                let place = sentinels.ask().await?;
                let client = sentinels.client(&place)?;
                sentinels.enter(place, line);
                let opened = identified(&client, &config, owner).await;
                opened.inspect_err(|_| sentinels.doubt())
            }
            Place::Slot(cluster, slot) => {
                let place = cluster.master_of(*slot).await?;
                let client = cluster.client(&place)?;
                cluster.enter(*slot, place, line);
                identified(&client, &config, owner).await
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
        Box::pin(async move { self.link().await?.send(commands, offset, count).await })
    }

    fn get_db(&self) -> i64 {
        match &self.0.place {
            Place::Server(client) => client.load().get_connection_info().redis_settings().db(),
            Place::Master(sentinels) => sentinels.database(),
            Place::Slot(..) => 0,
        }
    }
}

impl Link {
    /// The life of the server that this connection leads to.
    pub fn server(&self) -> &ServerId {
        &self.identity.server
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

    /// Runs several commands in one round trip, each for itself: the error of one is its own answer.
    ///
    /// # Errors
    ///
    /// As [`Redis::query`], when there is no answer to any.
    pub async fn query_each(&self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let replies = self.send(commands, 0, commands.len()).await?;
        let each = replies.into_iter().map(|reply| match reply {
            Value::ServerError(error) => Err(error.into()),
            reply => Ok(reply),
        });
        Ok(each.collect())
    }

    /// Sends commands, and returns so many of their replies behind the first `offset` ones.
    async fn send(
        &self,
        commands: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.check()?;
        let mut connection = self.connection.clone();
        let replies = connection.req_packed_commands(commands, offset, count).await;
        let replies = replies.inspect_err(|error| self.notice(error))?;
        self.refuse_late_reply()?;
        for reply in &replies {
            if let Value::ServerError(error) = reply {
                self.notice(&error.clone().into());
            }
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
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    let unfit = [ReadOnly, MasterDown, BusyLoading, ClusterDown, Moved, Ask, TryAgain];
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
    Ok(Identity {
        server: ServerId(run_id.into()),
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
    use super::*;

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
            let error = RedisError::from((ErrorKind::Server(kind), "it says"));
            assert_eq!((is_unfit_server(&error), trouble(&error)), (is_unfit, words), "{kind:?}");
        }
    }

    #[test]
    fn replies_about_the_data_are_known_by_their_code_and_words() {
        for (code, words, is_of_data) in [
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
        let redis = Redis::new("redis://user:secret@host:6380/7").expect("a valid URL");
        assert_eq!(redis.another().address(), "host:6380, database 7");
    }
}
