//! Errors and refusals as `application/problem+json` (RFC 9457).
//!
//! A handler returns a [`Problem`] without knowing the id of the request. The frame writes the body, so problem bodies
//! are made in one place.

// All kinds of problems.
pub mod kinds;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::base::limits;
use crate::kit::jwt::TokenError;
use crate::kit::rate_limit::TooOften;
use crate::store::Failure;
use crate::store::ids::{OrderId, UserId};
use kinds::{DOCUMENT, Kind};

pub const PROBLEM_JSON: &str = "application/problem+json";

/// A reply that isn't a success.
#[derive(Clone, Debug)]
pub struct Problem {
    kind: &'static Kind,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    order_id: Option<OrderId>,
    errors: Box<[WrongMember]>,
    /// An object. Boxed, because the result of every claim has room for a problem.
    more: Option<Box<Value>>,
    /// True if the request had a token that was refused.
    token_refused: bool,
    /// Name of the rate limit that refused the request.
    too_often: Option<&'static str>,
    /// Cause of a failure, for the log; never for the client.
    failure: Option<Arc<Failure>>,
}

/// A member of a body that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WrongMember {
    /// Place of the member in the body, as a JSON pointer (RFC 6901); empty for the body itself.
    pub pointer: String,
    /// What is wrong with it, in words.
    pub detail: String,
}

/// The body of a problem (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody<'a> {
    /// Link to the documentation of this kind of problem, relative to this service.
    #[schema(format = "uri-reference")]
    r#type: String,
    /// The kind of problem, in words.
    title: &'a str,
    /// The HTTP status, repeated.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The kind of problem, for programs.
    code: &'a str,
    /// This problem, in words, with the remedy.
    detail: &'a str,
    /// Id of this request in the logs.
    request_id: &'a str,
    /// Milliseconds after which to ask again. More exact than Retry-After, and present only with that header.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    retry_after_ms: Option<u64>,
    /// The order of the first claim; with `already_claimed` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<OrderId>)]
    order_id: Option<OrderId>,
    /// All wrong members of the body; with `invalid_body` only.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(required = false)]
    errors: &'a [WrongMember],
    /// Further members of some kinds: `from` and `to` with `invalid_transition`, `pay_cents` and `currency` with
    /// `price_differs`, `redeemed_at` and `redeemed_by` with `already_redeemed`.
    #[serde(flatten)]
    more: Option<&'a Value>,
}

