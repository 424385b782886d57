//! Input: bodies, ids and queries, each refused with a problem that names the remedy.

#![expect(clippy::disallowed_types, reason = "bodies of requests, which have no tag")]

use std::fmt::Display;
use std::str::FromStr;

use axum::Json as Sent;
use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::JsonRejection;
use axum::extract::{self, FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use garde::{Error, Path, Validate};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::contract::check;
use super::contract::json::{Read, vanishes};
use super::problem::{Problem, WrongMember};
use crate::base::limits;

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
    if let Some(fault) = unfit_form(request.headers()) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            fault,
        ));
    }
    let body = Bytes::from_request(request, state).await.map_err(|error| refused(error.into()))?;
    let Sent(json) = Sent::<Box<RawValue>>::from_bytes(without_mark(&body)).map_err(refused)?;
    if vanishes(json.get()) {
        let detail = "a number in it is not 0, and too small to be read as anything else";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "malformed_json", detail));
    }
    Ok(json)
}

/// The fault of a body that isn't JSON as it is.
fn unfit_form(headers: &HeaderMap) -> Option<&'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let kind = text(header::CONTENT_TYPE).and_then(|kind| kind.split(';').next());
    let kind = kind.unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "application/json" && !(kind.starts_with("application/") && kind.ends_with("+json"))
    {
        return Some("send the body with `Content-Type: application/json`");
    }
    let coding = text(header::CONTENT_ENCODING).unwrap_or("identity");
    (coding != "identity").then_some("send the body as it is, without `Content-Encoding`")
}

/// The text behind its byte order mark, which may be ignored (RFC 8259, section 8.1).
pub fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body)
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
    let mut wrong: Vec<WrongMember> =
        read.repeated.iter().take(limits::FAULTS_TOLD_MAX).map(twice).collect();
    wrong.extend(check::wrong_members::<T>(&read.value));
    wrong.truncate(limits::FAULTS_TOLD_MAX);
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

impl<S: Send + Sync, T: FromStr<Err: Display>> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = extract::Path::<String>::from_request_parts(parts, state).await;
        // What isn't UTF-8 is no id, and gets the same words as an empty one.
        let text = path.map_or_else(|_| String::new(), |extract::Path(text)| text);
        text.parse().map(Self).map_err(|error: T::Err| {
            Problem::new(StatusCode::BAD_REQUEST, "invalid_id", error.to_string())
        })
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
        _ if status == StatusCode::PAYLOAD_TOO_LARGE => body_too_large(),
        JsonRejection::BytesRejection(_) => {
            malformed("the body breaks off, or its chunks are malformed".to_owned())
        }
        rejection => malformed(rejection.body_text()),
    }
}

#[cfg(test)]
mod tests {
    use axum::body;
    use axum::extract::DefaultBodyLimit;
    use axum::http::{HeaderName, HeaderValue};
    use private_servers::testing::bound_this_test;
    use serde::Serialize;
    use serde_json::Value;

    use super::*;
    use crate::base::fuzzing::Fuzz;
    use crate::sale::coupon::input::{CouponEdit, Move, NewCoupon, Restock};

    const COUPON: &str = r#"{"kind":"flash","title":"A cup of tea","sub_title":"or coffee","rules":"one\neach","pay_cents":100,"currency":"EUR","value_cents":250,"sale":{"total":10,"opens_at":"2030-01-01T00:00:00Z","closes_at":"2030-01-02T00:00:00+02:00"}}"#;
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

    /// The problem as its client gets it.
    fn told(problem: &Problem) -> Value {
        serde_json::from_slice(&problem.body("x")).expect("it is JSON")
    }

    fn refusal<T>(read: Result<T, Problem>) -> (u64, String) {
        let problem = told(&read.err().expect("it is refused"));
        let code = problem["code"].as_str().expect("a code").to_owned();
        (problem["status"].as_u64().expect("a status"), code)
    }

    fn request(content_type: &str, body: impl Into<body::Body>) -> Request {
        let request = Request::builder().header("content-type", content_type);
        request.body(body.into()).expect("a request")
    }

