//! The master of a Redis that Sentinel watches.
//!
//! # Model
//!
//! Several sentinels watch a master and its replicas. When most of them agree that the master is away, they promote a
//! replica, and from then on name that one. One of them is the *current* sentinel of this process. Each new connection
//! asks it where the master is; [`Sentinels::follow`] listens to it for `+switch-master`. A sentinel that doesn't answer,
//! or whose master can't be used, hands over to the next one in the list.
//!
//! # Authority
//!
//! Every connection of the process leads to the master that its current sentinel names. When the name changes, or another
//! sentinel becomes the current one and names another master, all connections to other servers end at once, and
//! replies that come over them later count for nothing. A connection that is opened at that moment compares the
//! count of changes.
//!
//! A sentinel's word is no proof: the server itself has to say that it is a master. So an older word leads to a failed
//! attempt, and the next attempt asks again.
//!
//! # What each failure does
//!
//! * A sentinel dies or hangs: the next one is asked, within the time-out of a connection. All are away: connections that
//!   are open stay in use, and no new one can be opened.
//! * A master is replaced while it is paused or cut off: connections to it end with the message. When it goes on, it
//!   carries out the commands that have waited in its sockets, whatever its settings; their replies come too late. A
//!   process that cannot hear the message goes on until a command fails: a paused server times out, and a server that
//!   has become a replica refuses writes.
//! * A sentinel is cut off together with the old master and this process: the process goes on with the old master, and no
//!   client can know better. So the master has to refuse writes once it has lost its replicas: `min-replicas-to-write`.
//!
//! # What is not promised
//!
//! The message comes when the sentinels have agreed, after `down-after-milliseconds` at least. What the old master had
//! accepted and not replicated by then is lost with it.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::line::{self, Line};
use super::url::Url;
use crate::base::host_port::HostPort;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;

/// Channel on which a sentinel tells of a new master.
const SWITCH: &str = "+switch-master";

/// The sentinels of one master.
pub(super) struct Sentinels {
    /// Name of the master at the sentinels.
    master: String,
    /// A connection to the master, but for its place: user, password, database, TLS. And those at the sentinels.
    url: ArcSwap<Url>,
    nodes: Vec<HostPort>,
    /// Index of the current sentinel.
    current: watch::Sender<usize>,
    /// Time in which a sentinel has to answer.
    timeout: Duration,
    lines: Mutex<Lines>,
}

/// Connections to masters.
#[derive(Default)]
struct Lines {
    /// The master that the current sentinel named last, if a task listens.
    named: Option<HostPort>,
    /// Number of times that the task has learned of a master.
    changes: u64,
    open: Vec<(HostPort, Weak<Line>)>,
}

/// The word of a sentinel.
pub(super) struct Word {
    /// Index of the sentinel.
    by: usize,
    /// The master.
    place: HostPort,
    /// Number of changes when the sentinel was asked.
    changes: u64,
}

