//! Who sends a request: the address of the client, and the user of its token.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, header};
use tokio::time::Instant;

use crate::kit::jwt::{Grants, TokenError, Tokens};

/// Who sends a request. Each request has one among its extensions.
#[derive(Clone)]
pub struct Caller {
    pub client: IpAddr,
    /// Grants of its token; `None` without a token.
    pub grants: Option<Result<Grants, TokenError>>,
    /// When the head of the request had arrived.
    pub arrived: Instant,
}

impl Caller {
    /// The caller at this address. Verifies the token in the headers, if there is one.
    pub fn of(headers: &HeaderMap, client: IpAddr, tokens: &Tokens) -> Self {
        Self { client, grants: grants(headers, tokens), arrived: Instant::now() }
    }
}

/// The grants of the bearer token (RFC 6750, section 2.1).
fn grants(headers: &HeaderMap, tokens: &Tokens) -> Option<Result<Grants, TokenError>> {
    let mut headers = headers.get_all(header::AUTHORIZATION).iter();
    let token = bearer(headers.next()?)?;
    match headers.next() {
        Some(_) => Some(Err(TokenError::Twice)),
        None => Some(tokens.verify(token)),
    }
}

fn bearer(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}
