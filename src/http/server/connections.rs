//! The connections of one listener: room for a new one, and the end of those that only hold their place.
//!
//! If all places are taken, the connection that has been idle for the longest time is closed. If none is idle, the new
//! connection gets a reserved place, on which only `/livez` and `/readyz` are answered and other requests are told
//! `overloaded`. So clients that hold connections neither silence the service nor make it look dead.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::watch::{CoarseClock, Watch};
use crate::base::limits;
use crate::base::telemetry::{ConnectionEnd, ConnectionRefusal, LogThrottle, Metrics};
use crate::kit::rate_limit::network;

/// The table of the connections of one listener.
pub struct Connections {
    metrics: Arc<Metrics>,
    connections_max: usize,
    /// Connections of one address, at most; `None` for no bound.
    per_address_max: Option<usize>,
    keep_alive: Duration,
    clock: Arc<CoarseClock>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Open>,
    reserved: usize,
    /// Connections of each address that has any and is bounded.
    of_address: HashMap<IpAddr, usize>,
    full_log: LogThrottle,
}

struct Open {
    watch: Arc<Watch>,
    reserved: bool,
    /// The address that the bound counts, if it counts.
    address: Option<IpAddr>,
}

/// A place in the table, free again when this is dropped.
pub struct Place {
    connections: Arc<Connections>,
    number: u64,
    /// Notes of the connection.
    pub watch: Arc<Watch>,
    /// Whether only liveness and readiness are answered here.
    pub reserved: bool,
}

impl Connections {
    /// An empty table.
    pub fn new(
        metrics: Arc<Metrics>,
        connections_max: usize,
        per_address_max: Option<usize>,
        keep_alive: Duration,
    ) -> Self {
        let clock = Arc::default();
        let table = Mutex::default();
        Self { metrics, connections_max, per_address_max, keep_alive, clock, table }
    }

    /// A place for a new connection, which counts for this address if there is one. `None` if there is not even a
    /// reserved place, or if the address has too many.
    pub fn admit(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        end: CancellationToken,
    ) -> Option<Place> {
        let watch = Arc::new(Watch::new(self.clock.clone(), end));
        let mut table = self.table();
        // First, so that an address with too many connections takes no place of another one.
        let address = match address {
            Some(address) => self.counted(&mut table, address)?,
            None => None,
        };
        let reserved = self.makes_do_with_reserved(&mut table)?;
        let number = table.next;
        table.next += 1;
        table.insert(number, Open { watch: watch.clone(), reserved, address });
        drop(table);
        self.metrics.connections.increment(1);
        self.metrics.tally.connections.0.add(1);
        Some(Place { connections: self.clone(), number, watch, reserved })
    }

    /// The address as it is counted, `Some(None)` without a bound; `None` if the address has as many connections as it
    /// may, and none of them is idle.
    fn counted(&self, table: &mut Table, address: IpAddr) -> Option<Option<IpAddr>> {
        let Some(max) = self.per_address_max else { return Some(None) };
        let address = network(address);
        let others = table.of_address.get(&address).copied().unwrap_or(0);
        if others >= max && !table.close_idle(&self.metrics, |open| open.address == Some(address)) {
            self.metrics.count_refused_connection(ConnectionRefusal::Address);
            return None;
        }
        Some(Some(address))
    }

    /// Whether only a reserved place is left; `None` if not even that.
    fn makes_do_with_reserved(&self, table: &mut Table) -> Option<bool> {
        let regular = table.open.len() - table.reserved;
        if regular < self.connections_max || table.close_idle(&self.metrics, |open| !open.reserved)
        {
            return Some(false);
        }
        if table.full_log.allows() {
            tracing::warn!(
                connections = regular,
                "all connections have requests under way: requests on further ones are told `overloaded`; raise --connections-max if the machine has room"
            );
        }
        if table.reserved < limits::CONNECTIONS_RESERVED
            || table.close_idle(&self.metrics, |open| open.reserved)
        {
            return Some(true);
        }
        self.metrics.count_refused_connection(ConnectionRefusal::Full);
        None
    }

