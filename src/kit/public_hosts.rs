//! Which hosts may be sent requests that an outsider has a say in: those with a public address, and those that the
//! settings name. Otherwise the sender of such a request would be a way into the network around the service.
//!
//! The address is checked where the connection is made, so a name that resolves to another address a moment later gets
//! no further.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{io, vec};

use axum::http::Uri;
use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use ipnet::IpNet;
use tower_service::Service;

/// Hosts that may have any address, and may be asked without TLS: names or addresses as they stand in a URL.
#[derive(Clone, Debug, Default)]
pub struct PublicHosts {
    exceptions: Arc<Vec<String>>,
}

/// Ranges that no public host has (IANA's registries of special-purpose addresses; RFC 6890).
const SPECIAL: [&str; 19] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    // Of Azure, for its machines.
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
];

/// The only range of IPv6 that has public hosts (RFC 4291, section 2.4).
const GLOBAL_V6: &str = "2000::/3";

impl PublicHosts {
    pub fn new(exceptions: &[String]) -> Self {
        let bare = |host: &String| host.trim().trim_matches(['[', ']']).to_owned();
        Self { exceptions: Arc::new(exceptions.iter().map(bare).collect()) }
    }

    /// Refuses a URL that isn't HTTPS, has a user in it, or names a private address.
    ///
    /// # Errors
    ///
    /// The reason, in words.
    pub fn check(&self, url: &Uri) -> Result<(), String> {
        let Some(host) = url.host().map(|host| host.trim_matches(['[', ']'])) else {
            return Err("has to be a whole URL, as https://example.com/events".to_owned());
        };
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("has a user in it".to_owned());
        }
        if self.is_exception(host) {
            return match url.scheme_str() {
                Some("https" | "http") => Ok(()),
                _ => Err("has to begin with https:// or http://".to_owned()),
            };
        }
        if url.scheme_str() != Some("https") {
            return Err("has to begin with https://".to_owned());
        }
        match host.parse() {
            Ok(address) if !is_public(address) => Err(format!("is refused: {}", refused(host))),
            _ => Ok(()),
        }
    }

    fn is_exception(&self, host: &str) -> bool {
        self.exceptions.iter().any(|exception| exception.eq_ignore_ascii_case(host))
    }
}

fn refused(host: &str) -> String {
    format!("{host} has no public address; --webhooks-allow makes an exception")
}

fn is_public(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_in = |net: &str| net.parse::<IpNet>().expect("a range").contains(&address);
    (address.is_ipv4() || is_in(GLOBAL_V6)) && !SPECIAL.into_iter().any(is_in)
}

/// Resolves names: all of them, or only to public addresses.
#[derive(Clone, Default)]
pub struct Resolver {
    hosts: Option<PublicHosts>,
}

impl Resolver {
    pub fn public(hosts: PublicHosts) -> Self {
        Self { hosts: Some(hosts) }
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let hosts = self.hosts.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let is_free = hosts.is_none_or(|hosts| hosts.is_exception(name.as_str()));
            let fit: Vec<SocketAddr> =
                found.filter(|found| is_free || is_public(found.ip())).collect();
            match fit.is_empty() {
                true => Err(io::Error::other(refused(name.as_str()))),
                false => Ok(fit.into_iter()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    #[test]
    fn an_address_is_public_outside_of_all_special_ranges() {
        for public in
            ["1.1.1.1", "100.128.0.1", "223.255.255.255", "2606:4700::1111", "2001:4860::1"]
        {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
        for special in [
            "0.0.0.0",
            "10.255.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.1.1",
            "239.1.1.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "fc00::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!is_public(special.parse().expect("an address")), "{special}");
        }
    }

    #[test]
    fn a_url_is_https_to_a_public_host_or_an_exception() {
        let hosts =
            PublicHosts::new(&["hooks.internal", " 127.0.0.1", "[fd00::1]"].map(str::to_owned));
        let check = |url: &str| hosts.check(&url.parse().expect("a URL")).is_ok();
        for url in [
            "https://example.com/a?b=c",
            "https://[2606:4700::1111]:8443/",
            "http://HOOKS.internal/",
            "http://[fd00::1]/",
        ] {
            assert!(check(url), "{url}");
        }
        for url in [
            "/events",
            "http://example.com/",
            "ftp://127.0.0.1/",
            "https://user:password@example.com/",
            "https://10.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:192.168.0.1]/",
        ] {
            assert!(!check(url), "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_with_a_private_address_alone_is_not_resolved() {
        bound_this_test();
        let name = || "localhost".parse().expect("a name");
        let hosts = PublicHosts::new(&[]);
        let refused = Resolver::public(hosts).call(name()).await.expect_err("it is loopback");
        assert!(refused.to_string().contains("no public address"), "{refused}");
        let hosts = PublicHosts::new(&["localhost".to_owned()]);
        assert!(Resolver::public(hosts).call(name()).await.is_ok());
        assert!(Resolver::default().call(name()).await.is_ok());
    }
}
