//! Errors and refusals as `application/problem+json` (RFC 9457).
//!
//! A handler returns a [`Problem`] without knowing the request's id; the outermost middleware writes
//! the body, so there is one place where problem bodies are made.

// All kinds of problems.
pub mod kinds;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use crate::kit::jwt::TokenError;
use crate::kit::rate_limit::{Policy, TooOften};
use crate::sale::Failure;
use crate::sale::coupon::values::{Cents, Currency};
use crate::sale::ids::{OrderId, UserId};
use kinds::{DOCUMENT, Kind};

/// The media type of problem bodies.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Answer to a client that isn't a success.
#[derive(Clone, Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    order_id: Option<OrderId>,
    /// Parts of few kinds. In a box, because each claim's result has room for a problem.
    parts: Option<Box<Parts>>,
    /// True for a request with a token, which was refused.
    token_refused: bool,
    /// The bound that refused the request.
    too_often: Option<Policy>,
    /// Cause of a failure, for the log; never for the client.
    failure: Option<Arc<Failure>>,
}

/// A member of a body that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WrongMember {
    /// Place of the member in the body, as a JSON pointer (RFC 6901); empty for the body itself.
    pub pointer: String,
    /// Its fault, in words.
    pub detail: String,
}

/// Parts of a body that few kinds have.
#[derive(Clone, Debug)]
enum Parts {
    /// Both states of a refused move.
    Transition { from: &'static str, to: &'static str },
    /// Wrong members of the body.
    Errors(Vec<WrongMember>),
    /// Price of an order.
    Price { pay_cents: i64, currency: String },
    /// Time and clerk of a redemption.
    Redeemed { at: Option<DateTime<Utc>>, by: Option<UserId> },
}

/// The body of a problem (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody<'a> {
    /// Link to this kind of problem in the document of all, relative to this service.
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
    /// Name of this request in the logs.
    request_id: &'a str,
    /// The order of the first claim; with `already_claimed` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<OrderId>)]
    order_id: Option<OrderId>,
    /// Present state; with `invalid_transition` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    from: Option<&'a str>,
    /// Requested state; with `invalid_transition` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    to: Option<&'a str>,
    /// Time of the redemption; with `already_redeemed` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    redeemed_at: Option<DateTime<Utc>>,
    /// The clerk, by the subject of the token; with `already_redeemed` only, unless an older version has redeemed the
    /// order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    redeemed_by: Option<UserId>,
    /// Price of the order, in minor units; with `price_differs` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Cents>)]
    pay_cents: Option<i64>,
    /// Its currency (ISO 4217); with `price_differs` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Currency>)]
    currency: Option<&'a str>,
    /// Milliseconds after which to ask again, more exactly than Retry-After; with that header only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    retry_after_ms: Option<u64>,
    /// All wrong members of the body; with `invalid_body` only.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(required = false)]
    errors: &'a [WrongMember],
}