    /// Closes connections that are overdue. Called a few times a second, because it sets the clock of all notes, too.
    pub fn close_overdue(&self) {
        self.clock.set();
        let mut table = self.table();
        let overdue: Vec<(u64, ConnectionEnd)> = table
            .open
            .iter()
            .filter_map(|(number, open)| Some((*number, open.watch.overdue(self.keep_alive)?)))
            .collect();
        for (number, reason) in overdue {
            table.close(&self.metrics, number, reason);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, number: u64, open: Open) {
        self.reserved += usize::from(open.reserved);
        if let Some(address) = open.address {
            *self.of_address.entry(address).or_default() += 1;
        }
        self.open.insert(number, open);
    }

    /// Closes that of these connections which has been idle for the longest time. False if none is idle.
    fn close_idle(&mut self, metrics: &Metrics, of: impl Fn(&Open) -> bool) -> bool {
        let idle = self.open.iter().filter(|(_, open)| of(open)).filter_map(|(number, open)| {
            let quiet = open.watch.quiet()?;
            open.watch.may_make_room(quiet).then_some((quiet, *number))
        });
        let Some((_, number)) = idle.max() else { return false };
        self.close(metrics, number, ConnectionEnd::Room);
        true
    }

    /// Takes the connection out of the table at once, and tells its task.
    fn close(&mut self, metrics: &Metrics, number: u64, reason: ConnectionEnd) {
        if let Some(open) = self.remove(number) {
            metrics.count_closed_connection(reason);
            open.watch.end.cancel();
        }
    }

    fn remove(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.reserved -= usize::from(open.reserved);
        if let Some(address) = open.address
            && let Some(count) = self.of_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                self.of_address.remove(&address);
            }
        }
        Some(open)
    }
}

impl Place {
    /// Counts the connection as closed for this reason, and gives the place up.
    pub fn close(&self, reason: ConnectionEnd) {
        self.connections.table().close(&self.connections.metrics, self.number, reason);
    }

