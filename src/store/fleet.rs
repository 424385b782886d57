//! The servers of Redis that hold the lanes.
//!
//! All keys of a lane are on one server, and no script reaches across lanes. So nothing is shared between servers: each
//! has a connection, a listener, a keeper and owners of its own, and a server that fails concerns its lanes alone.
//!
//! Lane n is on server n modulo their number, or where a cluster says. With another list of servers, a lane may be on one
//! that knows nothing of it, or has an older epoch: that is a loss like any other, and the lane is recovered there.

use std::sync::Arc;

use redis::{ErrorKind, RedisResult};

use super::ids::Lane;
use super::redis::{Owner, Redis};

/// One value for each server; the servers themselves, unless another type is named.
pub struct Fleet<T = Redis>(Arc<[T]>, Split);

/// How the lanes are split over the servers.
#[derive(Clone, Copy)]
enum Split {
    /// Lane n is on server n modulo their number.
    Modulo,
    /// A cluster says where a lane is, so each lane has connections of its own. The last one is of lanes that were added
    /// since the process started.
    ByLane,
}

impl<T> Clone for Fleet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1)
    }
}

impl Fleet {
    /// The masters of so many lanes of the cluster that the first server is in, with marks by which each is known; the same
    /// servers where there is no cluster.
    pub fn spread(&self, lanes: i32, owner: impl Fn(Lane) -> Owner) -> Self {
        let of_lane =
            |lane: Lane| Some(self.first().of_tag(&lane.to_string())?.of_owner(owner(lane)));
        let lanes = Lane::all(lanes).chain([Lane::numbered(lanes)]);
        match lanes.map(of_lane).collect::<Option<Vec<_>>>() {
            Some(servers) => Self(servers.into(), Split::ByLane),
            None => self.clone(),
        }
    }

    /// Uses these URLs, divided by commas, for each new connection; those that are open stay. A cluster has one.
    ///
    /// # Errors
    ///
    /// When a URL can't be understood. Their number can't change while the process runs.
    pub fn change_urls(&self, urls: &str) -> RedisResult<()> {
        if self.first().is_in_cluster() {
            // All lanes share it.
            return self.first().change_url(urls);
        }
        let urls: Vec<&str> = each_url(urls).collect();
        if urls.len() != self.0.len() {
            return Err((ErrorKind::InvalidClientConfig, "another number of servers").into());
        }
        self.each().zip(urls).try_for_each(|(redis, url)| redis.change_url(url))
    }
}

/// The URLs in a list: each begins behind a comma, and a comma elsewhere belongs to a password or a path.
pub fn each_url(urls: &str) -> impl Iterator<Item = &str> {
    let begins = urls.match_indices(",redis").map(|(at, _)| at);
    let ends = begins.clone().chain([urls.len()]);
    [0].into_iter().chain(begins.map(|at| at + 1)).zip(ends).map(|(begin, end)| &urls[begin..end])
}

impl<T> Fleet<T> {
    /// These servers, by number.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn new(servers: impl IntoIterator<Item = T>) -> Self {
        let servers: Arc<[T]> = servers.into_iter().collect();
        assert!(!servers.is_empty(), "a lane is on some server");
        Self(servers, Split::Modulo)
    }

    /// Fewest lanes with which no server is idle.
    pub fn lanes_min(&self) -> i32 {
        match self.1 {
            Split::Modulo => i32::try_from(self.0.len()).unwrap_or(i32::MAX),
            Split::ByLane => 1,
        }
    }

    /// Whether all lanes are on one server.
    pub fn is_one(&self) -> bool {
        self.0.len() == 1
    }

    /// Number of the server that a lane is on.
    pub fn number(&self, lane: Lane) -> usize {
        let lane = usize::try_from(lane.get()).unwrap_or_default();
        match self.1 {
            Split::Modulo => lane % self.0.len(),
            Split::ByLane => lane.min(self.0.len() - 1),
        }
    }

    /// That of the server that a lane is on.
    pub fn of(&self, lane: Lane) -> &T {
        &self.0[self.number(lane)]
    }

    /// That of the server with this number.
    pub fn at(&self, number: usize) -> &T {
        &self.0[number]
    }

    /// That of the first server, which has the keys of the board.
    pub fn first(&self) -> &T {
        &self.0[0]
    }

    /// Words about the server with this number, which is named where there are several.
    pub fn named(&self, number: usize, words: &str) -> String {
        match (self.1, self.0.len()) {
            (Split::Modulo, 1) => words.to_owned(),
            (Split::Modulo, servers) => format!("server {} of {servers}: {words}", number + 1),
            (Split::ByLane, _) => format!("lane {number}: {words}"),
        }
    }

    /// Those of all servers, by number.
    pub fn each(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// Another value for each server, made from its number and this one.
    pub fn map<U>(&self, make: impl FnMut((usize, &T)) -> U) -> Fleet<U> {
        Fleet(self.0.iter().enumerate().map(make).collect(), self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_divides_urls_where_one_begins_behind_it() {
        for (urls, each) in [
            ("redis://a", &["redis://a"][..]),
            (
                "redis://:p,w@a,rediss://b,redis+unix:///c,d",
                &["redis://:p,w@a", "rediss://b", "redis+unix:///c,d"],
            ),
        ] {
            assert_eq!(each_url(urls).collect::<Vec<_>>(), each);
        }
    }
}
