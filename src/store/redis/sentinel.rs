//! The master of a Redis that Sentinel watches.
//!
//! # Model
//!
//! Several sentinels watch a master and its replicas. When a majority agrees that the master is down, they promote a
//! replica, and from then on name that one. Each new connection asks a sentinel for the master, and
//! [`Sentinels::follow`] asks once a second. After a sentinel that doesn't answer, or whose master can't be used, the
//! next one in the list is asked.
//!
//! # Authority
//!
//! Every connection of the process leads to the master that the sentinels name. When they name another one, all
//! connections to other servers end within a second, and later replies over those connections are rejected. What a
//! sentinel says is no proof: the server itself has to confirm that it is a master.
//!
//! # What each failure does
//!
//! * A sentinel dies or hangs: the next one is asked, after a time-out at most. All sentinels are down: open
//!   connections stay in use, and no new one can be opened.
//! * A master is replaced while it is paused or cut off: when it resumes, it executes the commands that have waited in
//!   its sockets, whatever its settings. Their replies come too late.
//! * A sentinel is cut off together with the old master and this process: the process goes on with the old master, and
//!   no client can know better. So the master has to refuse writes once it has lost its replicas:
//!   `min-replicas-to-write`.
//!
//! # What is not promised
//!
//! The sentinels name another master after `down-after-milliseconds` at the earliest. What the old master accepted and
//! didn't replicate is lost with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult};
use tokio::time::sleep;

use super::line::{self, Line};
use super::url::Url;
use crate::base::host_port::HostPort;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;

pub(super) struct Sentinels {
    /// Name of the master in the sentinels' configuration.
    master: String,
    /// The way to the master (user, password, database, TLS; the place is filled in), and the login for the sentinels.
    url: ArcSwap<Url>,
    nodes: Vec<HostPort>,
    /// How often a sentinel was given up for the next one.
    left: AtomicUsize,
    /// Time for each sentinel to answer.
    timeout: Duration,
    /// Open connections to masters.
    open: Mutex<Vec<(HostPort, Weak<Line>)>>,
}

impl Sentinels {
    /// Names the sentinels, and connects to none. They are reached with TLS if the master is, but with their own
    /// password.
    ///
    /// # Errors
    ///
    /// When `url` names a port or a Unix socket: it has the master's name in place of a host.
    pub fn new(url: Url, nodes: &[HostPort], timeout: Duration) -> RedisResult<Self> {
        let master = match url.server.addr() {
            ConnectionAddr::Tcp(host, NO_PORT)
            | ConnectionAddr::TcpTls { host, port: NO_PORT, .. } => host.clone(),
            _ => {
                let what = "the URL has to name the master in place of a host, and no port";
                return Err((ErrorKind::InvalidClientConfig, what).into());
            }
        };
        let (left, open) = Default::default();
        let (url, nodes) = (ArcSwap::from_pointee(url), nodes.to_vec());
        Ok(Self { master, url, nodes, left, timeout, open })
    }

    /// Uses this URL for new connections.
    pub fn change_url(&self, url: Url) {
        self.url.store(url.into());
    }

    /// Asks the sentinels for the master, beginning with the one that answered last.
    ///
    /// # Errors
    ///
    /// When no sentinel names it; the error has the reason of each.
    pub async fn ask(&self) -> RedisResult<HostPort> {
        let mut reasons = Vec::new();
        for _ in 0..self.nodes.len() {
            let left = self.left.load(Ordering::Relaxed);
            let node = &self.nodes[left % self.nodes.len()];
            match self.ask_one(node).await {
                Ok(place) => return Ok(place),
                Err(error) => reasons.push(format!("{node}: {error}")),
            }
            // Unless another caller has moved on meanwhile.
            let relaxed = Ordering::Relaxed;
            let _ = self.left.compare_exchange(left, left.wrapping_add(1), relaxed, relaxed);
        }
        let what = "no sentinel names the master";
        Err((ErrorKind::Io, what, reasons.join("; ")).into())
    }

