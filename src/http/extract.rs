//! Input: bodies, ids and queries, each refused with a problem that names the remedy.

#![expect(
    clippy::disallowed_types,
    reason = "bodies of requests: order ids in them have a type of their own"
)]

use axum::Json as Sent;
use axum::body::HttpBody;
use axum::extract::rejection::JsonRejection;
use axum::extract::{self, FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use garde::{Error, Path, Validate};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::contract::check;
use super::contract::json::Read;
use super::problem::{Problem, WrongMember};
use super::state::HttpState;
use crate::base::limits;
use crate::sale::ids::public::InPath;

/// A JSON body that is valid.
pub struct Valid<T>(pub T);

/// A JSON body that is valid; without a body, or with `null`, the default.
pub struct ValidOrDefault<T>(pub T);

/// A JSON body that is valid, and the key of the request, if it has one.
pub struct Keyed<T>(pub T, pub Option<Key>);

/// Name of a request, by which a repeat is known (draft-ietf-httpapi-idempotency-key-header).
pub struct Key {
    /// The value of the header.
    pub key: String,
    /// The body, as it was sent.
    pub body: Box<[u8]>,
}

/// The id in the path.
pub struct Id<T>(pub T);

/// The query string.
pub struct Params<T>(pub T);

/// Type of a body: read by serde, with its rules and its schema.
pub trait Body: DeserializeOwned + Validate<Context = ()> + ToSchema {}

impl<T: DeserializeOwned + Validate<Context = ()> + ToSchema> Body for T {}

impl<S: Send + Sync, T: Body> FromRequest<S> for Valid<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = raw(request, state).await?;
        valid_json(body.get().as_bytes()).map(Self)
    }
}

impl<S: Send + Sync, T: Body + Default> FromRequest<S> for ValidOrDefault<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if request.body().is_end_stream() {
            return Ok(Self(T::default()));
        }
        let body = raw(request, state).await?;
        match body.get() {
            "null" => Ok(Self(T::default())),
            body => valid_json(body.as_bytes()).map(Self),
        }
    }
}

impl<S: Send + Sync, T: Body> FromRequest<S> for Keyed<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let key = key(request.headers())?;
        let body = raw(request, state).await?;
        let body = body.get().as_bytes();
        Ok(Self(valid_json(body)?, key.map(|key| Key { key, body: body.into() })))
    }
}

/// The JSON of a body, as it was sent.
async fn raw<S: Send + Sync>(request: Request, state: &S) -> Result<Box<RawValue>, Problem> {
    Sent::<Box<RawValue>>::from_request(request, state)
        .await
        .map(|Sent(body)| body)
        .map_err(refused)
}

fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let fits = |key: &&str| {
        let length = (1..=limits::IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len());
        length && key.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match key.to_str().ok().filter(fits) {
        Some(key) if keys.next().is_none() => Ok(Some(key.to_owned())),
        _ => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_idempotency_key",
            "send the header `Idempotency-Key` once, with 1 to 255 visible ASCII characters",
        )),
    }
}

/// Reads and validates JSON from a body that is there already.
pub fn valid_json<T: Body>(body: &[u8]) -> Result<T, Problem> {
    let Sent(read) = Sent::<Read>::from_bytes(body).map_err(refused)?;
    let mut broken_rules = Vec::new();
    // serde takes a list for an object, field by field. No body of a request has a list.
    if read.repeated.is_empty() && !read.has_list {
        match T::deserialize(&read.value).map(|value| (value.validate(), value)) {
            Ok((Ok(()), value)) => return Ok(value),
            Ok((Err(report), _)) => broken_rules = report.into_inner(),
            // It speaks of Rust. The schema finds the same fault.
            Err(_) => {}
        }
    }
    Err(Problem::invalid_body(wrong_members::<T>(&read, broken_rules)))
}

/// The members that stand there twice or don't fit their schemas, or else those that break further rules of the type.
fn wrong_members<T: Body>(read: &Read, broken_rules: Vec<(Path, Error)>) -> Vec<WrongMember> {
    let twice = |pointer: &String| WrongMember {
        pointer: pointer.clone(),
        detail: "stands there twice".to_owned(),
    };
    let mut wrong: Vec<WrongMember> = read.repeated.iter().map(twice).collect();
    wrong.extend(check::wrong_members::<T>(&read.value));
    if wrong.is_empty() {
        // Rules between members. For single members the schemas say the same as the rules.
        wrong.extend(broken_rules.into_iter().map(|(path, error)| {
            let pointer = format!("/{}", path.to_string().replace('.', "/"));
            WrongMember { pointer, detail: error.to_string() }
        }));
    }
    if wrong.is_empty() {
        wrong.push(WrongMember { pointer: String::new(), detail: "can't be read".to_owned() });
    }
    wrong
}

/// The key of a request, if it has one.
pub struct RequestKey(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for RequestKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        key(&parts.headers).map(Self)
    }
}

