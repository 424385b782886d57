//! Connects to Redis, in one place.
//!
//! All commands share one multiplexed connection. When it breaks, the next command opens another one. No connection
//! reopens by itself, so no script can run on a new connection before its server has been identified. Two replies with
//! different [`ServerId`]s come from two runs of Redis. A fact about one run (a block of ids, a loaded script) need not
//! hold in the next.
//!
//! Only a master that has loaded its data is used. After a fail-over behind the same address, the old master may go on
//! as a replica: its first refusal ends the connection, and a new one is opened only when a master answers again.
//!
//! If Sentinel watches the master, each new connection asks the sentinels for its place (`sentinel.rs`); in a cluster,
//! it asks the nodes (`cluster.rs`). In a cluster, a [`Redis`] is the master of one lane's slot.
//!
//! If the [`Owner`] of the data is known, a connection to a server with another owner's data is refused.
//!
//! A command that timed out may have been executed. So an error here means *unknown*, never *no*.

// Facts about a Redis server: version, role and persistence.
pub mod facts;

// Rights of our user in Redis.
mod rights;

// The masters of a cluster.
mod cluster;

// The master behind Sentinel.
mod sentinel;

// The end of a connection.
mod line;

// URLs of Redis.
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

/// One run of a Redis server: its `run_id`, which changes with every start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerId(Arc<str>);

/// Marks the data of a server as ours: a field of a hash that has this value, or is still missing.
#[derive(Clone, Debug)]
pub struct Owner {
    pub key: String,
    pub field: &'static str,
    pub value: String,
}

/// What a server says about itself when a connection begins.
struct Identity {
    server: ServerId,
    /// Whether the server refuses writes while it has too few replicas.
    needs_replicas: bool,
}

/// A Redis server. The first command connects. Clones share the connection.
#[derive(Clone)]
pub struct Redis(Arc<Shared>);

struct Shared {
    place: Place,
    /// Whether this connection logs a new run of the server. Those that [`another`](Redis::another) makes don't.
    tells: bool,
    /// Required owner of the data; `None` if any is fine.
    owner: Option<Owner>,
    /// Time for the server to answer, and for a connection to be established.
    timeout: Duration,
    /// The connection in use, if any. Every command reads it, without a lock.
    link: ArcSwapOption<Link>,
    /// Lets one caller connect at a time, and remembers when and why the last attempt failed.
    connecting: Mutex<Option<(Instant, RedisError)>>,
}

#[derive(Clone)]
enum Place {
    Server(Arc<ArcSwap<Client>>),
    /// The master that sentinels name.
    Master(Arc<Sentinels>),
    /// The master of a slot that nodes of a cluster name.
    Slot(Arc<Cluster>, Slot),
}

/// A connection to an identified server.
pub struct Link {
    connection: MultiplexedConnection,
    identity: Identity,
    line: Arc<Line>,
    is_in_cluster: bool,
}

