//! Proxies that are trusted to name their clients, by `X-Forwarded-For`, or by the PROXY protocol, version 2
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, section 2.2).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::base::config::Config;

/// Proxies in front of a listener.
#[derive(Clone, Debug)]
pub struct Proxies {
    trusted: Vec<IpNet>,
    /// Whether their connections begin with a header of the PROXY protocol.
    protocol: bool,
}

impl From<&Config> for Proxies {
    fn from(config: &Config) -> Self {
        Self { trusted: config.trusted_proxies.clone(), protocol: config.proxy_protocol }
    }
}

impl Proxies {
    /// Whether the address is that of a proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// The client of a request, by the address that it came from. Only a trusted proxy is believed about it: each one
    /// adds, at the end of `X-Forwarded-For`, the address that it was asked by.
    pub fn client(&self, from: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = from;
        if !self.trusts(from) {
            return client;
        }
        let lists = headers.get_all(FORWARDED_FOR).iter().rev();
        let hops = lists.filter_map(|list| list.to_str().ok()).flat_map(|list| list.rsplit(','));
        for hop in hops {
            // A proxy that does not know is followed no further.
            let Ok(address) = hop.trim().parse() else { return client };
            client = address;
            if !self.trusts(address) {
                return client;
            }
        }
        client
    }