    async fn ask_one(&self, sentinel: &HostPort) -> RedisResult<HostPort> {
        let url = self.url.load_full();
        let info = at(&url.server, sentinel).set_redis_settings(url.at_sentinels.clone());
        let config = line::config(self.timeout);
        let client = Client::open(info)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(&self.master);
        let named: Option<(String, u16)> = command.query_async(&mut connection).await?;
        let Some((host, port)) = named else {
            let what = "there is no master of that name";
            return Err((ErrorKind::Client, what, self.master.clone()).into());
        };
        Ok(HostPort { host, port })
    }

    /// A client for the server that a sentinel named.
    ///
    /// # Errors
    ///
    /// When the place can't be understood.
    pub fn client(&self, place: &HostPort) -> RedisResult<Client> {
        Client::open(at(&self.url.load().server, place))
    }

    /// Registers a connection that is about to be opened. It ends when another master takes over.
    pub fn enter(&self, place: HostPort, line: &Arc<Line>) {
        let mut open = self.open();
        open.retain(|(_, line)| line.strong_count() > 0);
        open.push((place, Arc::downgrade(line)));
    }

    /// Asks the next sentinel first from now on, because the server that this one named can't be used.
    pub fn doubt(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends connections to replaced masters. Never returns.
    pub async fn follow(&self) {
        let mut throttle = LogThrottle::default();
        loop {
            match self.ask().await {
                Ok(master) => self.end_all_but(&master),
                Err(error) if throttle.allows() => tracing::warn!(%error, "no sentinel answers"),
                Err(_) => {}
            }
            sleep(limits::SENTINEL_PERIOD).await;
        }
    }

    fn end_all_but(&self, master: &HostPort) {
        let mut open = std::mem::take(&mut *self.open());
        open.retain(|(place, line)| match line.upgrade() {
            Some(line) if place != master => {
                line.replace();
                let master = master.to_string();
                tracing::warn!(master, "the sentinels name another master of Redis; a connection to the last one has ended");
                false
            }
            line => line.is_some(),
        });
        self.open().append(&mut open);
    }

    fn open(&self) -> MutexGuard<'_, Vec<(HostPort, Weak<Line>)>> {
        self.open.lock().expect("no holder of this lock panics")
    }

    pub fn database(&self) -> i64 {
        self.url.load().server.redis_settings().db()
    }

    pub fn address(&self) -> String {
        let places: Vec<_> = self.nodes.iter().map(HostPort::to_string).collect();
        format!("the master {} of the sentinels {}", self.master, places.join(", "))
    }
}

/// Default port of Redis, which the driver fills in for a URL without one.
const NO_PORT: u16 = 6379;

/// The same settings for another place.
pub(super) fn at(info: &ConnectionInfo, place: &HostPort) -> ConnectionInfo {
    let HostPort { host, port } = place.clone();
    let addr = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

pub(super) fn replaced() -> RedisError {
    RedisError::from((ErrorKind::Io, "another master of Redis has taken over"))
}

#[cfg(test)]
mod tests {
    use super::super::url::understood;
    use super::*;

    #[test]
    fn a_url_has_the_name_of_the_master_in_place_of_a_host_and_no_port() {
        let sentinel: HostPort = "a:1".parse().expect("host and port");
        let named = |url| {
            let url = understood(url).expect("a valid URL");
            Sentinels::new(url, std::slice::from_ref(&sentinel), Duration::from_secs(5))
        };
        let sentinels = named("redis://user:secret@main/7").expect("it is one");
        assert_eq!(sentinels.address(), "the master main of the sentinels a:1");
        assert_eq!(sentinels.database(), 7);
        let client = sentinels.client(&sentinel).expect("a place");
        let info = client.get_connection_info();
        let settings = info.redis_settings();
        assert_eq!((info.addr().to_string().as_str(), settings.db()), ("a:1", 7));
        assert_eq!((settings.username(), settings.password()), (Some("user"), Some("secret")));
        for wrong in ["redis://main:6380/0", "redis+unix:///run/redis.sock"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }
}