impl Problem {
    /// A problem of this kind.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            retry_after: None,
            order_id: None,
            parts: None,
            token_refused: false,
            too_often: None,
            failure: None,
        }
    }

    /// The problem of a thing that does not exist, or not for this user.
    pub fn not_found(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// The problem of a path that no operation has.
    pub fn nothing_here() -> Self {
        Self::not_found("not_found", "no operation has this path; /docs lists them all")
    }

    /// The problem of an order or a coupon that can't make this move.
    pub fn invalid_transition(what: &str, from: &'static str, to: &'static str) -> Self {
        let detail = format!("the {what} is {from}, and from there it can't become {to}");
        let problem = Self::new(StatusCode::CONFLICT, "invalid_transition", detail);
        Self { parts: Some(Box::new(Parts::Transition { from, to })), ..problem }
    }

    /// The problem of a key under which another request has been carried out.
    pub fn key_reused(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", detail)
    }

    /// The problem of an order that has this price, and not the expected one.
    pub fn price_differs(pay_cents: i64, currency: String) -> Self {
        let detail = format!(
            "the order costs {pay_cents} {currency}: show that to the payer before you pay"
        );
        let problem = Self::new(StatusCode::CONFLICT, "price_differs", detail);
        Self { parts: Some(Box::new(Parts::Price { pay_cents, currency })), ..problem }
    }

    /// The problem of an order that another request has redeemed.
    pub fn already_redeemed(at: Option<DateTime<Utc>>, by: Option<UserId>) -> Self {
        let time = at.map(|at| format!(" at {}", at.to_rfc3339_opts(SecondsFormat::Secs, true)));
        let clerk = by.map(|by| format!(" by clerk {by}"));
        let (time, clerk) = (time.unwrap_or_default(), clerk.unwrap_or_default());
        let detail = format!("the coupon was redeemed{time}{clerk}: hand nothing out");
        let problem = Self::new(StatusCode::CONFLICT, "already_redeemed", detail);
        Self { parts: Some(Box::new(Parts::Redeemed { at, by })), ..problem }
    }

    /// The problem of a failure: whether the request took effect is unknown.
    pub fn unavailable() -> Self {
        let detail = "the outcome is unknown: ask again; a claim is safe to repeat";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
            .retry_after(Duration::from_secs(1))
    }

    /// The problem of a bug.
    pub fn internal() -> Self {
        let detail = "this is a bug; the request id finds it in the log";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    /// The problem of a lane that is closed until Redis has been compared with Postgres.
    pub fn recovering(back_in: Duration) -> Self {
        let detail = "Redis has been started anew or has lost data, and is being compared with Postgres: ask again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "recovering", detail).retry_after(back_in)
    }

    /// The problem of a body with these wrong members.
    pub fn invalid_body(errors: Vec<WrongMember>) -> Self {
        let detail = match &errors[..] {
            [WrongMember { pointer, detail }] if pointer.is_empty() => format!("the body {detail}"),
            [WrongMember { pointer, detail }] => format!("`{pointer}` {detail}"),
            _ => format!("{} members of the body are wrong; `errors` names each", errors.len()),
        };
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_body", detail);
        Self { parts: Some(Box::new(Parts::Errors(errors))), ..problem }
    }

    /// Tells the client when to ask again.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Names the order of the first claim.
    pub fn order_id(mut self, order: OrderId) -> Self {
        self.order_id = Some(order);
        self
    }

    /// The kind of problem, for programs.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Whether a token was refused, or could not be looked at.
    pub fn refuses_token(&self) -> bool {
        self.token_refused
    }

    /// True if no token is looked at for this refusal; for `invalid_token` there was a header of another scheme.
    pub fn precedes_token(&self) -> bool {
        ["not_found", "method_not_allowed", "body_too_large", "invalid_signature", "invalid_token"]
            .contains(&self.code)
            && !self.token_refused
    }

    /// The bound that refused the request.
    pub fn too_often(&self) -> Option<Policy> {
        self.too_often
    }

    /// The cause, if this is a failure.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }

    /// The body of the reply.
    pub fn body(&self, request_id: &str) -> Vec<u8> {
        let kind = Kind::of(self.code);
        debug_assert!(
            kind.is_some_and(|kind| kind.status == self.status.as_u16()),
            "the table of kinds has no {} with status {}",
            self.code,
            self.status
        );
        debug_assert!(
            self.retry_after.is_none() || kind.is_some_and(Kind::tells_when),
            "the contract of {} has no Retry-After",
            self.code
        );
        let mut body = ProblemBody {
            r#type: format!("{DOCUMENT}#{}", self.code),
            title: kind.map_or(self.code, |kind| kind.title),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
            request_id,
            order_id: self.order_id,
            from: None,
            to: None,
            redeemed_at: None,
            redeemed_by: None,
            pay_cents: None,
            currency: None,
            retry_after_ms: self.retry_after.map(milliseconds),
            errors: &[],
        };
        match self.parts.as_deref() {
            Some(Parts::Transition { from, to }) => (body.from, body.to) = (Some(*from), Some(*to)),
            Some(Parts::Errors(errors)) => body.errors = errors,
            Some(Parts::Price { pay_cents, currency }) => {
                (body.pay_cents, body.currency) = (Some(*pay_cents), Some(currency.as_str()));
            }
            Some(Parts::Redeemed { at, by }) => (body.redeemed_at, body.redeemed_by) = (*at, *by),
            None => {}
        }
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// Writes the reply.
    pub fn render(&self, request_id: &str) -> Response {
        let mut response = Response::new(Body::from(self.body(request_id)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(wait) = self.retry_after {
            // Whole seconds, rounded up: a client that waits as long must not be told to wait again.
            headers.insert(header::RETRY_AFTER, text(seconds(wait).to_string()));
        }
        if let Some(Policy { name, per_second }) = self.too_often {
            let seconds = self.retry_after.map_or(1, seconds);
            headers.insert(RATE_LIMIT_POLICY, text(format!(r#""{name}";q={per_second};w=1"#)));
            headers.insert(RATE_LIMIT, text(format!(r#""{name}";r=0;t={seconds}"#)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, self.challenge());
        }
        response
    }
}

impl Problem {
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

/// Bound of the client, and its state (draft-ietf-httpapi-ratelimit-headers, version 10). Only refusals carry them: the
/// others would cost each claim two headers.
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

impl IntoResponse for Problem {
    /// The middleware writes the body, because only the middleware knows the request's id.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Failure> for Problem {
    /// The middleware logs the cause; the client is told only of a failure.
    fn from(failure: Failure) -> Self {
        let problem = match failure.back_in() {
            Some(back_in) => Self::recovering(back_in),
            // The same request would fail for ever.
            None if failure.is_permanent() => Self::internal(),
            None => Self::unavailable(),
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
    fn from(TooOften { policy, wait }: TooOften) -> Self {
        let detail =
            "you ask too often, and this was not carried out; wait as long as Retry-After says";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail);
        Self { too_often: Some(policy), ..problem.retry_after(wait) }
    }
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Self {
        if error == TokenError::NoKeys {
            // Counted like a refused token: nobody knows whether it is one.
            let detail = error.to_string().into();
            return Self { detail, token_refused: true, ..Self::unavailable() };
        }
        let problem = Self::new(StatusCode::UNAUTHORIZED, "invalid_token", error.to_string());
        Self { token_refused: true, ..problem }
    }
}

/// The header that names a request, in both directions.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use private_servers::testing::bound_this_test;
    use serde_json::{Value, json};

    use super::*;

    /// The reply of the door to a request of this name: its status, its headers and its body.
    async fn rendered(problem: &Problem) -> (u16, axum::http::HeaderMap, Value) {
        let (parts, body) = problem.render("name").into_parts();
        let body = to_bytes(body, 10_000).await.expect("it is in memory");
        (parts.status.as_u16(), parts.headers, serde_json::from_slice(&body).expect("JSON"))
    }

    fn wrong(pointer: &str, detail: &str) -> WrongMember {
        WrongMember { pointer: pointer.to_owned(), detail: detail.to_owned() }
    }

    /// Each way to make a problem, with the members of its body beside its title, its type and its request.
    #[tokio::test]
    async fn the_body_of_a_problem_has_its_members_and_no_others() {
        bound_this_test();
        let order = "77".parse().expect("an id");
        let at: DateTime<Utc> = "2026-03-01T12:30:00.5Z".parse().expect("a time");
        let clerk = UserId::new(7).expect("an id");
        let status = StatusCode::CONFLICT;
        for (problem, expected) in [
            (
                Problem::nothing_here(),
                json!({"status": 404, "code": "not_found", "detail": "no operation has this path; /docs lists them all"}),
            ),
            (
                Problem::new(status, "already_claimed", "x").order_id(order),
                json!({"status": 409, "code": "already_claimed", "detail": "x", "order_id": "77"}),
            ),
            (
                Problem::invalid_transition("order", "paid", "unpaid"),
                json!({"status": 409, "code": "invalid_transition", "from": "paid", "to": "unpaid",
                       "detail": "the order is paid, and from there it can't become unpaid"}),
            ),
            (
                Problem::key_reused("another"),
                json!({"status": 422, "code": "idempotency_key_reused", "detail": "another"}),
            ),
            (
                Problem::price_differs(7, "EUR".to_owned()),
                json!({"status": 409, "code": "price_differs", "pay_cents": 7, "currency": "EUR",
                       "detail": "the order costs 7 EUR: show that to the payer before you pay"}),
            ),
            (
                Problem::already_redeemed(Some(at), Some(clerk)),
                json!({"status": 409, "code": "already_redeemed", "redeemed_at": "2026-03-01T12:30:00.500Z", "redeemed_by": "7",
                       "detail": "the coupon was redeemed at 2026-03-01T12:30:00Z by clerk 7: hand nothing out"}),
            ),
            (
                Problem::already_redeemed(None, None),
                json!({"status": 409, "code": "already_redeemed", "detail": "the coupon was redeemed: hand nothing out"}),
            ),
            (
                Problem::unavailable(),
                json!({"status": 503, "code": "unavailable", "retry_after_ms": 1_000,
                       "detail": "the outcome is unknown: ask again; a claim is safe to repeat"}),
            ),
        ] {
            let (status, headers, mut body) = rendered(&problem).await;
            assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
            assert_eq!(
                (body["status"].as_u64(), &body["request_id"]),
                (Some(status.into()), &"name".into())
            );
            assert_eq!(body["type"], format!("/docs/problems#{}", problem.code()));
            assert_eq!(body["title"], Kind::of(problem.code()).expect("a kind").title);
            let members = body.as_object_mut().expect("an object");
            for of_all in ["type", "title", "request_id"] {
                members.remove(of_all);
            }
            assert_eq!(body, expected);
        }
    }

    #[test]
    fn the_words_about_a_body_name_its_only_fault_or_their_number() {
        for (errors, detail) in [
            (vec![wrong("", "has to be an object")], "the body has to be an object"),
            (vec![wrong("/title", "is missing")], "`/title` is missing"),
            (
                vec![wrong("/a", "x"), wrong("", "y")],
                "2 members of the body are wrong; `errors` names each",
            ),
        ] {
            let told = json!(errors);
            let problem = Problem::invalid_body(errors);
            let body: Value = serde_json::from_slice(&problem.body("x")).expect("JSON");
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
            (1_000, "1", 1),
            (1_001, "1", 2),
            (1_000_000, "1", 1_000),
            (1_001_000, "2", 1_001),
            (2_000_001, "3", 2_001),
            (2_000_000, "2", 2_000),
            (86_400_000_000, "86400", 86_400_000),
        ] {
            let problem = Problem::recovering(Duration::from_micros(micros));
            assert_eq!(problem.code(), "recovering");
            let (_, headers, body) = rendered(&problem).await;
            assert_eq!(headers[header::RETRY_AFTER], seconds, "{micros}");
            assert_eq!(body["retry_after_ms"], ms, "{micros}");
        }
        let (_, headers, body) = rendered(&Problem::nothing_here()).await;
        assert!(!headers.contains_key(header::RETRY_AFTER) && body["retry_after_ms"].is_null());
        assert!(
            !headers.contains_key(RATE_LIMIT) && !headers.contains_key(header::WWW_AUTHENTICATE)
        );
    }

    #[tokio::test]
    async fn a_client_that_asks_too_often_is_told_its_bound() {
        bound_this_test();
        let per_second = std::num::NonZeroU32::new(5).expect("a number");
        let policy = Policy { name: "user-claims", per_second };
        for (ms, seconds) in [(0, 1), (200, 1), (1_000, 1), (1_001, 2), (3_000, 3)] {
            let problem = Problem::from(TooOften { policy, wait: Duration::from_millis(ms) });
            assert_eq!((problem.code(), problem.too_often()), ("rate_limited", Some(policy)));
            let (status, headers, body) = rendered(&problem).await;
            assert_eq!((status, body["retry_after_ms"].as_u64()), (429, Some(ms)));
            assert_eq!(headers[header::RETRY_AFTER], seconds.to_string());
            assert_eq!(headers[RATE_LIMIT_POLICY], "\"user-claims\";q=5;w=1");
            assert_eq!(headers[RATE_LIMIT], format!("\"user-claims\";r=0;t={seconds}"));
        }
        assert!(Problem::unavailable().too_often().is_none());
    }

    /// Faults of tokens: the code, whether the token was refused, and the challenge.
    #[tokio::test]
    async fn a_refused_token_is_challenged_with_its_fault() {
        bound_this_test();
        let bad =
            |words: &str| format!("Bearer error=\"invalid_token\", error_description=\"{words}\"");
        for error in [
            TokenError::Expired,
            TokenError::Early,
            TokenError::Endless,
            TokenError::Twice,
            TokenError::Invalid,
        ] {
            let problem = Problem::from(error);
            assert_eq!((problem.code(), problem.refuses_token()), ("invalid_token", true));
            assert!(!problem.precedes_token(), "{error}");
            let (status, headers, body) = rendered(&problem).await;
            assert_eq!((status, &body["detail"]), (401, &error.to_string().into()));
            assert_eq!(headers[header::WWW_AUTHENTICATE], bad(&error.to_string()));
        }
        let missing = Problem::new(StatusCode::UNAUTHORIZED, "invalid_token", "send one");
        assert!(!missing.refuses_token());
        let (_, headers, _) = rendered(&missing).await;
        assert_eq!(headers[header::WWW_AUTHENTICATE], "Bearer");
        // Nothing is known of the token, and the client may ask again; it counts all the same.
        let no_keys = Problem::from(TokenError::NoKeys);
        assert!(no_keys.refuses_token());
        let (status, headers, body) = rendered(&no_keys).await;
        assert_eq!((status, &body["code"]), (503, &"unavailable".into()));
        assert_eq!(body["detail"], TokenError::NoKeys.to_string());
        assert!(headers.contains_key(header::RETRY_AFTER));
        assert!(!headers.contains_key(header::WWW_AUTHENTICATE));
    }

    #[test]
    fn refusals_before_any_look_at_a_token_are_told_apart() {
        for (code, status, precedes) in [
            ("not_found", 404, true),
            ("method_not_allowed", 405, true),
            ("body_too_large", 413, true),
            ("invalid_signature", 403, true),
            ("invalid_token", 401, true),
            ("forbidden", 403, false),
            ("coupon_not_found", 404, false),
            ("unavailable", 503, false),
        ] {
            let problem = Problem::new(StatusCode::from_u16(status).expect("a status"), code, "x");
            assert_eq!(problem.precedes_token(), precedes, "{code}");
        }
    }

    /// The client is told only of a failure, and the log the cause.
    #[tokio::test]
    async fn a_failure_hides_its_cause_from_the_client() {
        bound_this_test();
        let problem = Problem::from(Failure::NotKept("the secret is 42"));
        let (status, _, body) = rendered(&problem).await;
        assert_eq!((status, &body["code"]), (503, &"unavailable".into()));
        assert!(!body.to_string().contains("42"), "{body}");
        let cause = problem.failure().expect("a cause").to_string();
        assert!(cause.contains("42"), "{cause}");
        assert!(Problem::unavailable().failure().is_none());
        let response = problem.into_response();
        assert_eq!(response.status(), 503);
        assert!(response.extensions().get::<Problem>().is_some(), "the door writes the body");
    }
}
