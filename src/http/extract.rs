//! Input: bodies, ids and queries. Each is refused with a problem that names the remedy.

use std::fmt::Display;
use std::str::FromStr;

use axum::body::{Body as Sent, Bytes};
use axum::extract::{self, FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use garde::Validate;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;
use serde_path_to_error::Segment;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::problem::{Problem, WrongMember};
use crate::base::limits;

/// A JSON body that is valid.
pub struct Valid<T>(pub T);

/// The same, for a body whose members may be lists, but no objects.
pub struct ValidWithLists<T>(pub T);

/// A JSON body that is valid; without a body, or with `null`, the default.
pub struct ValidOrDefault<T>(pub T);

/// A JSON body that is valid, and the key of the request, if it has one.
pub struct Keyed<T>(pub T, pub Option<Key>);

/// Key of a request, by which a repeat is recognized (draft-ietf-httpapi-idempotency-key-header).
pub struct Key {
    /// The value of the header.
    pub key: String,
    /// The body, as it was sent.
    pub body: Bytes,
}

/// The header with the key, for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct KeyHeader {
    /// Key of this request, chosen by the client. A repeat by the same client under it is not carried out again
    #[param(
        rename = "Idempotency-Key",
        nullable = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]+$"
    )]
    _key: Option<String>,
}

/// The id in the path.
pub struct Id<T>(pub T);

/// The parameters of the query.
pub struct Params<T>(pub T);

/// The key of a request, if it has one.
pub struct RequestKey(pub Option<String>);

/// A body that serde reads and garde validates.
pub trait Body: DeserializeOwned + Validate<Context = ()> {}

impl<T: DeserializeOwned + Validate<Context = ()>> Body for T {}

impl<S: Send + Sync, T: Body> FromRequest<S> for Valid<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        valid_json(&json_body(request).await?).map(Self)
    }
}

impl<S: Send + Sync, T: Body> FromRequest<S> for ValidWithLists<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let body = json_body(request).await?;
        well_formed(&body)?;
        if body.starts_with(b"[") {
            return Err(Problem::wrong_member("", "is a list, and has to be an object"));
        }
        valid(&body).map(Self)
    }
}

impl<S: Send + Sync, T: Body + Default> FromRequest<S> for ValidOrDefault<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        if request.headers().get(header::CONTENT_TYPE).is_none() {
            let body = whole_body(request.into_body()).await?;
            return if body.is_empty() { Ok(Self(T::default())) } else { Err(not_json()) };
        }
        match &*json_body(request).await? {
            b"null" | b"" => Ok(Self(T::default())),
            body => valid_json(body).map(Self),
        }
    }
}

impl<S: Send + Sync, T: Body> FromRequest<S> for Keyed<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let key = key(request.headers())?;
        let body = json_body(request).await?;
        Ok(Self(valid_json(&body)?, key.map(|key| Key { key, body })))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RequestKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        key(&parts.headers).map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        query(parts.uri.query().unwrap_or_default()).map(Self)
    }
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
        _ => Err(Problem::of(
            "invalid_idempotency_key",
            "send the header `Idempotency-Key` once, with 1 to 255 visible ASCII characters",
        )),
    }
}

/// A body that claims to be JSON, without the whitespace around it.
async fn json_body(request: Request) -> Result<Bytes, Problem> {
    says_json(request.headers())?;
    let body = whole_body(request.into_body()).await?;
    // A byte order mark may be ignored (RFC 8259, section 8.1).
    let text = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&body);
    Ok(body.slice_ref(text.trim_ascii()))
}

fn says_json(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let kind = text(header::CONTENT_TYPE).and_then(|kind| kind.split(';').next());
    let kind = kind.unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "application/json" && !(kind.starts_with("application/") && kind.ends_with("+json"))
    {
        return Err(not_json());
    }
    match text(header::CONTENT_ENCODING) {
        None | Some("identity") => Ok(()),
        Some(_) => Err(Problem::of(
            "unsupported_media_type",
            "send the body as it is, without `Content-Encoding`",
        )),
    }
}

