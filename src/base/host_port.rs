//! A host and a port, as in settings that name a server.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// A name, or an IP address without brackets.
    pub host: String,
    pub port: u16,
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        read(text).ok_or_else(|| {
            "give host:port, as in redis-1.example:26379, 10.0.0.1:26379 or [::1]:26379".to_owned()
        })
    }
}

fn read(text: &str) -> Option<HostPort> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)),
    };
    let host = bracketed.unwrap_or(host);
    (is_host && !host.is_empty()).then(|| HostPort { host: host.to_owned(), port })
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for text in ["redis-1.example:26379", "10.0.0.1:1", "[::1]:65535", "a_b:80"] {
            let place: HostPort = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
        }
    }

    #[test]
    fn a_text_without_host_or_port_is_no_place() {
        for text in [
            "",
            ":",
            "host",
            "host:",
            ":26379",
            "host:0",
            "host:65536",
            "host:redis",
            "::1:26379",
            "[host]:26379",
            "[]:26379",
            "user:password@host:26379",
            "redis://host:26379",
            " host:26379",
        ] {
            let refused = text.parse::<HostPort>().expect_err(text);
            assert!(refused.contains("host:port"), "{refused}");
        }
    }
}
