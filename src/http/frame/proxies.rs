//! Proxies that are trusted to name their clients, by `X-Forwarded-For`.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::base::config::Config;

pub struct Proxies {
    trusted: Vec<IpNet>,
}

impl From<&Config> for Proxies {
    fn from(config: &Config) -> Self {
        Self { trusted: config.trusted_proxies.clone() }
    }
}

impl Proxies {
    fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// The address of the client; `from` is the other end of the connection. Only a trusted proxy is believed about its
    /// client: each proxy appends the address of its own client to `X-Forwarded-For`.
    pub fn client(&self, from: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = from;
        if !self.trusts(from) {
            return client;
        }
        let lists = headers.get_all(FORWARDED_FOR).iter().rev();
        let hops = lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.rsplit(','));
        for hop in hops {
            // A proxy that doesn't know its client ends the chain.
            let Some(address) = address(hop) else { return client };
            client = address;
            if !self.trusts(address) {
                return client;
            }
        }
        client
    }
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// An address as proxies write it: alone or with a port, IPv6 perhaps in brackets, all of it perhaps in quotes.
fn address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim().trim_matches('"');
    let alone = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']')).unwrap_or(hop);
    alone.parse().ok().or_else(|| hop.parse().ok().map(|address: SocketAddr| address.ip()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_trusted_proxy_is_believed_about_its_client() {
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        let proxies = Proxies { trusted };
        let client = |from: &str, lists: &[&'static str]| {
            let lists = lists.iter().map(|list| (FORWARDED_FOR, HeaderValue::from_static(list)));
            proxies.client(from.parse().unwrap(), &lists.collect()).to_string()
        };
        for (from, lists, expected) in [
            ("192.0.2.7", &["198.51.100.1"][..], "192.0.2.7"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            // A client can write anything into the first place.
            ("10.0.0.1", &["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9", "198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["10.0.0.3,10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            // With a port, in brackets and in quotes, as RFC 7239 has them.
            ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["\"[2001:db8::1]:4711\""], "2001:db8::1"),
            ("10.0.0.1", &["198.51.100.1:"], "10.0.0.1"),
        ] {
            assert_eq!(client(from, lists), expected, "{from} {lists:?}");
        }
    }
}