    #[test]
    fn an_idempotency_key_is_one_visible_word() {
        let (longest, too_long) = ("k".repeat(255), "k".repeat(256));
        let rows: [(&[&str], Option<Option<&str>>); 11] = [
            (&[], Some(None)),
            (&["a"], Some(Some("a"))),
            (&["!~"], Some(Some("!~"))),
            (&[&longest], Some(Some(&longest))),
            (&[&too_long], None),
            (&[""], None),
            (&["a b"], None),
            (&[" "], None),
            (&["\u{e9}"], None),
            (&["a\u{e9}"], None),
            (&["a", "a"], None),
        ];
        for (values, expected) in rows {
            let name = HeaderName::from_static("idempotency-key");
            let value = |text: &&str| HeaderValue::from_bytes(text.as_bytes()).expect("a value");
            let headers: HeaderMap =
                values.iter().map(|text| (name.clone(), value(text))).collect();
            match expected {
                Some(expected) => {
                    assert_eq!(key(&headers).unwrap().as_deref(), expected, "{values:?}")
                }
                None => {
                    let refused = (400, "invalid_idempotency_key".to_owned());
                    assert_eq!(refusal(key(&headers)), refused, "{values:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_may_be_missing_is_the_default_without_it() {
        bound_this_test();
        for (body, revision) in
            [("", None), ("null", None), ("{}", None), (r#"{"revision":3}"#, Some(3))]
        {
            let request = request("application/json", body);
            let ValidOrDefault(read) =
                ValidOrDefault::<Move>::from_request(request, &()).await.unwrap();
            assert_eq!(read.revision, revision, "{body}");
        }
        // Without a body there is no type of one.
        let bare = Request::new(body::Body::empty());
        let ValidOrDefault(read) = ValidOrDefault::<Move>::from_request(bare, &()).await.unwrap();
        assert_eq!(read.revision, None);
        let zero = ValidOrDefault::<Move>::from_request(
            request("application/json", r#"{"revision":0}"#),
            &(),
        );
        assert_eq!(refusal(zero.await), (422, "invalid_body".into()));
        let null = Valid::<Move>::from_request(request("application/json", "null"), &());
        assert_eq!(
            refusal(null.await),
            (422, "invalid_body".into()),
            "only where it may be missing"
        );
    }

    #[tokio::test]
    async fn a_keyed_body_is_kept_as_it_was_sent() {
        bound_this_test();
        let sent = r#" {"revision": 3.0} "#;
        let mut keyed = request("application/json", sent);
        keyed.headers_mut().insert("idempotency-key", HeaderValue::from_static("k"));
        let Keyed(read, key) = Keyed::<Move>::from_request(keyed, &()).await.unwrap();
        let Key { key, body } = key.expect("it has a key");
        assert_eq!((read.revision, &*key, &*body), (Some(3), "k", sent.trim().as_bytes()));
        let Keyed(_, key) =
            Keyed::<Move>::from_request(request("application/json", sent), &()).await.unwrap();
        assert!(key.is_none());
    }

    #[tokio::test]
    async fn a_body_that_can_not_be_read_is_refused_by_its_fault() {
        bound_this_test();
        let broken = futures_util::stream::iter([Ok("{"), Err("broken off")]);
        let mut large = request("application/json", "{}  ");
        DefaultBodyLimit::max(3).apply(&mut large);
        let mut fits = request("application/json", "{} ");
        DefaultBodyLimit::max(3).apply(&mut fits);
        for (what, request, expected) in [
            (
                "no type",
                Request::new(body::Body::from("{}")),
                Some((415, "unsupported_media_type")),
            ),
            ("another type", request("text/plain", "{}"), Some((415, "unsupported_media_type"))),
            ("too large", large, Some((413, "body_too_large"))),
            ("as large as may be", fits, None),
            (
                "broken off",
                request("application/json", body::Body::from_stream(broken)),
                Some((400, "malformed_json")),
            ),
            ("no JSON", request("application/json", "{"), Some((400, "malformed_json"))),
            ("JSON", request("application/json; charset=utf-8", "{}"), None),
        ] {
            let read = Valid::<Move>::from_request(request, &()).await;
            match expected {
                Some((status, code)) => {
                    assert_eq!(refusal(read), (status, code.to_owned()), "{what}")
                }
                None => assert!(read.is_ok(), "{what}"),
            }
        }
        let broken = futures_util::stream::iter([Ok("{"), Err("broken off")]);
        let broken = request("application/json", body::Body::from_stream(broken));
        let problem = Valid::<Move>::from_request(broken, &()).await.err().expect("it is refused");
        assert_eq!(told(&problem)["detail"], "the body breaks off, or its chunks are malformed");
    }

    /// A body whose type takes lists and unknown members, which no body of a request is.
    #[derive(Debug, serde::Deserialize, ToSchema, Validate)]
    struct Lax {
        /// Words.
        #[serde(default)]
        #[garde(skip)]
        words: String,
    }

    #[test]
    fn each_wrong_member_is_named_once_and_by_the_first_rule_that_finds_it() {
        let window = |title: &str, closes: &str| {
            COUPON.replace("A cup of tea", title).replace("2030-01-02T00:00:00+02:00", closes)
        };
        let title = "has to be 1 to 200 characters in one line, at least one of which can be seen, without control characters and those that turn the direction of text";
        let closes = "/sale/closes_at";
        let early = "2029-01-01T00:00:00Z";
        for (body, expected) in [
            (window("", "2030-01-02T00:00:00Z"), vec![("/title", Some(title))]),
            // A rule between members is looked at once each of them is right.
            (window("t", early), vec![(closes, None)]),
            (window("", early), vec![("/title", Some(title))]),
            (
                COUPON.replace("\"kind\":\"flash\"", "\"kind\":\"flash\",\"kind\":\"flash\""),
                vec![("/kind", Some("stands there twice"))],
            ),
            (
                window("", early).replace("{\"kind\"", "{\"kind\":1,\"kind\""),
                vec![("/kind", Some("stands there twice")), ("/title", Some(title))],
            ),
        ] {
            let problem = told(&valid_json::<NewCoupon>(body.as_bytes()).expect_err("it is wrong"));
            let errors = problem["errors"].as_array().expect("errors");
            assert_eq!(errors.len(), expected.len(), "{body}: {problem}");
            for (error, (pointer, detail)) in errors.iter().zip(expected) {
                assert_eq!(error["pointer"], pointer, "{body}");
                assert!(detail.is_none_or(|detail| error["detail"] == detail), "{problem}");
            }
        }
        assert_eq!(valid_json::<Lax>(br#"{"words":"x","y":1}"#).expect("it is right").words, "x");
        let problem =
            told(&valid_json::<Lax>(br#"{"words":"x","y":[]}"#).expect_err("it has a list"));
        assert_eq!(
            problem["errors"],
            serde_json::json!([{"pointer": "", "detail": "can't be read"}])
        );
        assert_eq!(problem["detail"], "the body can't be read");
    }

    /// A query whose schema knows less than its type.
    #[derive(Debug, serde::Deserialize, IntoParams)]
    #[into_params(parameter_in = Query)]
    struct Small {
        #[param(nullable = false)]
        limit: Option<u8>,
    }

    #[tokio::test]
    async fn a_query_is_read_or_its_faults_are_told() {
        bound_this_test();
        for (query, expected) in [
            ("", Ok(None)),
            ("limit=255", Ok(Some(255))),
            ("limit=x", Err("`limit` has to be a whole number from ")),
            ("limit=1&limit=2", Err("`limit` stands there twice")),
            ("limit=256", Err("the query can't be read")),
        ] {
            let uri = format!("/x?{query}");
            let (mut parts, ()) =
                Request::builder().uri(&uri).body(()).expect("a request").into_parts();
            let read = Params::<Small>::from_request_parts(&mut parts, &()).await;
            match expected {
                Ok(limit) => {
                    assert_eq!(read.ok().map(|Params(small)| small.limit), Some(limit), "{uri}");
                }
                Err(begins) => {
                    let problem = told(&read.err().expect("it is wrong"));
                    assert_eq!(
                        (&problem["status"], &problem["code"]),
                        (&400.into(), &"invalid_query".into())
                    );
                    assert!(
                        problem["detail"].as_str().is_some_and(|it| it.starts_with(begins)),
                        "{problem}"
                    );
                }
            }
        }
    }

    #[test]
    fn fuzz_new_coupons() {
        let seeds = seeds(&[
            COUPON,
            r#"{"kind":"regular","title":"t","pay_cents":1,"value_cents":2}"#,
            r#"{"kind":"flash","title":"t","pay_cents":1.0,"value_cents":2,"sale":{"total":1,"opens_at":"2030-01-01T00:00:00Z","closes_at":"2030-01-01T00:00:00.001Z"}}"#,
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
