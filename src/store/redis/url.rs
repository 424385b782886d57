//! URLs of Redis.

use percent_encoding::percent_decode_str;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates,
};

use crate::base::host_port::HostPort;
use crate::base::limits;

/// A parsed URL, with the settings of all connections.
pub(super) struct Url {
    /// The server, or the settings for a master whose place is filled in.
    pub(super) server: ConnectionInfo,
    /// User and password for the sentinels.
    pub(super) at_sentinels: RedisConnectionInfo,
}

/// Parses a URL. Its query may have `sslrootcert`, the file of a private certificate authority (as in URLs of
/// Postgres), and `sentinel_user` and `sentinel_password`.
pub(super) fn understood(url: &str) -> RedisResult<Url> {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut others, mut authority) = (Vec::new(), None);
    // RESP3, because with RESP2 a lost connection is noticed only when the next command fails.
    let mut at_sentinels = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8_lossy();
        match name {
            "sslrootcert" => authority = Some(std::fs::read(&*value)?),
            "sentinel_user" => at_sentinels = at_sentinels.set_username(value),
            "sentinel_password" => at_sentinels = at_sentinels.set_password(value),
            _ => others.push(pair),
        }
    }
    let rest =
        if others.is_empty() { place.to_owned() } else { format!("{place}?{}", others.join("&")) };
    let info: ConnectionInfo = rest.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp_settings());
    let server = match authority {
        None => info,
        Some(_) if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) => {
            let what = "sslrootcert needs TLS: give rediss://";
            return Err((ErrorKind::InvalidClientConfig, what).into());
        }
        root_cert => {
            let certificates = TlsCertificates { client_tls: None, root_cert };
            Client::build_with_tls(info, certificates)?.get_connection_info().clone()
        }
    };
    Ok(Url { server, at_sentinels })
}

/// Parses the URL of a cluster. Returns its settings, with the first node as the host, and all nodes.
pub(super) fn of_cluster(url: &str) -> RedisResult<(Url, Vec<HostPort>)> {
    let not_understood =
        || RedisError::from((ErrorKind::InvalidClientConfig, "no URL of a cluster"));
    let (scheme, rest) = url.split_once("+cluster://").ok_or_else(not_understood)?;
    let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(user, rest)| (user, rest));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (places, tail) = rest.split_at(end);
    let nodes = places.split(',').map(|place| place.parse().map_err(|_| not_understood()));
    let nodes = nodes.collect::<RedisResult<Vec<HostPort>>>()?;
    let first = nodes.first().ok_or_else(not_understood)?;
    let at = if user.is_empty() { "" } else { "@" };
    Ok((understood(&format!("{scheme}://{user}{at}{first}{tail}"))?, nodes))
}

/// Keep-alive notices a peer that has silently gone, even on a connection that only listens.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(limits::REDIS_KEEPALIVE)
        .with_interval(limits::REDIS_KEEPALIVE_INTERVAL)
        .with_retries(limits::REDIS_KEEPALIVE_PROBES);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_peer_that_has_gone_is_noticed_by_three_probes_and_nothing_waits_for_more_to_send() {
        let settings = tcp_settings();
        assert!(settings.nodelay());
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(5))
            .with_interval(Duration::from_secs(2))
            .with_retries(3);
        assert_eq!(format!("{:?}", settings.keepalive()), format!("{:?}", Some(&keepalive)));
    }

    #[test]
    fn a_url_keeps_what_is_the_library_s_and_gives_away_what_is_of_the_sentinels() {
        let url =
            "redis://user:secret@main/7?sentinel_user=a%40b&protocol=resp3&sentinel_password=p%2F";
        let Url { server, at_sentinels } = understood(url).expect("it is valid");
        assert_eq!(
            (server.redis_settings().db(), server.redis_settings().username()),
            (7, Some("user"))
        );
        assert_eq!((at_sentinels.username(), at_sentinels.password()), (Some("a@b"), Some("p/")));
        for wrong in ["redis://x?sslrootcert=/nowhere", "rediss://x?sslrootcert=/nowhere", "x"] {
            assert!(understood(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_url_of_a_cluster_names_its_nodes() {
        let url = "redis+cluster://user:secret@a:1,b:2/0?sentinel_user=x";
        let (Url { server, .. }, nodes) = of_cluster(url).expect("it is valid");
        assert_eq!(nodes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:1", "b:2"]);
        let settings = server.redis_settings();
        assert_eq!((settings.username(), settings.db()), (Some("user"), 0));
        assert!(matches!(server.addr(), ConnectionAddr::Tcp(host, 1) if host == "a"));
        let (Url { server, .. }, _) = of_cluster("rediss+cluster://a:1").expect("it is valid");
        assert!(matches!(server.addr(), ConnectionAddr::TcpTls { .. }));
        for wrong in ["redis://a:1", "redis+cluster://", "redis+cluster://a", "x+cluster://a:1"] {
            assert!(of_cluster(wrong).is_err(), "{wrong}");
        }
    }
}
