//! The masters of a Redis Cluster.
//!
//! # Model
//!
//! Each of 16,384 slots is on one master, and all keys of a lane are in one slot. Each new connection asks all nodes
//! for their view of the cluster, and [`Cluster::follow`] asks once a second. If nodes name several masters of a slot,
//! the one with the highest epoch counts: a master gets a new epoch with the slots that it takes over. So a node that
//! was paused or cut off, or that hasn't heard of the change, names an older epoch.
//!
//! # Authority
//!
//! The node itself decides: it executes no command on a slot that it doesn't serve. It answers with a redirection,
//! which this client never follows. Instead the redirection ends the connection, and the next connection uses a new
//! map. So no command is sent twice, and no script runs on a server that hasn't been identified.
//!
//! # What each failure does
//!
//! * A master dies, or a slot moves: the connections of its lanes end, and the lanes are recovered on the node that the
//!   map then names, as after any loss. Other lanes go on.
//! * A node doesn't answer: each new map waits for it for [`limits::CLUSTER_ANSWER_MAX`], until the other nodes have
//!   forgotten it.
//! * No node answers: open connections stay in use, and no new one can be opened.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use redis::{Client, ConnectionAddr, ErrorKind, RedisError, RedisResult};
use tokio::time::{Instant, sleep, timeout};

use super::line::{self, Line};
use super::sentinel::at;
use super::url::Url;
use crate::base::host_port::HostPort;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::LogThrottle;

pub(super) type Slot = u16;

pub(super) struct Cluster {
    /// The way to any node: user, password, TLS; the place is filled in.
    url: ArcSwap<Url>,
    /// Nodes that the URL names.
    seeds: Vec<HostPort>,
    timeout: Duration,
    /// The last map, and when it was read. Locked while the nodes are asked, so that callers share the answer.
    map: tokio::sync::Mutex<Option<(Instant, Arc<Map>)>>,
    /// Open connections to masters, by slot and place.
    open: Mutex<Vec<(Slot, HostPort, Weak<Line>)>>,
    followed: AtomicBool,
}

/// Masters of slots, each with its epoch. A master with an older epoch has lost the slots that a newer one names.
#[derive(Debug, Default)]
struct Map {
    masters: Vec<(u64, RangeInclusive<Slot>, HostPort)>,
    nodes: Vec<HostPort>,
}

impl Cluster {
    /// Names the nodes, and connects to none.
    ///
    /// # Errors
    ///
    /// When `url` names a database other than 0, the only one that a cluster has.
    pub fn new(url: Url, seeds: Vec<HostPort>, timeout: Duration) -> RedisResult<Arc<Self>> {
        if url.server.redis_settings().db() != 0 {
            return Err((ErrorKind::InvalidClientConfig, "a cluster has no database but 0").into());
        }
        let (map, open, followed) = Default::default();
        let url = ArcSwap::from_pointee(url);
        Ok(Arc::new(Self { url, seeds, timeout, map, open, followed }))
    }

    /// Uses this URL for new connections. The nodes to ask stay those of the first URL.
    pub fn change_url(&self, url: Url) {
        self.url.store(url.into());
    }

    /// The place of the master of a slot.
    ///
    /// # Errors
    ///
    /// When no node answers, or the slot has no master.
    pub async fn master_of(&self, slot: Slot) -> RedisResult<HostPort> {
        self.map().await?.master_of(slot).cloned().ok_or_else(|| {
            let what = "the cluster has no master for the slot of the lane";
            RedisError::from((ErrorKind::Io, what))
        })
    }

    /// A client for the server at a place of the map.
    pub fn client(&self, place: &HostPort) -> RedisResult<Client> {
        Client::open(at(&self.url.load().server, place))
    }

    /// Registers a connection that is about to be opened. It ends when the slot gets another master.
    pub fn enter(&self, slot: Slot, place: HostPort, line: &Arc<Line>) {
        let mut open = self.open();
        open.retain(|(_, _, line)| line.strong_count() > 0);
        open.push((slot, place, Arc::downgrade(line)));
    }