impl Problem {
    /// Panics if docs/problems.md doesn't have the code.
    pub fn of(code: &str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: Kind::of(code),
            detail: detail.into(),
            retry_after: None,
            order_id: None,
            errors: Box::default(),
            more: None,
            token_refused: false,
            too_often: None,
            failure: None,
        }
    }

    /// The problem of a request that a layer has refused with this status; `None` for other statuses.
    pub fn of_status(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::NOT_FOUND => Some(Self::nothing_here()),
            StatusCode::METHOD_NOT_ALLOWED => Some(Self::of(
                "method_not_allowed",
                "the header Allow says which methods this path has",
            )),
            StatusCode::PAYLOAD_TOO_LARGE => Some(Self::body_too_large()),
            _ => None,
        }
    }

    pub fn nothing_here() -> Self {
        Self::of("not_found", "no operation has this path; /docs lists them all")
    }

    pub fn body_too_large() -> Self {
        let detail = format!("a body has at most {} bytes", limits::BODY_BYTES_MAX);
        Self::of("body_too_large", detail)
    }

    /// The problem of an order or a coupon that can't make this move.
    pub fn invalid_transition(what: &str, from: &'static str, to: &'static str) -> Self {
        let detail = format!("the {what} is {from}, and from there it can't become {to}");
        Self::of("invalid_transition", detail).with(json!({"from": from, "to": to}))
    }

    /// The problem of an idempotency key that was used for another request.
    pub fn key_reused(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of("idempotency_key_reused", detail)
    }

    /// The problem of an order whose price, `pay_cents`, isn't the expected one.
    pub fn price_differs(pay_cents: i64, currency: String) -> Self {
        let detail = format!(
            "the order costs {pay_cents} {currency}: show that to the payer before you pay"
        );
        Self::of("price_differs", detail)
            .with(json!({"pay_cents": pay_cents, "currency": currency}))
    }

    /// The problem of an order that another request has redeemed.
    pub fn already_redeemed(at: Option<DateTime<Utc>>, by: Option<UserId>) -> Self {
        let time = at.map(|at| format!(" at {}", at.to_rfc3339_opts(SecondsFormat::Secs, true)));
        let clerk = by.map(|by| format!(" by clerk {by}"));
        let (time, clerk) = (time.unwrap_or_default(), clerk.unwrap_or_default());
        let detail = format!("the coupon was redeemed{time}{clerk}: hand nothing out");
        Self::of("already_redeemed", detail).with(json!({"redeemed_at": at, "redeemed_by": by}))
    }

    /// The problem of a failure: whether the request took effect is unknown.
    pub fn unavailable() -> Self {
        let detail = "the outcome is unknown: ask again; a claim is safe to repeat";
        Self::of("unavailable", detail).retry_after(Duration::from_secs(1))
    }

    pub fn internal() -> Self {
        Self::of("internal", "this is a bug; the request id finds it in the log")
    }

    /// The problem of a lane that is closed until Redis has been compared with Postgres.
    pub fn recovering() -> Self {
        let detail = "Redis has been started anew or has lost data, and is being compared with Postgres: ask again";
        Self::of("recovering", detail).retry_after(limits::RECOVERING_RETRY_AFTER)
    }

    pub fn invalid_body(errors: Vec<WrongMember>) -> Self {
        let detail = match &errors[..] {
            [WrongMember { pointer, detail }] if pointer.is_empty() => format!("the body {detail}"),
            [WrongMember { pointer, detail }] => format!("`{pointer}` {detail}"),
            _ => format!("{} members of the body are wrong; `errors` names each", errors.len()),
        };
        Self { errors: errors.into(), ..Self::of("invalid_body", detail) }
    }

    pub fn wrong_member(pointer: &str, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (pointer.to_owned(), detail.into());
        Self::invalid_body(vec![WrongMember { pointer, detail }])
    }

    pub fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    /// Names the order of the first claim.
    pub fn order_id(self, order: OrderId) -> Self {
        Self { order_id: Some(order), ..self }
    }

    fn with(self, more: Value) -> Self {
        Self { more: Some(Box::new(more)), ..self }
    }

    /// The kind of problem, for programs.
    pub fn code(&self) -> &'static str {
        self.kind.code
    }

    /// Name of the rate limit that refused the request.
    pub fn too_often(&self) -> Option<&'static str> {
        self.too_often
    }

    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }

    /// Writes the problem into a reply, whose other headers stay.
    pub fn write(&self, reply: &mut Response, request_id: &str) {
        let Kind { code, status, title, .. } = self.kind;
        let body = ProblemBody {
            r#type: format!("{DOCUMENT}#{code}"),
            title,
            status: status.as_u16(),
            code,
            detail: &self.detail,
            request_id,
            retry_after_ms: self.retry_after.map(milliseconds),
            order_id: self.order_id,
            errors: &self.errors,
            more: self.more.as_deref(),
        };
        *reply.status_mut() = *status;
        *reply.body_mut() = Body::from(serde_json::to_vec(&body).unwrap_or_default());
        let headers = reply.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::CONTENT_ENCODING);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(wait) = self.retry_after {
            // Whole seconds, rounded up: a client that waits as long must not be told to wait again.
            headers.insert(header::RETRY_AFTER, text(seconds(wait).to_string()));
        }
        if *status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, self.challenge());
        }
    }

    /// How to authenticate, and the fault of a token that was refused (RFC 6750, section 3).
    fn challenge(&self) -> HeaderValue {
        let refused =
            format!(r#"Bearer error="invalid_token", error_description="{}""#, self.detail);
        let refused = self.token_refused.then(|| HeaderValue::from_str(&refused).ok());
        refused.flatten().unwrap_or(HeaderValue::from_static("Bearer"))
    }
}

