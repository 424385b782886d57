//! The masters of a Redis Cluster.
//!
//! # Model
//!
//! Each of 16,384 slots is on one master, and all keys of a lane are in one slot. Each new connection asks all nodes for
//! their maps of slots, and [`Cluster::follow`] asks once a second. The map with the highest epoch counts: a node that was
//! paused or cut off has an older one.
//!
//! # Authority
//!
//! The node itself: it carries out no command on a slot that it doesn't serve. It answers with a redirection, which is never
//! followed: the refusal ends the connection, and the next one goes by a new map. So no command is ever sent twice, and no
//! script runs on a server that hasn't been identified.
//!
//! # What each failure does
//!
//! * A master dies, or a slot moves: the connections of its lanes end, and the lanes are recovered where the map says that
//!   they are now, as after any loss. Other lanes go on.
//! * A node doesn't answer: it is asked for no longer than the others need, but for [`limits::CLUSTER_ANSWER_MAX`].
//! * No node answers: connections that are open stay in use, and no new one can be opened.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use redis::{Client, ErrorKind, InfoDict, RedisError, RedisResult, Value, from_redis_value};
use tokio::time::{Instant, sleep, timeout};

use super::line::{self, Line};
use super::sentinel::at;
use super::url::Url;
use crate::base::host_port::HostPort;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::LogThrottle;

/// Number of a slot.
pub(super) type Slot = u16;

/// The nodes of a cluster.
pub(super) struct Cluster {
    /// A connection to a node, but for its place.
    url: ArcSwap<Url>,
    /// Nodes that the URL names.
    seeds: Vec<HostPort>,
    timeout: Duration,
    /// The last map, and the time of its answer. Locked while the nodes are asked, so that callers share an answer.
    map: tokio::sync::Mutex<Option<(Instant, Arc<Map>)>>,
    /// Connections to masters.
    open: Mutex<Vec<(Slot, HostPort, Weak<Line>)>>,
    followed: AtomicBool,
}

/// A node's view of the cluster.
#[derive(Debug)]
struct Map {
    epoch: u64,
    masters: Vec<(RangeInclusive<Slot>, HostPort)>,
    nodes: Vec<HostPort>,
}

impl Cluster {
    /// Names the nodes; asks none.
    ///
    /// # Errors
    ///
    /// When `url` names a database: a cluster has none but 0.
    pub fn new(url: Url, seeds: Vec<HostPort>, timeout: Duration) -> RedisResult<Arc<Self>> {
        if url.server.redis_settings().db() != 0 {
            return Err((ErrorKind::InvalidClientConfig, "a cluster has no database but 0").into());
        }
        let (map, open, followed) = Default::default();
        let url = ArcSwap::from_pointee(url);
        Ok(Arc::new(Self { url, seeds, timeout, map, open, followed }))
    }

    /// Uses this URL for each new connection. The nodes that it names are those of the start.
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

    /// The server at a place of a map.
    pub fn client(&self, place: &HostPort) -> RedisResult<Client> {
        Client::open(at(&self.url.load().server, place))
    }

    /// Enters a connection that is about to be opened, to be ended when the slot has another master.
    pub fn enter(&self, slot: Slot, place: HostPort, line: &Arc<Line>) {
        let mut open = self.open();
        open.retain(|(_, _, line)| line.strong_count() > 0);
        open.push((slot, place, Arc::downgrade(line)));
    }

    /// Starts the task that ends connections to masters that have been replaced; once for all lanes.
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
            // A slot without a master has none to change to.
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