    /// Whether a connection from this address begins with a header of the PROXY protocol.
    pub fn speaks_first(&self, address: IpAddr) -> bool {
        self.protocol && self.trusts(address)
    }
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Longest rest of a header: addresses, and what else a proxy has to say.
const REST_BYTES_MAX: usize = 4_096;

/// Reads the header, and nothing behind it. `None` where the proxy speaks for itself, as in its health checks.
///
/// # Errors
///
/// When no such header comes.
pub async fn client_of(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let mut begin = [0; 16];
    stream.read_exact(&mut begin).await?;
    let rest = usize::from(u16::from_be_bytes([begin[14], begin[15]]));
    if begin[..12] != SIGNATURE || rest > REST_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut addresses = vec![0; rest];
    stream.read_exact(&mut addresses).await?;
    let (version_and_command, family) = (begin[12], begin[13] >> 4);
    match (version_and_command, family) {
        // LOCAL, and PROXY for a client without an IP address.
        (0x20, _) | (0x21, 0 | 3) => Ok(None),
        (0x21, 1) => Ok(Some(source::<4>(&addresses).map(Ipv4Addr::from)?.into())),
        (0x21, 2) => Ok(Some(source::<16>(&addresses).map(Ipv6Addr::from)?.into())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn source<const N: usize>(addresses: &[u8]) -> io::Result<[u8; N]> {
    // Both addresses, and both ports.
    let complete = addresses.len() >= 2 * N + 4;
    let first = addresses.first_chunk().filter(|_| complete);
    first.copied().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use futures_util::FutureExt;
    use private_servers::testing::bound_this_test;

    use super::*;
    use crate::base::fuzzing::Fuzz;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    async fn read(mut bytes: &[u8]) -> (io::Result<Option<IpAddr>>, usize) {
        let client = client_of(&mut bytes).await;
        (client, bytes.len())
    }

    #[tokio::test]
    async fn the_client_is_the_source_and_the_request_stays_unread() {
        bound_this_test();
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x34, 0, 80, 1, 2, 3];
        let mut v6 = [0; 36];
        v6[..2].copy_from_slice(&[0x20, 0x01]);
        v6[15] = 9;
        let mut longest = vec![0; REST_BYTES_MAX];
        longest[..15].copy_from_slice(&v4);
        for (bytes, client) in [
            (header(0x21, 0x11, &v4), Some("192.0.2.7")),
            (header(0x21, 0x11, &v4[..12]), Some("192.0.2.7")),
            (header(0x21, 0x11, &longest), Some("192.0.2.7")),
            (header(0x21, 0x12, &v4), Some("192.0.2.7")),
            (header(0x21, 0x21, &v6), Some("2001::9")),
            (header(0x20, 0x00, &[]), None),
            (header(0x20, 0x11, &v4), None),
            (header(0x21, 0x00, &[]), None),
            (header(0x21, 0x31, &[0; 216]), None),
        ] {
            let (read, left) = read(&[&bytes[..], b"GET "].concat()).await;
            assert_eq!(read.unwrap(), client.map(|client| client.parse().unwrap()));
            assert_eq!(left, 4);
        }
    }

    #[tokio::test]
    async fn what_is_no_header_names_no_client() {
        bound_this_test();
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x34, 0, 80];
        let whole = header(0x21, 0x11, &v4);
        for bytes in [
            b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4660 80\r\n".to_vec(),
            whole[..whole.len() - 1].to_vec(),
            header(0x11, 0x11, &v4),
            header(0x22, 0x11, &v4),
            header(0x21, 0x41, &v4),
            header(0x21, 0x11, &v4[..11]),
            header(0x21, 0x11, &[]),
            header(0x21, 0x21, &v4),
            header(0x21, 0x21, &[0; 35]),
            [&b"\r\n\r\n\0\r\nQUIX\n"[..], &whole[12..]].concat(),
            whole[..15].to_vec(),
            header(0x21, 0x11, &[0; REST_BYTES_MAX + 1]),
        ] {
            assert!(read(&bytes).await.0.is_err(), "{bytes:?}");
        }
    }

    /// A header is read as a whole and nothing behind it, or refused.
    #[test]
    fn fuzz_proxy_headers() {
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x34, 0, 80, 1, 2, 3];
        let seeds = [
            header(0x21, 0x11, &v4),
            header(0x21, 0x21, &[7; 36]),
            header(0x20, 0x00, &[]),
            header(0x21, 0x31, &[0; 216]),
            [&header(0x21, 0x11, &v4)[..], b"GET / HTTP/1.1\r\n\r\n"].concat(),
        ];
        let words = &["\r\n\r\n\0\r\nQUIT\n", "\u{11}", "\u{21}", "\0", "PROXY TCP4 "];
        Fuzz { target: "proxy-headers", seeds: seeds.to_vec(), words }.run(|input| {
            let (read, left) = read(input).now_or_never().expect("all bytes are there");
            let Ok(client) = read else { return };
            assert!(input.starts_with(&SIGNATURE), "{input:?}");
            let rest = usize::from(u16::from_be_bytes([input[14], input[15]]));
            assert_eq!(left, input.len() - 16 - rest);
            if let Some(IpAddr::V4(client)) = client {
                assert_eq!(client.octets(), input[16..20]);
            }
        });
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_about_its_client() {
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        let proxies = Proxies { trusted, protocol: false };
        let client = |from: &str, lists: &[&'static str]| {
            let lists = lists.iter().map(|list| (FORWARDED_FOR, HeaderValue::from_static(list)));
            proxies.client(from.parse().unwrap(), &lists.collect()).to_string()
        };
        for (from, lists, expected) in [
            ("192.0.2.7", &["198.51.100.1"][..], "192.0.2.7"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            // The first address is the client's own word.
            ("10.0.0.1", &["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9", "198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["10.0.0.3,10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
        ] {
            assert_eq!(client(from, lists), expected, "{from} {lists:?}");
        }
    }

    #[test]
    fn only_listed_networks_are_trusted() {
        let trusted = ["10.0.0.0/8", "2001:db8::/32"].map(|network| network.parse().unwrap());
        let proxies = Proxies { trusted: trusted.to_vec(), protocol: false };
        for (address, trusted) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("11.0.0.1", false),
            ("2001:db8:1::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(proxies.trusts(address.parse().unwrap()), trusted, "{address}");
            assert!(!proxies.speaks_first(address.parse().unwrap()), "{address}");
            let speaking = Proxies { protocol: true, ..proxies.clone() };
            assert_eq!(speaking.speaks_first(address.parse().unwrap()), trusted, "{address}");
        }
        let none = Proxies { trusted: Vec::new(), protocol: true };
        assert!(!none.trusts("10.1.2.3".parse().unwrap()));
    }
}