    /// Starts the task that ends connections to replaced masters; a second call does nothing.
    pub fn follow(self: &Arc<Self>, shutdown: &Shutdown) {
        if self.followed.swap(true, Ordering::Relaxed) {
            return;
        }
        let (cluster, stop) = (self.clone(), shutdown.stop_token().clone());
        shutdown.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = cluster.end_replaced() => {}
            }
        });
    }

    async fn end_replaced(&self) {
        let mut throttle = LogThrottle::default();
        loop {
            match self.map().await {
                Ok(map) => self.end_all_but(&map),
                Err(error) if throttle.allows() => tracing::warn!(%error, "no node answers"),
                Err(_) => {}
            }
            sleep(limits::SENTINEL_PERIOD).await;
        }
    }

    fn end_all_but(&self, map: &Map) {
        self.open().retain(|(slot, place, line)| {
            let Some(line) = line.upgrade() else { return false };
            // If the slot has no master, there is none to change to.
            let is_replaced = map.master_of(*slot).is_some_and(|master| master != place);
            if is_replaced {
                line.replace();
                let place = place.to_string();
                tracing::warn!(
                    place,
                    slot,
                    "the slot has another master; its connection has ended"
                );
            }
            !is_replaced
        });
    }

    /// The combined view of all nodes that answer, at most [`limits::CLUSTER_MAP_MEMORY`] old.
    async fn map(&self) -> RedisResult<Arc<Map>> {
        let mut known = self.map.lock().await;
        if let Some((at, map)) = &*known
            && at.elapsed() < limits::CLUSTER_MAP_MEMORY
        {
            return Ok(map.clone());
        }
        let mut nodes = self.seeds.clone();
        nodes.extend(known.iter().flat_map(|(_, map)| map.nodes.clone()));
        nodes.sort_unstable();
        nodes.dedup();
        let (mut map, mut failed) = (Map::default(), None);
        for answer in join_all(nodes.iter().map(|node| self.ask(node))).await {
            match answer {
                Ok(of_node) => map.add(&of_node),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if map.nodes.is_empty() => Err(error),
            _ => {
                let map = Arc::new(map);
                *known = Some((Instant::now(), map.clone()));
                Ok(map)
            }
        }
    }

    async fn ask(&self, node: &HostPort) -> RedisResult<Map> {
        let has_tls = matches!(self.url.load().server.addr(), ConnectionAddr::TcpTls { .. });
        let asked = async {
            let client = self.client(node)?;
            let config = line::config(self.timeout);
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&config).await?;
            let nodes: String =
                redis::cmd("CLUSTER").arg("NODES").query_async(&mut connection).await?;
            Ok(Map::read(&nodes, node, has_tls))
        };
        let late = || RedisError::from((ErrorKind::Io, "a node doesn't answer"));
        timeout(limits::CLUSTER_ANSWER_MAX, asked).await.map_err(|_| late())?
    }

    fn open(&self) -> MutexGuard<'_, Vec<(Slot, HostPort, Weak<Line>)>> {
        self.open.lock().expect("no holder of this lock panics")
    }

    pub fn address(&self) -> String {
        let places: Vec<_> = self.seeds.iter().map(HostPort::to_string).collect();
        format!("the cluster of {}", places.join(", "))
    }
}

impl Map {
    /// Reads CLUSTER NODES: id, place, flags, ..., the node's epoch, the state of the link, and slots. A node without a
    /// host is the one that was asked. With TLS, a node is known by its hostname, if it has one.
    fn read(nodes: &str, asked: &HostPort, has_tls: bool) -> Self {
        let mut map = Self::default();
        for line in nodes.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, place, flags, _, _, _, epoch, _, slots @ ..] = &words[..] else { continue };
            let Some(place) = place_of(place, asked, has_tls) else { continue };
            let is_master = flags.split(',').any(|flag| flag == "master");
            // Entries for slots that are migrating have brackets, and don't parse.
            let ranges = slots.iter().filter_map(|slots| {
                let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
                Some(first.parse().ok()?..=last.parse().ok()?)
            });
            let epoch = epoch.parse().unwrap_or(0);
            if is_master {
                map.masters.extend(ranges.map(|range| (epoch, range, place.clone())));
            }
            map.nodes.push(place);
        }
        map
    }

    fn add(&mut self, other: &Self) {
        self.masters.extend_from_slice(&other.masters);
        self.nodes.extend_from_slice(&other.nodes);
    }

    fn master_of(&self, slot: Slot) -> Option<&HostPort> {
        let masters = self.masters.iter().filter(|(_, range, _)| range.contains(&slot));
        masters.max_by_key(|(epoch, ..)| epoch).map(|(.., master)| master)
    }
}

/// The place in `host:port@bus,name`; bus and name may be missing.
fn place_of(place: &str, asked: &HostPort, has_tls: bool) -> Option<HostPort> {
    let (place, name) = place.split_once(',').unwrap_or((place, ""));
    let name = name.split(',').next().unwrap_or_default();
    let place = place.split('@').next().unwrap_or_default();
    let (host, port) = place.rsplit_once(':')?;
    let host = match host {
        _ if has_tls && !name.is_empty() => name,
        "" => &asked.host,
        host => host,
    };
    Some(HostPort { host: host.to_owned(), port: port.parse().ok().filter(|port| *port > 0)? })
}

/// The slot of all keys with this hash tag: CRC16 (XMODEM), as the specification of Redis Cluster has it
/// (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
pub(super) fn slot_of(tag: &str) -> Slot {
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A promoted replica, once as it describes itself, and once as a node does that hasn't heard of the promotion.
    #[test]
    fn of_two_masters_of_a_slot_the_one_with_the_higher_epoch_counts() {
        let asked = HostPort { host: "asked".to_owned(), port: 1 };
        let new = "a 10.0.0.1:1@2,one master,fail - 0 0 1 disconnected 5461\n\
                   b :2@3,two myself,master - 0 0 4 connected 0-5460 5462-5470 [9->-c]\n\
                   d 10.0.0.4:0@0 master,noaddr - 0 0 9 connected 0-5460\n";
        let old = "a 10.0.0.1:1@2,one master - 0 0 1 connected 0-5470\n\
                   b 10.0.0.2:2@3,two slave a 0 0 1 connected\n";
        let mut map = Map::read(new, &asked, false);
        map.add(&Map::read(old, &asked, false));
        let master = |slot| map.master_of(slot).map(ToString::to_string);
        assert_eq!(master(5460).as_deref(), Some("asked:2"));
        assert_eq!(master(5470).as_deref(), Some("asked:2"));
        assert_eq!(master(5461).as_deref(), Some("10.0.0.1:1"));
        assert_eq!(master(6000), None);
        let by_name = Map::read(new, &asked, true);
        assert_eq!(by_name.master_of(0).map(ToString::to_string).as_deref(), Some("two:2"));
    }

    /// The expected values are from `redis-cli CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(["0", "1", "62", "123456789"].map(slot_of), [13_907, 9_842, 14_626, 12_739]);
    }
}
