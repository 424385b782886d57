//! The user of a request, from a verified bearer token only, never from a body or a path.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};

use super::frame::bearer::bearer;
use super::problem::Problem;
use super::state::HttpState;
use crate::kit::jwt::{Grants, TokenError};
use crate::sale::ids::UserId;

/// A user with a valid token.
pub struct User(pub UserId);

/// An administrator with a valid token, by its subject.
pub struct Admin(pub i64);

impl FromRequestParts<HttpState> for User {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> Result<Self, Problem> {
        let grants = grants(parts, http)?;
        let user = UserId::new(grants.subject).map_err(|_| TokenError::Invalid)?;
        http.front().bounds.user(user, &parts.method, &parts.uri)?;
        Ok(Self(user))
    }
}

impl FromRequestParts<HttpState> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> Result<Self, Problem> {
        if !http.has_administration() {
            // As if the route weren't there: it is on another listener.
            return Err(Problem::nothing_here());
        }
        let Grants { subject, admin } = grants(parts, http)?;
        if admin {
            return Ok(Self(subject));
        }
        let detail = "this needs a token with the role `admin`";
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }
}

fn grants(parts: &Parts, http: &HttpState) -> Result<Grants, Problem> {
    let Some(token) = parts.headers.get(header::AUTHORIZATION).and_then(bearer) else {
        let detail = "send the header `Authorization: Bearer <token>`";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "invalid_token", detail));
    };
    Ok(http.front().tokens.verify(token)?)
}