fn not_json() -> Problem {
    Problem::of("unsupported_media_type", "send the body with `Content-Type: application/json`")
}

/// Reads a whole body, for [`limits::BODY_TIMEOUT`] at most.
pub async fn whole_body(body: Sent) -> Result<Bytes, Problem> {
    match timeout(limits::BODY_TIMEOUT, Bytes::from_request(Request::new(body), &())).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(refused)) if refused.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(Problem::body_too_large())
        }
        Ok(Err(_)) => {
            let detail = "the body breaks off, or its chunks are malformed";
            Err(Problem::of("malformed_json", detail))
        }
        Err(_) => {
            let detail = "the body didn't come in time, and nothing was carried out";
            Err(Problem::of("body_too_slow", detail))
        }
    }
}

/// Parses and validates a JSON body.
pub fn valid_json<T: Body>(body: &[u8]) -> Result<T, Problem> {
    well_formed(body)?;
    // serde accepts a list in place of an object, member by member. Hardly a body of a request has a list.
    if has_list(body) {
        return Err(Problem::wrong_member("", "has a list, and no member is one"));
    }
    valid(body)
}

fn malformed(error: serde_json::Error) -> Problem {
    Problem::of("malformed_json", error.to_string())
}

fn well_formed(body: &[u8]) -> Result<(), Problem> {
    serde_json::from_slice::<IgnoredAny>(body).map(drop).map_err(malformed)
}

fn valid<T: Body>(body: &[u8]) -> Result<T, Problem> {
    let read = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(body));
    let value: T = read.map_err(|error| {
        // For serde_json, `null` in place of an enum's name is a syntax error.
        let is_json = || serde_json::from_slice::<serde_json::Value>(body).is_ok();
        match error.inner().classify() {
            Category::Data => Problem::invalid_body(vec![fault(&error)]),
            _ if is_json() => Problem::invalid_body(vec![fault(&error)]),
            _ => malformed(error.into_inner()),
        }
    })?;
    let Err(report) = value.validate() else { return Ok(value) };
    let wrong = report.into_inner().into_iter().map(|(path, error)| WrongMember {
        pointer: format!("/{}", path.to_string().replace(['.', '['], "/").replace(']', "")),
        detail: error.to_string(),
    });
    Err(Problem::invalid_body(wrong.take(limits::FAULTS_TOLD_MAX).collect()))
}

/// Whether this JSON has a list outside of its strings.
fn has_list(json: &[u8]) -> bool {
    let (mut is_text, mut is_escaped) = (false, false);
    json.iter().any(|byte| {
        is_text ^= *byte == b'"' && !is_escaped;
        is_escaped = is_text && *byte == b'\\' && !is_escaped;
        !is_text && *byte == b'['
    })
}

/// The first fault that serde finds, in terms of JSON instead of Rust.
fn fault(error: &serde_path_to_error::Error<serde_json::Error>) -> WrongMember {
    let words = error.inner().to_string();
    let words = words.rsplit_once(" at line ").map_or(&*words, |(words, _)| words);
    let mut pointer = String::new();
    for segment in error.path() {
        if let Segment::Map { key } = segment {
            pointer += &step(key);
        }
    }
    for (begin, detail) in
        [("unknown", "is unknown"), ("missing", "is missing"), ("duplicate", "stands there twice")]
    {
        let name = words.strip_prefix(begin).and_then(|rest| rest.strip_prefix(" field `"));
        if let Some((name, _)) = name.and_then(|rest| rest.split_once('`')) {
            let step = step(name);
            // For some of these faults, serde's path has the member already.
            let parent = pointer.strip_suffix(&step).unwrap_or(&pointer);
            return WrongMember { pointer: format!("{parent}{step}"), detail: detail.to_owned() };
        }
    }
    let words = match words.split_once("expected struct ") {
        Some((found, _)) => format!("{found}expected an object"),
        None => ["i64", "i32", "u64", "u32"]
            .iter()
            .fold(words.to_owned(), |words, kind| words.replace(kind, "a whole number")),
    };
    WrongMember { pointer, detail: format!("can't be read: {words}") }
}