/// Rounded up, like the seconds of Retry-After.
fn milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Rounded up, at least one.
fn seconds(wait: Duration) -> u128 {
    wait.as_micros().div_ceil(1_000_000).max(1)
}

fn text(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("plain ASCII is a valid header value")
}

impl IntoResponse for Problem {
    /// The frame writes the body, because only the frame knows the request's id.
    fn into_response(self) -> Response {
        let mut response = self.kind.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Failure> for Problem {
    /// The frame logs the cause; the client is told only that there was a failure.
    fn from(failure: Failure) -> Self {
        let problem = match failure {
            _ if failure.is_recovering() => Self::recovering(),
            // The same request would fail for ever.
            _ if failure.is_permanent() => Self::internal(),
            _ => Self::unavailable(),
        };
        Self { failure: Some(failure.into()), ..problem }
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        Failure::from(error).into()
    }
}

impl From<TooOften> for Problem {
    fn from(TooOften { bound, wait }: TooOften) -> Self {
        let detail =
            "you ask too often, and this was not carried out; wait as long as Retry-After says";
        let problem = Self::of("rate_limited", detail);
        Self { too_often: Some(bound), ..problem.retry_after(wait) }
    }
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Self {
        let problem = match error {
            TokenError::NoKeys => Self::unavailable(),
            _ => Self::of("invalid_token", ""),
        };
        Self { detail: error.to_string().into(), token_refused: true, ..problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use private_servers::testing::bound_this_test;

    async fn written(problem: &Problem) -> (axum::http::HeaderMap, Value) {
        let mut reply = Response::default();
        problem.write(&mut reply, "name");
        let (parts, body) = reply.into_parts();
        let body = to_bytes(body, 10_000).await.expect("it is in memory");
        (parts.headers, serde_json::from_slice(&body).expect("JSON"))
    }

    #[tokio::test]
    async fn the_words_about_a_body_name_its_only_fault_or_their_number() {
        bound_this_test();
        let wrong = |pointer: &str, detail: &str| WrongMember {
            pointer: pointer.to_owned(),
            detail: detail.to_owned(),
        };
        for (errors, detail) in [
            (vec![wrong("", "has to be an object")], "the body has to be an object"),
            (vec![wrong("/title", "is missing")], "`/title` is missing"),
            (
                vec![wrong("/a", "x"), wrong("", "y")],
                "2 members of the body are wrong; `errors` names each",
            ),
        ] {
            let told = json!(errors);
            let (_, body) = written(&Problem::invalid_body(errors)).await;
            assert_eq!((&body["status"], &body["code"]), (&422.into(), &"invalid_body".into()));
            assert_eq!((&body["detail"], &body["errors"]), (&detail.into(), &told));
        }
    }

    /// Seconds and milliseconds are rounded up: a client that waits as long must not be told to wait again.
    #[tokio::test]
    async fn a_problem_tells_when_to_ask_again_in_whole_seconds_and_milliseconds() {
        bound_this_test();
        for (micros, seconds, ms) in [
            (0, "1", 0),
            (1, "1", 1),
            (1_001, "1", 2),
            (1_001_000, "2", 1_001),
            (2_000_000, "2", 2_000),
        ] {
            let (headers, body) =
                written(&Problem::recovering().retry_after(Duration::from_micros(micros))).await;
            assert_eq!(headers[header::RETRY_AFTER], seconds, "{micros}");
            assert_eq!(body["retry_after_ms"], ms, "{micros}");
        }
    }
}
