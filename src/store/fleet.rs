//! The Redis servers that hold the lanes.
//!
//! All keys of a lane are on one server, and no script reaches across lanes. So servers share nothing: each has its own
//! connection, listener, leader and owners, and a server that fails affects only its own lanes.
//!
//! Lane n is on server n modulo the number of servers, or where a cluster puts it. After a change of the list of
//! servers, a lane may be on a server that doesn't know it, or that has an older epoch. That is a loss of data like any
//! other, and the lane is recovered there.

use std::sync::Arc;

use redis::{ErrorKind, RedisResult};

use super::ids::Lane;
use super::redis::{Owner, Redis};

/// One value for each server; by default the server itself.
pub struct Fleet<T = Redis>(Arc<[T]>, Split);

/// How the lanes are split over the servers.
#[derive(Clone, Copy)]
enum Split {
    /// Lane n is on server n modulo the number of servers.
    Modulo,
    /// A cluster says where a lane is, so each lane has its own connections. The last entry serves lanes that were
    /// added after the process started.
    ByLane,
}

impl<T> Clone for Fleet<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1)
    }
}

impl Fleet {
    /// One entry for each of `lanes` lanes of the cluster, with the mark that identifies the owner of its data. Without
    /// a cluster, the same servers.
    pub fn spread(&self, lanes: i32, owner: impl Fn(Lane) -> Owner) -> Self {
        let of_lane =
            |lane: Lane| Some(self.first().of_tag(&lane.to_string())?.of_owner(owner(lane)));
        let lanes = Lane::all(lanes).chain([Lane::numbered(lanes)]);
        match lanes.map(of_lane).collect::<Option<Vec<_>>>() {
            Some(servers) => Self(servers.into(), Split::ByLane),
            None => self.clone(),
        }
    }

    /// Uses these URLs, separated by commas, for new connections. Open connections stay. A cluster has one URL.
    ///
    /// # Errors
    ///
    /// When a URL can't be understood, or the number of URLs differs: it can't change while the process runs.
    pub fn change_urls(&self, urls: &str) -> RedisResult<()> {
        if self.first().is_in_cluster() {
            // All lanes share the cluster.
            return self.first().change_url(urls);
        }
        let urls: Vec<&str> = each_url(urls).collect();
        if urls.len() != self.0.len() {
            return Err((ErrorKind::InvalidClientConfig, "another number of servers").into());
        }
        self.each().zip(urls).try_for_each(|(redis, url)| redis.change_url(url))
    }
}

/// Splits a list of URLs. A comma separates only if a URL begins after it; other commas belong to a password or a path.
pub fn each_url(urls: &str) -> impl Iterator<Item = &str> {
    let begins = urls.match_indices(",redis").map(|(at, _)| at);
    let ends = begins.clone().chain([urls.len()]);
    [0].into_iter().chain(begins.map(|at| at + 1)).zip(ends).map(|(begin, end)| &urls[begin..end])
}

impl<T> Fleet<T> {
    /// One value for each server, in the order of their numbers.
    ///
    /// # Panics
    ///
    /// If `servers` is empty.
    pub fn new(servers: impl IntoIterator<Item = T>) -> Self {
        let servers: Arc<[T]> = servers.into_iter().collect();
        assert!(!servers.is_empty(), "a lane is on some server");
        Self(servers, Split::Modulo)
    }

    /// Smallest number of lanes that leaves no server idle.
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

    /// The value of the server that a lane is on.
    pub fn of(&self, lane: Lane) -> &T {
        &self.0[self.number(lane)]
    }

    /// The value of the server with this number.
    pub fn at(&self, number: usize) -> &T {
        &self.0[number]
    }

    /// The value of the first server, which holds the keys of the board.
    pub fn first(&self) -> &T {
        &self.0[0]
    }

    /// Prefixes a message with the server or lane, unless there is only one server.
    pub fn named(&self, number: usize, words: &str) -> String {
        match (self.1, self.0.len()) {
            (Split::Modulo, 1) => words.to_owned(),
            (Split::Modulo, servers) => format!("server {} of {servers}: {words}", number + 1),
            (Split::ByLane, _) => format!("lane {number}: {words}"),
        }
    }

    /// The values of all servers, by number.
    pub fn each(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// Makes a fleet of other values, each from the server's number and its value here.
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