/// The name of a member, as one more step of a JSON pointer (RFC 6901).
fn step(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

impl<S: Send + Sync, T: FromStr<Err: Display>> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = extract::Path::<String>::from_request_parts(parts, state).await;
        // A path that isn't UTF-8 is refused in the words for an empty id.
        let text = path.map_or_else(|_| String::new(), |extract::Path(text)| text);
        text.parse().map(Self).map_err(|error: T::Err| Problem::of("invalid_id", error.to_string()))
    }
}

/// Parses the query of a URL.
pub fn query<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let invalid = |words: &str| Problem::of("invalid_query", format!("it can't be read: {words}"));
    let uri = format!("/?{text}").parse().map_err(|_| invalid("it is no query"))?;
    let read = Query::try_from_uri(&uri).map(|Query(read)| read);
    read.map_err(|rejection| {
        let words = rejection.body_text();
        invalid(words.rsplit_once("query string: ").map_or(&*words, |(_, words)| words))
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::coupon::input::NewCoupon;

    const COUPON: &str = r#"{"kind":"flash","title":"t","pay_cents":1,"value_cents":2,"sale":{"total":5,"opens_at":"2030-01-01T00:00:00Z","closes_at":"2030-01-02T00:00:00Z"}}"#;

    /// Code and debug text of the problem by which a body is refused.
    fn refused<T: Body>(body: &str) -> (&'static str, String) {
        let problem = valid_json::<T>(body.as_bytes()).err().expect("it is refused");
        (problem.code(), format!("{problem:?}"))
    }

    #[test]
    fn each_fault_is_told_with_its_place() {
        assert!(valid_json::<NewCoupon>(COUPON.as_bytes()).is_ok());
        for (body, code, told) in [
            ("{".to_owned(), "malformed_json", "EOF"),
            (format!("{COUPON} x"), "malformed_json", "trailing"),
            (r#"{"a":1}}"#.to_owned(), "malformed_json", "trailing"),
            ("5".to_owned(), "invalid_body", "expected an object"),
            (COUPON.replace("\"t\"", "1"), "invalid_body", "pointer: \"/title\""),
            (COUPON.replace("{\"kind\"", "{\"title\":\"t\",\"kind\""), "invalid_body", "twice"),
            (COUPON.replace("\"total\":5", "\"total\":0"), "invalid_body", "/sale/total"),
            (COUPON.replace("\"total\":5", "\"total\":5.5"), "invalid_body", "/sale/total"),
            (COUPON.replace("\"total\":5,", ""), "invalid_body", "/sale/total"),
            (COUPON.replace("{\"kind\"", "{\"a/b\":1,\"kind\""), "invalid_body", "/a~1b"),
            (r#"["flash"]"#.to_owned(), "invalid_body", ""),
        ] {
            let refusal = refused::<NewCoupon>(&body);
            assert!(refusal.0 == code && refusal.1.contains(told), "{body}: {refusal:?}");
        }
    }

    #[derive(Debug, Deserialize, Validate)]
    struct One {
        #[garde(length(max = 20))]
        text: String,
    }

    #[test]
    fn a_list_is_no_object_and_may_stand_in_a_text() {
        assert_eq!(refused::<One>(r#"["t"]"#).0, "invalid_body");
        for text in ["[", "\\\"[", "\\\\"] {
            let body = format!(r#"{{"text":"{text}"}}"#);
            let read = valid_json::<One>(body.as_bytes()).expect("it is right");
            assert!(!read.text.is_empty(), "{body}");
        }
    }
}