impl ServerId {
    pub fn named(run_id: &str) -> Self {
        Self(run_id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Redis {
    /// Names the server, with the default time-out [`limits::REDIS_TIMEOUT`]. The first command connects.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood.
    pub fn new(url: &str) -> RedisResult<Self> {
        Self::with_timeout(url, limits::REDIS_TIMEOUT)
    }

    /// Names the server, which has `timeout` to answer. The first command connects.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood.
    pub fn with_timeout(url: &str, timeout: Duration) -> RedisResult<Self> {
        let client = Arc::new(ArcSwap::from_pointee(Client::open(understood(url)?.server)?));
        Ok(Self::of(Place::Server(client), true, timeout))
    }

    /// Names the master of these sentinels. Each server has `timeout` to answer. The first command connects. The URL
    /// has the name of the master in place of host and port: `redis://user:password@master/0`.
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

    /// Names the master of the keys with this hash tag in a cluster. Each server has `timeout` to answer. The URL lists
    /// some nodes in place of a host: `redis+cluster://user:password@a:6379,b:6379`, or `rediss+cluster://`.
    ///
    /// # Errors
    ///
    /// When the URL can't be understood, or names a database other than 0.
    pub fn in_cluster(url: &str, tag: &str, timeout: Duration) -> RedisResult<Self> {
        let (url, nodes) = url::of_cluster(url)?;
        let cluster = Cluster::new(url, nodes, timeout)?;
        Ok(Self::of(Place::Slot(cluster, slot_of(tag)), true, timeout))
    }

    /// The master of the keys with another hash tag in the same cluster; `None` outside a cluster.
    pub fn of_tag(&self, tag: &str) -> Option<Self> {
        let Shared { place: Place::Slot(cluster, _), tells, timeout, .. } = &*self.0 else {
            return None;
        };
        let place = Place::Slot(cluster.clone(), slot_of(tag));
        Some(Self::of(place, *tells, *timeout))
    }

    /// Uses this URL for new connections. Open connections stay. Clones, and what was derived from them, use it, too.
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

    /// Starts the task that ends connections to a replaced master. Does nothing without sentinels and without a
    /// cluster.
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

    /// The same server over another connection, for replies that would hold up all other commands.
    #[must_use]
    pub fn another(&self) -> Self {
        let Shared { place, owner, timeout, .. } = &*self.0;
        Self::with_owner(place.clone(), owner.clone(), false, *timeout)
    }

    /// The same server, over connections that are refused if its data has another owner.
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

    pub fn has_sentinels(&self) -> bool {
        matches!(self.0.place, Place::Master(_))
    }

    pub fn is_in_cluster(&self) -> bool {
        matches!(self.0.place, Place::Slot(..))
    }

    pub fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// Returns the live connection; opens one if there is none.
    ///
    /// # Errors
    ///
    /// When no master can be reached within [`timeout`](Self::timeout). Each sentinel that is asked may take as long.
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

    /// Sends several commands in one round trip. Redis may run commands of other clients between them.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query); the other commands may have been executed.
    pub async fn query_all<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<Vec<T>> {
        self.query_each(commands).await?.into_iter().collect()
    }

    /// Sends several commands in one round trip. If one fails, its error is its own reply.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query), when no command got a reply.
    pub async fn query_each<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
    ) -> RedisResult<Vec<RedisResult<T>>> {
        let replies = self.link().await?.query_each(commands).await?;
        Ok(replies.into_iter().map(|reply| reply.and_then(read)).collect())
    }

    /// Checks that the server is still a master that has its data, and that the data is ours. Otherwise the connection
    /// ends.
    ///
    /// # Errors
    ///
    /// When the server isn't such a master, or doesn't answer: [`trouble`] names the fault in words.
    pub async fn check(&self) -> RedisResult<()> {
        let link = self.link().await?;
        let owner = self.0.owner.as_ref();
        let identified = identify(&mut link.connection.clone(), owner).await.map(drop);
        identified.inspect_err(|error| link.notice(error))
    }

    /// A separate connection for subscriptions, and the run of its server. `heard` gets every published message, and
    /// the end of the connection.
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

    /// A separate connection to whatever server has this address, even an unusable one, to read facts about it.
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
        // All callers that queued behind a failed attempt get its error, instead of an attempt each.
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

/// For pipelines, and for libraries that take a connection: commands go over the live link, which a refusal may end.
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
    /// The run of the server that this connection leads to.
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

    /// Sends several commands in one round trip. If one fails, its error is its own reply.
    ///
    /// # Errors
    ///
    /// As [`Redis::query`], when no command got a reply.
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

    /// Sends commands. Skips the first `offset` replies, and returns the next `count`.
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

    /// Fails at once if a command on this link has timed out. A caller that queued behind that command (for a block of
    /// ids, for example) then doesn't wait for its own time-out.
    fn check(&self) -> RedisResult<()> {
        if self.is_alive() {
            return Ok(());
        }
        Err(unreachable())
    }

    fn is_alive(&self) -> bool {
        self.line.is_alive()
    }

    /// Fails once another master has taken over: the data behind the reply may be gone, so the outcome is unknown.
    fn refuse_late_reply(&self) -> RedisResult<()> {
        if self.line.is_replaced() { Err(sentinel::replaced()) } else { Ok(()) }
    }

    /// Ends the connection after a fault of the network, so that the next command gets a new one. Time-outs count, too:
    /// a connection whose peer has silently gone away would time out for ever. Commands under way on the old connection
    /// still get their replies.
    fn notice(&self, error: &RedisError) {
        let is_unfit = is_unfit_server(error) || is_foreign(error);
        if error.is_io_error() || error.is_unrecoverable_error() || is_unfit {
            self.line.end();
        }
    }
}

/// Converts a reply. An unexpected type says nothing about the connection, which stays in use.
fn read<T: FromRedisValue>(reply: Value) -> RedisResult<T> {
    Ok(redis::from_redis_value(reply)?)
}

/// Whether the *data* is at fault: a key of the wrong type, a value that can't be read, or a script that fails on
/// either. The server answers, and other keys can be used. Any other failure (an outage, full memory, a replica)
/// affects all keys.
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

/// Redis has no error code of its own for a failing script or for a field that isn't a number. The texts are those of
/// Redis 7 and Valkey.
fn is_data_reply(code: &str, details: Option<&str>) -> bool {
    let says = |text| details.is_some_and(|details| details.contains(text));
    match code {
        "WRONGTYPE" => true,
        "ERR" => says("user_script") || says("is not an integer") || says("is not a valid float"),
        _ => false,
    }
}

/// Why a server can't be used, as words that follow its name.
pub fn trouble(error: &RedisError) -> &'static str {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::ReadOnly) => "is a replica, which takes no writes",
        ErrorKind::Server(ServerErrorKind::BusyLoading) => "is loading its data",
        FOREIGN => "holds the data of another installation",
        _ => "can't be reached",
    }
}

/// Our error about another owner of the data. The driver uses this kind for URLs that can't be understood, and the URL
/// of a [`Redis`] has been understood.
const FOREIGN: ErrorKind = ErrorKind::InvalidClientConfig;

pub fn is_foreign(error: &RedisError) -> bool {
    error.kind() == FOREIGN
}

/// Whether the server is the wrong one or isn't ready, so that a new connection may lead elsewhere.
fn is_unfit_server(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    let unfit = [ReadOnly, MasterDown, BusyLoading, ClusterDown, Moved, Ask, TryAgain];
    matches!(error.kind(), ErrorKind::Server(kind) if unfit.contains(&kind))
}

/// Connects to the master behind the client.
async fn identified(
    client: &Client,
    config: &AsyncConnectionConfig,
    owner: Option<&Owner>,
) -> RedisResult<(MultiplexedConnection, Identity)> {
    let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
    let identity = identify(&mut connection, owner).await?;
    Ok((connection, identity))
}

/// Checks that the server is a master, and reads its run. Refuses a server whose data has another owner.
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
        // A key of another type names no owner.
        Err(error) if !is_data_error(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Asks the server for its role, with the command that each connection begins with. So our user needs no further right
/// in Redis.
///
/// # Errors
///
/// When the server isn't a master that has its data, or doesn't answer.
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