impl Sentinels {
    /// Names the sentinels; asks none. They are reached as the master is, with TLS or without, but with a password of their own.
    ///
    /// # Errors
    ///
    /// When `url` names another server than `master`, or a Unix socket.
    pub fn new(
        url: Url,
        places: &[HostPort],
        master: &str,
        timeout: Duration,
    ) -> RedisResult<Self> {
        let is_master = match url.server.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                host == master && *port == NO_PORT
            }
            _ => false,
        };
        if !is_master || places.is_empty() {
            let what = "the URL has to name the master in place of a host, and no port";
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, what)));
        }
        let (current, lines) = (watch::Sender::new(0), Mutex::default());
        let (master, nodes) = (master.to_owned(), places.to_vec());
        Ok(Self { master, url: ArcSwap::from_pointee(url), nodes, current, timeout, lines })
    }

    /// Uses this URL for each new connection.
    pub fn change_url(&self, url: Url) {
        self.url.store(url.into());
    }

    fn sentinel(&self, place: &HostPort) -> RedisResult<Client> {
        let url = self.url.load();
        Client::open(at(&url.server, place).set_redis_settings(url.at_sentinels.clone()))
    }

    /// Asks the sentinels for the master, the current one first.
    ///
    /// # Errors
    ///
    /// When none of them names it; the error has the reason of each.
    pub async fn ask(&self) -> RedisResult<Word> {
        let changes = self.lines().changes;
        let mut reasons = Vec::new();
        let first = *self.current.borrow();
        for by in (first..first + self.nodes.len()).map(|at| at % self.nodes.len()) {
            match self.ask_one(&self.nodes[by]).await {
                Ok(place) => return Ok(Word { by, place, changes }),
                Err(error) => {
                    reasons.push(format!("{}: {error}", self.nodes[by]));
                    self.leave(by);
                }
            }
        }
        let what = "no sentinel names the master";
        Err(RedisError::from((ErrorKind::Io, what, reasons.join("; "))))
    }

    async fn ask_one(&self, sentinel: &HostPort) -> RedisResult<HostPort> {
        let config = line::config(self.timeout);
        let client = self.sentinel(sentinel)?;
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        self.ask_on(&mut opened?).await
    }

    async fn ask_on(&self, connection: &mut MultiplexedConnection) -> RedisResult<HostPort> {
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(&self.master);
        let named: Option<(String, u16)> = command.query_async(connection).await?;
        let Some((host, port)) = named else {
            let what = "there is no master of that name";
            return Err(RedisError::from((ErrorKind::Client, what, self.master.clone())));
        };
        Ok(HostPort { host, port })
    }

    /// The server that the sentinel has named.
    ///
    /// # Errors
    ///
    /// When the place can't be understood.
    pub fn client(&self, word: &Word) -> RedisResult<Client> {
        Client::open(at(&self.url.load().server, &word.place))
    }

    /// Enters a connection that is about to be opened, to be ended when another master takes over.
    ///
    /// # Errors
    ///
    /// When another master has taken over since the sentinel was asked.
    pub fn enter(&self, word: &Word, line: &Arc<Line>) -> RedisResult<()> {
        let mut lines = self.lines();
        if lines.changes != word.changes && lines.named.as_ref() != Some(&word.place) {
            return Err(replaced());
        }
        lines.open.retain(|(_, line)| line.strong_count() > 0);
        lines.open.push((word.place.clone(), Arc::downgrade(line)));
        Ok(())
    }

    /// Lets the next sentinel be the current one, because the server that this one has named can't be used.
    pub fn doubt(&self, word: &Word) {
        self.leave(word.by);
    }

    fn leave(&self, by: usize) {
        let next = (by + 1) % self.nodes.len();
        self.current.send_if_modified(|current| {
            let is_current = *current == by;
            if is_current {
                *current = next;
            }
            is_current
        });
    }

    /// Listens to the current sentinel, and ends connections to masters that have been replaced. Never returns.
    pub async fn follow(&self) {
        let mut throttle = LogThrottle::default();
        loop {
            let by = *self.current.borrow();
            if let Err(error) = self.listen(by).await {
                if throttle.allows() {
                    let sentinel = self.nodes[by].to_string();
                    tracing::warn!(%error, sentinel, "the sentinel can't be listened to; trying the next one");
                }
                self.leave(by);
                sleep(limits::REDIS_RECONNECT_PAUSE).await;
            }
        }
    }

    /// Returns when another sentinel is the current one. Each message makes the sentinel be asked; so does the beginning,
    /// since messages may have been missed, and the end of each period, which shows that the sentinel lives.
    async fn listen(&self, by: usize) -> RedisResult<()> {
        let (heard, mut messages) = mpsc::unbounded_channel();
        let config = line::config(self.timeout).set_push_sender(heard);
        let client = self.sentinel(&self.nodes[by])?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(SWITCH).await?;
        let mut current = self.current.subscribe();
        let mut known = None;
        while *current.borrow_and_update() == by {
            let place = self.ask_on(&mut connection).await?;
            if known.as_ref() != Some(&place) {
                self.learn(&place);
                known = Some(place);
            }
            tokio::select! {
                () = sleep(limits::SENTINEL_PERIOD) => {}
                _ = current.changed() => {}
                _ = messages.recv() => {}
            }
        }
        Ok(())
    }

    /// Ends all connections to other servers than this one.
    fn learn(&self, master: &HostPort) {
        let mut lines = self.lines();
        let before = lines.named.replace(master.clone());
        lines.changes += 1;
        let mut others = lines.open.clone();
        drop(lines);
        others.retain(|(place, _)| place != master);
        others.iter().filter_map(|(_, line)| line.upgrade()).for_each(|line| line.replace());
        if before.is_some_and(|before| before != *master) {
            tracing::warn!(
                master = master.to_string(),
                "the sentinels name another master of Redis; the connections to the last one have ended"
            );
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().expect("no holder of this lock panics")
    }

    /// Database of the master's connections.
    pub fn database(&self) -> i64 {
        self.url.load().server.redis_settings().db()
    }

    /// Name of the master, and the places of the sentinels.
    pub fn address(&self) -> String {
        let places: Vec<_> = self.nodes.iter().map(HostPort::to_string).collect();
        format!("the master {} of the sentinels {}", self.master, places.join(", "))
    }
}

