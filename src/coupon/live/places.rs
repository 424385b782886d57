//! Places of watchers: a bound on all of them, of which one network may take at most half.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::kit::rate_limit::network;

/// Clones share the places.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_network: HashMap<IpAddr, usize>,
}

/// The place of a watcher; free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    network: Option<IpAddr>,
}

impl Places {
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Shared { max, taken: Mutex::default() }))
    }

    pub fn taken(&self) -> usize {
        self.0.taken.lock().expect("no holder of this lock panics").all
    }

    /// Takes a place for a client, if one is free for it. Only the bound on all places holds for clients of this
    /// machine and those without an address.
    pub fn take(&self, client: Option<IpAddr>) -> Option<Place> {
        let network = client.filter(|client| !client.to_canonical().is_loopback()).map(network);
        let mut taken = self.0.taken.lock().expect("no holder of this lock panics");
        if taken.all >= self.0.max {
            return None;
        }
        if let Some(network) = network {
            let of_network = taken.by_network.entry(network).or_default();
            // Half of a single place is that place.
            if *of_network >= self.0.max.div_ceil(2) {
                return None;
            }
            *of_network += 1;
        }
        taken.all += 1;
        Some(Place { places: self.clone(), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.taken.lock().expect("no holder of this lock panics");
        taken.all -= 1;
        let Some(network) = self.network else { return };
        let of_network = taken.by_network.get_mut(&network).expect("the place was counted");
        *of_network -= 1;
        if *of_network == 0 {
            taken.by_network.remove(&network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_half_of_the_places_and_gives_them_back() {
        let places = Places::new(4);
        let take = |client: &str| places.take(Some(client.parse().expect("an address")));
        let first = (take("2001:db8:1:2::7"), take("2001:db8:1:2::8"));
        assert!(first.0.is_some() && first.1.is_some() && take("2001:db8:1:2::9").is_none());
        let second = (take("192.0.2.7"), take("::ffff:192.0.2.7"));
        assert!(second.0.is_some() && second.1.is_some() && places.take(None).is_none());
        drop(first);
        assert!(take("192.0.2.7").is_none() && take("192.0.2.8").is_some());
        drop(second);
        let of_this_machine: Vec<_> = (0..4).map_while(|_| take("127.0.0.1")).collect();
        assert_eq!(of_this_machine.len(), 4);
        drop(of_this_machine);
        assert_eq!(places.0.taken.lock().expect("not poisoned").by_network.len(), 0);
    }
}