    /// The map of the node that knows most; asks no more often than once in [`limits::CLUSTER_MAP_MEMORY`].
    async fn map(&self) -> RedisResult<Arc<Map>> {
        let mut known = self.map.lock().await;
        if let Some((at, map)) = &*known
            && at.elapsed() < limits::CLUSTER_MAP_MEMORY
        {
            return Ok(map.clone());
        }
        let last = known.as_ref().map(|(_, map)| map.clone());
        let mut nodes = self.seeds.clone();
        nodes.extend(last.iter().flat_map(|map| map.nodes.clone()));
        nodes.sort_unstable();
        nodes.dedup();
        let mut error = None;
        let mut best = None;
        for answer in join_all(nodes.iter().map(|node| self.ask(node))).await {
            match answer {
                Ok(map) => best = best.into_iter().chain([map]).max_by_key(|map: &Map| map.epoch),
                Err(failed) => error = Some(failed),
            }
        }
        // What was known before isn't forgotten because the nodes that know it are away.
        let best = best.filter(|map| last.is_none_or(|last| last.epoch <= map.epoch));
        match (best, error) {
            (Some(map), _) => {
                let map = Arc::new(map);
                *known = Some((Instant::now(), map.clone()));
                Ok(map)
            }
            (None, Some(error)) => Err(error),
            (None, None) => {
                let what = "the nodes that answer know an older cluster than the one that was seen";
                Err((ErrorKind::Io, what).into())
            }
        }
    }

    async fn ask(&self, node: &HostPort) -> RedisResult<Map> {
        let asked = async {
            let client = self.client(node)?;
            let config = line::config(self.timeout);
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&config).await?;
            let mut commands = redis::pipe();
            commands.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
            let (info, slots): (InfoDict, Vec<Vec<Value>>) =
                commands.query_async(&mut connection).await?;
            Map::read(&info, slots, node)
        };
        let late = || RedisError::from((ErrorKind::Io, "a node doesn't answer"));
        timeout(limits::CLUSTER_ANSWER_MAX.min(self.timeout), asked).await.map_err(|_| late())?
    }

    fn open(&self) -> MutexGuard<'_, Vec<(Slot, HostPort, Weak<Line>)>> {
        self.open.lock().expect("no holder of this lock panics")
    }

    /// Places of the nodes.
    pub fn address(&self) -> String {
        let places: Vec<_> = self.seeds.iter().map(HostPort::to_string).collect();
        format!("the cluster of {}", places.join(", "))
    }
}

impl Map {
    /// Reads CLUSTER INFO and CLUSTER SLOTS, whose entries are first and last slot, the master, and replicas. A node
    /// without a host is the one that was asked.
    fn read(info: &InfoDict, slots: Vec<Vec<Value>>, asked: &HostPort) -> RedisResult<Self> {
        let epoch = info.get("cluster_current_epoch").unwrap_or(0);
        let (mut masters, mut nodes) = (Vec::new(), Vec::new());
        for entry in slots {
            let mut entry = entry.into_iter();
            let mut next = || from_redis_value::<Slot>(entry.next().unwrap_or(Value::Nil));
            let range = next()?..=next()?;
            let places: Vec<HostPort> =
                entry.map(|node| place(node, asked)).collect::<RedisResult<_>>()?;
            masters.extend(places.first().map(|master| (range, master.clone())));
            nodes.extend(places);
        }
        Ok(Self { epoch, masters, nodes })
    }

    fn master_of(&self, slot: Slot) -> Option<&HostPort> {
        self.masters.iter().find(|(range, _)| range.contains(&slot)).map(|(_, master)| master)
    }
}

fn place(node: Value, asked: &HostPort) -> RedisResult<HostPort> {
    let mut parts: Vec<Value> = from_redis_value(node)?;
    parts.truncate(2);
    let [host, port] = <[Value; 2]>::try_from(parts).unwrap_or([Value::Nil, Value::Nil]);
    let host: Option<String> = from_redis_value(host)?;
    let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| asked.host.clone());
    Ok(HostPort { host, port: from_redis_value(port)? })
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

    /// By `redis-cli CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(["0", "1", "62", "123456789"].map(slot_of), [13_907, 9_842, 14_626, 12_739]);
    }
}