/// Port of a URL without one.
const NO_PORT: u16 = 6379;

/// The same connection to another place.
fn at(info: &ConnectionInfo, place: &HostPort) -> ConnectionInfo {
    let HostPort { host, port } = place.clone();
    let addr = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

/// The error of a connection whose master has been replaced.
pub(super) fn replaced() -> RedisError {
    RedisError::from((ErrorKind::Io, "another master of Redis has taken over"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU16, Ordering};

    use private_servers::testing::{Bounded, LogLines, bound_this_test, eventually, tries};
    use tokio::task::JoinSet;
    use tokio::time::Instant;

    use super::super::fake::{Fake, bulk, subscribed};
    use super::super::url::understood;
    use super::*;

    fn place(text: &str) -> HostPort {
        text.parse().expect("host and port")
    }

    fn named(url: &str, places: &[&str]) -> RedisResult<Sentinels> {
        let places: Vec<HostPort> = places.iter().map(|text| place(text)).collect();
        let url = understood(url).expect("a valid URL");
        Sentinels::new(url, &places, "main", Duration::from_secs(5))
    }

    fn sentinels(places: &[&str]) -> Sentinels {
        named("redis://user:secret@main/7", places).expect("a master and sentinels")
    }

    fn word(by: usize, master: &str, changes: u64) -> Word {
        Word { by, place: place(master), changes }
    }

    #[test]
    fn a_url_names_the_master_in_place_of_a_host_and_no_port() {
        for (url, places, is_valid) in [
            ("redis://main/0", &["a:1"][..], true),
            ("rediss://main/0", &["a:1"], true),
            ("redis://user:secret@main", &["a:1", "b:2"], true),
            ("redis://main/0", &[], false),
            ("redis://other/0", &["a:1"], false),
            ("redis://main:6380/0", &["a:1"], false),
            ("redis+unix:///main", &["a:1"], false),
        ] {
            assert_eq!(named(url, places).is_ok(), is_valid, "{url} {places:?}");
        }
        let sentinels = sentinels(&["a:1", "b:2"]);
        assert_eq!(sentinels.address(), "the master main of the sentinels a:1, b:2");
        assert_eq!(sentinels.database(), 7);
    }

    #[test]
    fn a_master_is_reached_as_the_url_says_at_the_place_that_is_named() {
        for (url, is_tls) in [("redis://main/7", false), ("rediss://main/7", true)] {
            let sentinels = named(url, &["a:1"]).expect("a master and a sentinel");
            let client = sentinels.client(&word(0, "m:6390", 0)).expect("a valid place");
            let (host, port, tls) = match client.get_connection_info().addr() {
                ConnectionAddr::Tcp(host, port) => (host, port, false),
                ConnectionAddr::TcpTls { host, port, .. } => (host, port, true),
                other => panic!("{other}"),
            };
            assert_eq!((host.as_str(), *port, tls), ("m", 6_390, is_tls));
            assert_eq!(client.get_connection_info().redis_settings().db(), 7);
        }
    }

    #[test]
    fn the_next_sentinel_takes_the_place_of_the_current_one_and_of_no_other() {
        let sentinels = sentinels(&["a:1", "b:2", "c:3"]);
        for (doubted, current) in [(1, 0), (2, 0), (0, 1), (0, 1), (1, 2), (2, 0)] {
            sentinels.doubt(&word(doubted, "m:1", 0));
            assert_eq!(*sentinels.current.borrow(), current, "after {doubted}");
        }
    }

    #[test]
    fn connections_end_when_their_master_is_replaced_and_only_then() {
        let sentinels = sentinels(&["a:1"]);
        let lines = [(); 3].map(|()| Arc::new(Line::for_commands()));
        let enter = |line: usize, master: &str, changes| {
            sentinels.enter(&word(0, master, changes), &lines[line]).is_ok()
        };
        assert!(enter(0, "m:1", 0), "nothing has been learned yet");
        sentinels.learn(&place("m:1"));
        assert!(enter(1, "m:1", 0), "an older word names the same master");
        assert!(lines.iter().all(|line| line.is_alive()));
        sentinels.learn(&place("n:1"));
        let replaced = lines.each_ref().map(|line| (line.is_alive(), line.is_replaced()));
        assert_eq!(replaced, [(false, true), (false, true), (true, false)]);
        assert!(!enter(2, "m:1", 1), "another master has taken over since the question");
        assert!(enter(2, "n:1", 2));
        sentinels.learn(&place("n:1"));
        assert!(lines[2].is_alive());
        assert!(enter(2, "m:1", 3), "the sentinel was asked after the last change");
    }

    #[test]
    fn connections_that_have_gone_are_forgotten() {
        let sentinels = sentinels(&["a:1"]);
        let kept = Arc::new(Line::for_commands());
        for line in [kept.clone(), Arc::new(Line::for_commands())] {
            sentinels.enter(&word(0, "m:1", 0), &line).expect("nothing has changed");
        }
        let new = Arc::new(Line::for_commands());
        sentinels.enter(&word(0, "m:1", 0), &new).expect("nothing has changed");
        assert_eq!(sentinels.lines().open.len(), 2, "one has gone");
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    /// Each sentinel that does not answer hands over to the next one.
    #[tokio::test]
    async fn without_an_answer_the_reason_of_each_sentinel_is_told() {
        bound_this_test();
        let closed = [(); 2].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            listener.local_addr().expect("it is bound").to_string()
        });
        let sentinels = sentinels(&closed.each_ref().map(String::as_str));
        let current = sentinels.current.subscribe();
        let error =
            sentinels.ask().bounded().await.err().expect("the ports are closed").to_string();
        assert!(closed.iter().all(|place| error.contains(place)), "{error}");
        assert!(current.has_changed().expect("the sentinels are there"));
    }

    /// A sentinel that names the host `m` with this port.
    async fn sentinel(port: &Arc<AtomicU16>) -> Fake {
        let port = port.clone();
        Fake::start(move |command| match command.starts_with("SUBSCRIBE") {
            true => Some(subscribed(SWITCH)),
            false => {
                let port = port.load(Ordering::SeqCst).to_string();
                Some(format!("*2\r\n{}{}", bulk("m"), bulk(&port)))
            }
        })
        .await
    }

    /// Follows the master, until the set is dropped.
    fn following(sentinels: &Arc<Sentinels>) -> JoinSet<()> {
        let (sentinels, mut tasks) = (sentinels.clone(), JoinSet::new());
        tasks.spawn(async move { sentinels.follow().await });
        tasks
    }

    async fn learned(sentinels: &Sentinels, port: u16) {
        let master = place(&format!("m:{port}"));
        let is_known = async || sentinels.lines().named.as_ref() == Some(&master);
        eventually("the master is known", is_known).await;
    }

    /// By a message, by the end of a period, and once another sentinel is the current one.
    #[tokio::test]
    async fn another_master_is_learned_by_each_message_and_in_each_period() {
        bound_this_test();
        let port = Arc::new(AtomicU16::new(1));
        let sentinel = sentinel(&port).await;
        let sentinels = Arc::new(sentinels(&[&sentinel.place()]));
        let _tasks = following(&sentinels);
        learned(&sentinels, 1).await;
        let mut last = 1;
        for _ in tries() {
            let began = Instant::now();
            for _ in 0..5 {
                last += 1;
                port.store(last, Ordering::SeqCst);
                sentinel.publish(SWITCH);
                learned(&sentinels, last).await;
            }
            // Without messages, each would have to wait for the end of a period.
            if began.elapsed() < 2 * limits::SENTINEL_PERIOD {
                break;
            }
        }
        let asked = sentinel.commands("SENTINEL").len();
        port.store(last + 1, Ordering::SeqCst);
        tokio::time::pause();
        tokio::time::advance(limits::SENTINEL_PERIOD).await;
        tokio::time::resume();
        learned(&sentinels, last + 1).await;
        assert!(sentinel.commands("SENTINEL").len() > asked);
    }

    #[tokio::test]
    async fn a_master_that_is_named_again_is_no_news() {
        bound_this_test();
        let port = Arc::new(AtomicU16::new(1));
        let sentinel = sentinel(&port).await;
        let sentinels = Arc::new(sentinels(&[&sentinel.place()]));
        let lines = LogLines::heard();
        let _tasks = following(&sentinels);
        learned(&sentinels, 1).await;
        for asked in 2..5 {
            sentinel.publish(SWITCH);
            let is_asked = async || sentinel.commands("SENTINEL").len() >= asked;
            eventually("the sentinel is asked", is_asked).await;
        }
        assert_eq!(sentinels.lines().changes, 1);
        let told = || lines.count("the sentinels name another master of Redis");
        assert_eq!(told(), 0, "the first one is no news");
        for (count, next) in [(1, 2), (2, 3)] {
            port.store(next, Ordering::SeqCst);
            sentinel.publish(SWITCH);
            learned(&sentinels, next).await;
            assert_eq!((told(), sentinels.lines().changes), (count, u64::from(next)));
        }
        // Another sentinel that names the same master.
        sentinels.learn(&place("m:3"));
        assert_eq!(told(), 2);
    }

    #[tokio::test]
    async fn the_next_sentinel_is_listened_to_as_soon_as_it_is_the_current_one() {
        bound_this_test();
        let port = Arc::new(AtomicU16::new(1));
        let nodes = [sentinel(&port).await, sentinel(&port).await];
        let sentinels = Arc::new(sentinels(
            &nodes.each_ref().map(Fake::place).each_ref().map(|place| place.as_str()),
        ));
        let _tasks = following(&sentinels);
        for (turn, _) in (0..).zip(tries()) {
            let (now, next) = (turn % 2, (turn + 1) % 2);
            let listens = |node: usize| nodes[node].commands("SENTINEL").len() > turn / 2;
            eventually("the sentinel is listened to", async || listens(now)).await;
            let began = Instant::now();
            sentinels.leave(now);
            let before = nodes[next].commands("SUBSCRIBE").len();
            let listens = async || nodes[next].commands("SUBSCRIBE").len() > before;
            eventually("the next one is listened to", listens).await;
            // Or at the end of the period.
            if began.elapsed() < limits::SENTINEL_PERIOD / 2 {
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_sentinel_that_can_not_be_listened_to_hands_over_with_one_line_a_second() {
        bound_this_test();
        let port = Arc::new(AtomicU16::new(1));
        // It takes no subscriptions.
        let refuses = Fake::start(|_| Some("-ERR no\r\n".to_owned())).await;
        let sentinel = sentinel(&port).await;
        let both = Arc::new(sentinels(&[&refuses.place(), &sentinel.place()]));
        let lines = LogLines::heard();
        let told = || lines.count("the sentinel can't be listened to; trying the next one");
        let tasks = following(&both);
        learned(&both, 1).await;
        assert_eq!((told(), refuses.connections(), *both.current.borrow()), (1, 1, 1));
        drop(tasks);

        let alone = Arc::new(sentinels(&[&refuses.place()]));
        let (before, began) = (refuses.connections(), Instant::now());
        let _tasks = following(&alone);
        let tries = async || refuses.connections() >= before + 4;
        eventually("it is tried again", tries).await;
        assert!(began.elapsed() >= 3 * limits::REDIS_RECONNECT_PAUSE, "with a pause each time");
        if began.elapsed() < limits::LOG_LINE_PAUSE {
            assert_eq!(told(), 2);
        }
    }
}