    /// Counts the connection for its client's address, which a proxy has told. False if that address has too many.
    pub fn counts_for(&self, address: IpAddr) -> bool {
        let mut table = self.connections.table();
        let Some(address) = self.connections.counted(&mut table, address) else { return false };
        if let Some(mut open) = table.remove(self.number) {
            open.address = address;
            table.insert(self.number, open);
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.table().remove(self.number);
        self.connections.metrics.connections.decrement(1);
        self.connections.metrics.tally.connections.1.add(1);
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Version;
    use private_servers::testing::{LogLines, bound_this_test};
    use tokio::time::advance;

    use super::*;
    use crate::http::server::watch::UnderWay;

    /// A full table, whose connections were idle from these seconds on.
    async fn full(idle_from: &[u64]) -> (Arc<Connections>, Vec<Place>) {
        let metrics = Arc::new(Metrics::new([].into_iter(), [].into_iter()).expect("metrics"));
        let table = Connections::new(metrics, idle_from.len(), None, Duration::from_secs(75));
        let table = Arc::new(table);
        let admit = |_| table.admit(None, CancellationToken::new()).expect("there is room");
        let places: Vec<Place> = idle_from.iter().map(admit).collect();
        for second in 1..=10 {
            advance(Duration::from_secs(1)).await;
            table.close_overdue();
            for (place, _) in places.iter().zip(idle_from).filter(|(_, from)| **from == second) {
                place.watch.request(Version::HTTP_11).replied();
            }
        }
        (table, places)
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_has_been_idle_for_the_longest_time_makes_room() {
        bound_this_test();
        for idle_from in [[2, 5, 7], [5, 2, 7], [7, 5, 2]] {
            let (table, places) = full(&idle_from).await;
            for oldest in [2, 5, 7] {
                let place = table.admit(None, CancellationToken::new()).expect("one makes room");
                assert!(!place.reserved);
                // The newest ones are busy, so none of them makes room.
                std::mem::forget(place.watch.request(Version::HTTP_11));
                std::mem::forget(place);
                for (place, from) in places.iter().zip(idle_from) {
                    let ended = place.watch.end.is_cancelled();
                    assert_eq!(ended, from <= oldest, "{idle_from:?}: idle from second {from}");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_busy_makes_no_room_however_old_it_is() {
        bound_this_test();
        let (table, places) = full(&[2, 5]).await;
        let _under_way = places[0].watch.request(Version::HTTP_11);
        let _place = table.admit(None, CancellationToken::new()).expect("the other makes room");
        assert_eq!([0, 1].map(|at: usize| places[at].watch.end.is_cancelled()), [false, true]);
    }

    /// The table of one listener, and its counts. Time passes as the test says.
    struct House {
        metrics: Arc<Metrics>,
        table: Arc<Connections>,
    }

    impl House {
        fn of(connections_max: usize, per_address_max: Option<usize>) -> Self {
            let metrics = Arc::new(Metrics::new([].into_iter(), [].into_iter()).expect("metrics"));
            let keep_alive = Duration::from_secs(75);
            let table =
                Connections::new(metrics.clone(), connections_max, per_address_max, keep_alive);
            Self { metrics, table: Arc::new(table) }
        }

        fn admit(&self, address: Option<&str>) -> Option<Place> {
            let address = address.map(|address| address.parse().expect("an address"));
            self.table.admit(address, CancellationToken::new())
        }

        /// A connection with a request under way.
        fn busy(&self, address: Option<&str>) -> Option<(Place, UnderWay)> {
            let place = self.admit(address)?;
            let under_way = place.watch.request(Version::HTTP_11);
            Some((place, under_way))
        }

        async fn pass(&self, time: Duration) {
            advance(time).await;
            self.table.close_overdue();
        }

        fn metric(&self, name: &str) -> String {
            let page = self.metrics.page();
            let begin = format!("flash_sale_{name} ");
            let value = page.lines().find_map(|line| line.strip_prefix(&begin));
            value.unwrap_or_else(|| panic!("no {name} in {page}")).to_owned()
        }
    }

    const REFUSED_FULL: &str = "connections_refused_total{reason=\"full\"}";
    const REFUSED_ADDRESS: &str = "connections_refused_total{reason=\"address\"}";
    const CLOSED_ROOM: &str = "connections_closed_total{reason=\"room\"}";

    #[tokio::test(start_paused = true)]
    async fn beside_busy_connections_there_are_reserved_places_and_then_none() {
        bound_this_test();
        let house = House::of(2, None);
        let many = |count: usize| -> Vec<(Place, UnderWay)> {
            (0..count).map(|_| house.busy(None).expect("a place")).collect()
        };
        let mut regular = many(2);
        assert!(regular.iter().all(|(place, _)| !place.reserved));
        let mut reserved = many(limits::CONNECTIONS_RESERVED);
        assert!(reserved.iter().all(|(place, _)| place.reserved));
        for refused in ["1", "2"] {
            assert!(house.busy(None).is_none(), "there is no place");
            assert_eq!(house.metric(REFUSED_FULL), refused);
        }
        assert_eq!(
            (house.metric("connections"), house.metric(CLOSED_ROOM)),
            ("10".into(), "0".into())
        );
        // One of the reserved ones is idle: it makes room for a further reserved one.
        let (idle, under_way) = reserved.pop().expect("one");
        under_way.replied();
        house.pass(limits::EVICTED_AFTER).await;
        let (next, _under_way) = house.busy(None).expect("one makes room");
        assert!(next.reserved && idle.watch.end.is_cancelled());
        assert_eq!(house.metric(CLOSED_ROOM), "1");
        assert!(house.busy(None).is_none(), "all are busy again");
        // A regular place that is free again is taken first.
        drop(regular.pop());
        let (again, _) = house.busy(None).expect("a place");
        assert!(!again.reserved);
        assert!(house.metric(REFUSED_ADDRESS) == "0" && house.metric(REFUSED_FULL) == "3");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_its_bound_and_only_its_own_idle_connections_make_room() {
        bound_this_test();
        let house = House::of(30, Some(2));
        let (one, other) = (Some("192.0.2.7"), Some("192.0.2.8"));
        let first = house.busy(one).expect("a place");
        let _second = house.busy(one).expect("a place");
        for refused in ["1", "2"] {
            assert!(house.busy(one).is_none(), "the address has two");
            assert_eq!(house.metric(REFUSED_ADDRESS), refused);
        }
        // Other addresses, and connections that count for none.
        let (idle, its_request) = house.busy(other).expect("a place");
        let _uncounted = [None; 3].map(|address| house.busy(address).expect("a place"));
        drop(first);
        let (again, request) = house.busy(one).expect("it had one less");
        assert!(house.busy(one).is_none(), "it has two again");
        its_request.replied();
        house.pass(Duration::from_secs(1)).await;
        request.replied();
        house.pass(limits::EVICTED_AFTER).await;
        let _third = house.busy(one).expect("its idle one makes room");
        assert!(again.watch.end.is_cancelled() && !idle.watch.end.is_cancelled());
        assert!(house.busy(one).is_none() && house.busy(other).is_some());
        // A household has one network of IPv6.
        let _household = ["2001:db8::1", "2001:db8::2"].map(|address| house.busy(Some(address)));
        assert!(house.busy(Some("2001:db8::3")).is_none());
        assert!(house.busy(Some("2001:db8:0:1::3")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_counts_for_the_client_that_its_proxy_names() {
        bound_this_test();
        let house = House::of(10, Some(1));
        let [one, other] =
            ["192.0.2.7", "192.0.2.8"].map(|it| it.parse::<IpAddr>().expect("an address"));
        let places = [(); 4].map(|()| house.busy(None).expect("a place"));
        let counted: Vec<bool> = places
            .iter()
            .zip([one, one, other, other])
            .map(|((place, _), address)| place.counts_for(address))
            .collect();
        assert_eq!(counted, [true, false, true, false]);
        assert_eq!(house.metric(REFUSED_ADDRESS), "2");
        assert_eq!(house.table.table().open.len(), 4, "each has its place until its task ends");
        let [(first, _request), ..] = places;
        first.close(ConnectionEnd::Unread);
        assert!(first.watch.end.is_cancelled());
        let (next, _request) = house.busy(None).expect("a place");
        assert!(next.counts_for(one), "the first one is closed");
        let unbounded = House::of(10, None);
        let places = [(); 2].map(|()| unbounded.busy(None).expect("a place"));
        assert!(places.iter().all(|(place, _)| place.counts_for(one)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_closed_once_and_for_its_first_reason() {
        bound_this_test();
        let house = House::of(10, None);
        let closed = |reason: &str| {
            house.metric(&format!("connections_closed_total{{reason=\"{reason}\"}}"))
        };
        let silent = house.admit(None).expect("a place");
        let (busy, _request) = house.busy(None).expect("a place");
        house.pass(limits::HEADER_READ_TIMEOUT - Duration::from_millis(1)).await;
        assert!(!silent.watch.end.is_cancelled());
        house.pass(Duration::from_millis(1)).await;
        assert!(silent.watch.end.is_cancelled() && !busy.watch.end.is_cancelled());
        for place in [&silent, &busy, &busy] {
            place.close(ConnectionEnd::Unread);
        }
        assert!(busy.watch.end.is_cancelled());
        let counts = ["head", "unread", "idle", "room"].map(closed);
        assert_eq!(counts, ["1", "1", "0", "0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_in_the_table_of_connections_that_have_ended() {
        bound_this_test();
        let house = House::of(1, Some(1));
        let places = ["192.0.2.7", "192.0.2.8"].map(|it| house.busy(Some(it)).expect("a place"));
        assert_eq!((house.metric("connections"), places[1].0.reserved), ("2".into(), true));
        drop(places);
        let table = house.table.table();
        assert!(table.open.is_empty() && table.of_address.is_empty() && table.reserved == 0);
        assert_eq!(house.metric("connections"), "0");
        let (opened, ended) = &house.metrics.tally.connections;
        assert_eq!((opened.get(), ended.get()), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_table_is_logged_at_once_and_then_now_and_then() {
        bound_this_test();
        let log = LogLines::heard();
        let house = House::of(1, None);
        let _regular = house.busy(None).expect("a place");
        let lines = || log.count("requests on further ones are told");
        assert_eq!(lines(), 0, "there was a place");
        let began = std::time::Instant::now();
        let reserved: Vec<_> = (0..50).map(|_| house.busy(None)).collect();
        let pauses = began.elapsed().as_millis() / limits::LOG_LINE_PAUSE.as_millis();
        assert!((1..=1 + pauses).contains(&(lines() as u128)), "{} lines", lines());
        drop(reserved);
    }
}
