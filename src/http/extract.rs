//! Input: bodies, ids and queries, each refused with a problem that names the remedy.

use std::str::FromStr;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use garde::Validate;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::problem::Problem;
use crate::base::limits;
use crate::sale::ids::InvalidId;

/// A JSON body that is valid.
pub struct Valid<T>(pub T);

/// The id in the path.
pub struct Id<T>(pub T);

/// The query string.
pub struct Params<T>(pub T);

impl<S, T> FromRequest<S> for Valid<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Validate<Context = ()>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let Json(body) =
            Json::<Box<RawValue>>::from_request(request, state).await.map_err(refused)?;
        valid_json(body.get().as_bytes()).map(Self)
    }
}

/// Reads and validates JSON from a body that is there already.
pub fn valid_json<T: DeserializeOwned + Validate<Context = ()>>(body: &[u8]) -> Result<T, Problem> {
    let Json(value) = Json::<T>::from_bytes(body).map_err(refused)?;
    // serde takes a list for an object, field by field. No body of a request has a list.
    if serde_json::from_slice(body).is_ok_and(|value| has_list(&value)) {
        return Err(invalid_body("a list stands where an object is meant".to_owned()));
    }
    validated(value)
}

fn has_list(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(members) => members.values().any(has_list),
        _ => false,
    }
}

fn validated<T: Validate<Context = ()>>(value: T) -> Result<T, Problem> {
    match value.validate() {
        Ok(()) => Ok(value),
        Err(report) => Err(invalid_body(report.to_string().trim_end().replace('\n', "; "))),
    }
}

impl<S: Send + Sync, T: FromStr<Err = InvalidId>> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(id)| id.parse().ok());
        id.map(Self).ok_or_else(|| {
            Problem::new(StatusCode::BAD_REQUEST, "invalid_id", InvalidId.to_string())
        })
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(params) = Query::from_request_parts(parts, state).await.map_err(|error| {
            Problem::new(StatusCode::BAD_REQUEST, "invalid_query", error.body_text())
        })?;
        Ok(Self(params))
    }
}

/// The problem of a body that is larger than the limit.
pub fn body_too_large() -> Problem {
    let detail = format!("a body has at most {} bytes", limits::BODY_BYTES_MAX);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

fn invalid_body(detail: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_body", detail)
}

fn refused(rejection: JsonRejection) -> Problem {
    let status = rejection.status();
    let detail = rejection.body_text();
    match rejection {
        JsonRejection::JsonDataError(_) => invalid_body(detail),
        JsonRejection::MissingJsonContentType(_) => Problem::new(
            status,
            "unsupported_media_type",
            "send the body with `Content-Type: application/json`",
        ),
        _ if status == StatusCode::PAYLOAD_TOO_LARGE => body_too_large(),
        _ => Problem::new(StatusCode::BAD_REQUEST, "malformed_json", detail),
    }
}
