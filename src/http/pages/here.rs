//! The guard of the routes that only the demo has. A request has to call this service by a loopback name, so a site
//! whose own name resolves to loopback is refused. `CsrfLayer` refuses pages of other sites.

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::http::uri::Authority;

use crate::http::problem::Problem;
use crate::http::state::{Demo, HttpState};

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Host and port by which the request has called this service; the host is a loopback name.
pub struct Here(pub Authority);

impl FromRequestParts<HttpState> for Here {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &HttpState) -> Result<Self, Problem> {
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let named = parts.uri.authority().map(Authority::as_str).or(host);
        named.and_then(loopback).map(Self).ok_or_else(|| {
            let detail =
                "ask for this at http://localhost or http://127.0.0.1, with the port of the demo";
            Problem::of("wrong_host", detail)
        })
    }
}

/// The parts that only the demo has.
///
/// # Errors
///
/// If this is no demo.
pub fn demo(http: &HttpState) -> Result<&Demo, Problem> {
    let demo = http.front().demo.as_ref();
    demo.ok_or_else(|| Problem::of("not_found", "only the demo has this"))
}

fn loopback(host: &str) -> Option<Authority> {
    host.parse::<Authority>().ok().filter(|authority| LOOPBACK.contains(&authority.host()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_taken() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080"] {
            assert!(loopback(host).is_some(), "{host}");
        }
        for host in [
            "",
            "example.org",
            "localhost.example.org:8080",
            "127.0.0.1.example.org",
            "10.0.0.1:8080",
        ] {
            assert!(loopback(host).is_none(), "{host}");
        }
    }
}
