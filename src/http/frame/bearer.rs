//! The token of a request (RFC 6750, section 2.1).

use axum::http::HeaderValue;

use crate::kit::jwt::{Grants, Scope, Tokens};

/// The token in the header.
pub fn bearer(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The user of a token, for people; `refused` for a token that is.
pub fn actor(tokens: &Tokens, header: &HeaderValue) -> String {
    match bearer(header).map(|token| tokens.verify(token)) {
        Some(Ok(Grants { subject, scope })) => {
            format!("{} {subject}", scope.map_or("user", Scope::role))
        }
        Some(Err(_)) | None => "refused".to_owned(),
    }
}
