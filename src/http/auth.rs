//! The user of a request. A user is known by a verified bearer token only, never by a body or a path.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::frame::caller::Caller;
use super::problem::Problem;
use super::state::HttpState;
use crate::kit::jwt::{Grants, Scope, TokenError};
use crate::store::audit::Actor;
use crate::store::ids::UserId;

/// A user with a valid token.
pub struct User(pub UserId);

/// The reader of an order: a user, who may be one of the staff.
pub struct Reader {
    pub user: UserId,
    /// Whether orders of other users may be read.
    pub reads_all: bool,
}

/// A member of the shop's staff, by a valid token.
#[derive(Clone, Debug)]
pub struct Staff {
    /// Subject of the token.
    pub id: UserId,
    scope: Scope,
    /// Subject and scope, as the audit log records them.
    pub actor: Actor,
}

pub struct Admin(pub Staff);

/// An operator or administrator.
pub struct Operator(pub Staff);

/// A clerk, operator or administrator.
pub struct Clerk(pub Staff);

/// Another system, an operator or an administrator: reads what happened to all users.
pub struct Integrator;

impl Reader {
    /// Refuses a reader who may not read orders of other users.
    pub fn need_all(&self) -> Result<(), Problem> {
        need(Some(Scope::Operator).filter(|_| self.reads_all), Scope::Operator).map(drop)
    }
}

impl Staff {
    /// Refuses the request unless the token has this scope or a higher one.
    pub fn need(&self, scope: Scope) -> Result<(), Problem> {
        need(Some(self.scope), scope).map(drop)
    }
}

impl FromRequestParts<HttpState> for User {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &HttpState) -> Result<Self, Problem> {
        user(parts).map(|(user, _)| Self(user))
    }
}

impl FromRequestParts<HttpState> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> Result<Self, Problem> {
        let (user, scope) = user(parts)?;
        let reads_all = http.has_administration() && scope >= Some(Scope::Operator);
        Ok(Self { user, reads_all })
    }
}

fn user(parts: &Parts) -> Result<(UserId, Option<Scope>), Problem> {
    let Grants { subject, scope } = grants(parts)?;
    let user = UserId::new(subject).map_err(|_| TokenError::Invalid)?;
    Ok((user, scope))
}

impl FromRequestParts<HttpState> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> Result<Self, Problem> {
        staff(parts, http, Scope::Administrator).map(Self)
    }
}

impl FromRequestParts<HttpState> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> Result<Self, Problem> {
        staff(parts, http, Scope::Operator).map(Self)
    }
}

impl FromRequestParts<HttpState> for Clerk {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> Result<Self, Problem> {
        staff(parts, http, Scope::Clerk).map(Self)
    }
}

impl FromRequestParts<HttpState> for Integrator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> Result<Self, Problem> {
        if !http.has_administration() {
            return Err(Problem::nothing_here());
        }
        let scope = grants(parts)?.scope;
        let scope = scope.filter(|scope| *scope != Scope::Clerk);
        need(scope, Scope::Integrator).map(|_| Self)
    }
}

fn staff(parts: &Parts, http: &HttpState, needed: Scope) -> Result<Staff, Problem> {
    if !http.has_administration() && needed > Scope::Clerk {
        // As if there were no such route: it is on the other listener.
        return Err(Problem::nothing_here());
    }
    let Grants { subject, scope } = grants(parts)?;
    // Clerks work at tills out in the shops, so the public listener allows what a clerk may do, and nothing beyond it.
    let scope =
        scope.map(|scope| if http.has_administration() { scope } else { scope.min(Scope::Clerk) });
    let id = UserId::new(subject).map_err(|_| TokenError::Invalid)?;
    let scope = need(scope, needed)?;
    let actor = Actor::staff(id, scope);
    Ok(Staff { id, scope, actor })
}

fn need(scope: Option<Scope>, needed: Scope) -> Result<Scope, Problem> {
    let detail = match needed {
        Scope::Administrator => "this needs a token with the role `admin`",
        Scope::Operator => "this needs a token with the role `operator` or `admin`",
        Scope::Integrator => "this needs a token with the role `integrator`, `operator` or `admin`",
        Scope::Clerk => "this needs a token with the role `clerk`, `operator` or `admin`",
    };
    let enough = scope.filter(|scope| *scope >= needed);
    enough.ok_or_else(|| Problem::of("forbidden", detail))
}

fn grants(parts: &Parts) -> Result<Grants, Problem> {
    match caller(parts).grants {
        Some(grants) => Ok(grants?),
        None => {
            let detail = "send the header `Authorization: Bearer <token>`";
            Err(Problem::of("invalid_token", detail))
        }
    }
}

/// Who sends the request.
///
/// # Panics
///
/// For a request that has not passed through the frame.
pub fn caller(parts: &Parts) -> &Caller {
    parts.extensions.get().expect("the frame tells who asks")
}