impl<T: InPath> FromRequestParts<HttpState> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> Result<Self, Problem> {
        let path = extract::Path::<String>::from_request_parts(parts, http).await;
        let id = path.ok().and_then(|extract::Path(id)| T::read(&id, &http.app().public_ids));
        id.map(Self).ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "invalid_id", T::FORM))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + IntoParams> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if let Ok(Query(params)) = Query::try_from_uri(&parts.uri) {
            return Ok(Self(params));
        }
        // serde speaks of Rust.
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let wrong = query.map(|Query(pairs)| check::wrong_parameters::<T>(&pairs));
        let detail = match wrong {
            Ok(wrong) if !wrong.is_empty() => wrong.join("; "),
            _ => "the query can't be read".to_owned(),
        };
        Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", detail))
    }
}

/// The problem of a body that is larger than the limit.
pub fn body_too_large() -> Problem {
    let detail = format!("a body has at most {} bytes", limits::BODY_BYTES_MAX);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

fn refused(rejection: JsonRejection) -> Problem {
    let status = rejection.status();
    let malformed =
        |detail: String| Problem::new(StatusCode::BAD_REQUEST, "malformed_json", detail);
    match rejection {
        JsonRejection::MissingJsonContentType(_) => Problem::new(
            status,
            "unsupported_media_type",
            "send the body with `Content-Type: application/json`",
        ),
        _ if status == StatusCode::PAYLOAD_TOO_LARGE => body_too_large(),
        JsonRejection::BytesRejection(_) => {
            malformed("the body breaks off, or its chunks are malformed".to_owned())
        }
        rejection => malformed(rejection.body_text()),
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::Value;

    use super::*;
    use crate::base::fuzzing::Fuzz;
    use crate::sale::coupon::input::{CouponEdit, NewCoupon, Restock};

    const COUPON: &str = r#"{"kind":"flash","title":"A cup of tea","sub_title":"or coffee","rules":"one\neach","pay_cents":100,"currency":"EUR","value_cents":250,"sale":{"total":10,"opens_at":"2030-01-01T00:00:00Z","closes_at":"2030-01-02T00:00:00+02:00","durability":"replica:2"}}"#;
    const WORDS: &[&str] = &[
        "null",
        "true",
        "-1",
        "1e3",
        "5.0",
        "1e999",
        "9223372036854775808",
        "\"\"",
        "[]",
        "{}",
        ",",
        ":",
        "\\ud800",
        "\\u0000",
        "\u{202e}",
        "\"stock\":3",
        "\"stoc\\u006b\":3.0,",
        "\"kind\":\"regular\"",
        "\"revision\":2",
        "\u{feff}",
    ];

    fn seeds(seeds: &[&str]) -> Vec<Vec<u8>> {
        seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect()
    }

    /// A body that is taken fits the schema of the contract; one that is refused is a whole problem, without Rust.
    fn taken<T: Body>(input: &[u8]) -> Option<T> {
        match valid_json::<T>(input) {
            Ok(body) => {
                let Read { value, repeated, .. } =
                    serde_json::from_slice(input).expect("it is JSON");
                assert_eq!(check::wrong_members::<T>(&value), [], "{value}");
                assert!(repeated.is_empty(), "{value}");
                Some(body)
            }
            Err(problem) => {
                let body: Value = serde_json::from_slice(&problem.body("x")).expect("it is JSON");
                assert!([400, 422].contains(&body["status"].as_u64().expect("a status")), "{body}");
                for rust in ["crate::", "Option<", "i64", "u64"] {
                    assert!(!body["detail"].as_str().expect("words").contains(rust), "{body}");
                }
                None
            }
        }
    }

    /// A body that was taken, written and read again is the same.
    fn again<T: Body + Serialize>(body: T) {
        let once = serde_json::to_value(&body).expect("it can be written");
        // What is written names members without a value, too.
        let again: T = serde_json::from_value(once.clone()).expect("it can be read");
        assert_eq!(serde_json::to_value(&again).expect("it can be written"), once);
    }

    #[test]
    fn fuzz_new_coupons() {
        let seeds = seeds(&[
            COUPON,
            r#"{"kind":"regular","title":"t","pay_cents":1,"value_cents":2}"#,
            r#"{"kind":"flash","title":"t","pay_cents":1.0,"value_cents":2,"sale":{"stock":1,"opens_at":"2030-01-01T00:00:00Z","closes_at":"2030-01-01T00:00:00.001Z"}}"#,
        ]);
        Fuzz { target: "new-coupons", seeds, words: WORDS }
            .run(|input| taken::<NewCoupon>(input).into_iter().for_each(again));
    }

    #[test]
    fn fuzz_changes_of_coupons() {
        let seeds = seeds(&[
            r#"{"revision":2,"title":"t","sale":{"total":5,"closes_at":"2031-01-01T00:00:00Z"}}"#,
            r#"{"units":5,"key":"spring"}"#,
            COUPON,
        ]);
        Fuzz { target: "changes-of-coupons", seeds, words: WORDS }.run(|input| {
            taken::<CouponEdit>(input);
            taken::<Restock>(input);
        });
    }
}
