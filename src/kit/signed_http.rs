//! A client for another server that exchanges signed JSON (`kit/signature.rs`), bounded in time and size.
//!
//! The signature of an answer also covers the signature of its request. So an answer can't be used for another request,
//! nor an old answer for a repeat.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response, StatusCode, Uri, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::http_client::{HttpClient, in_words};
use crate::base::clock::Clock;
use crate::base::plain_text::acts;
use crate::kit::signature::Signatures;

/// Header of the stamped signature, in both directions.
const SIGNATURE: &str = "x-signature";

pub struct SignedClient {
    client: HttpClient,
    /// URL below which the server's paths are, without a slash at the end.
    base: String,
    signatures: Signatures,
    clock: Clock,
}

#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The server refuses this request, and would refuse it again.
    #[error("refused with {0}: {1}")]
    Refused(StatusCode, String),
    /// The outcome is unknown: there is no answer in time, it can't be read, it lacks the server's signature, or the
    /// server reports an error of its own.
    #[error("{0}")]
    Unknown(String),
}

impl SignedClient {
    /// `base` is the URL below which the server's paths are. An answer has to arrive within `timeout`.
    pub fn new(
        base: &Uri,
        signatures: Signatures,
        clock: Clock,
        timeout: Duration,
        reply_bytes_max: usize,
    ) -> Self {
        let client = HttpClient::new(timeout, reply_bytes_max);
        let base = base.to_string().trim_end_matches('/').to_owned();
        Self { client, base, signatures, clock }
    }

    pub fn signatures(&self) -> &Signatures {
        &self.signatures
    }

    /// Posts `request` to `path` below the base, and reads the answer.
    ///
    /// # Errors
    ///
    /// See [`NoAnswer`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, NoAnswer> {
        let unknown = NoAnswer::Unknown;
        let message = serde_json::to_vec(request).map_err(in_words).map_err(unknown)?;
        let stamp = self.signatures.stamp(&message, self.clock.now());
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, "application/json")
            .header(SIGNATURE, &stamp)
            .body(Body::from(message))
            .map_err(in_words)
            .map_err(unknown)?;
        let answer = self.client.send(request).await.map_err(unknown)?;
        let status = answer.status();
        if !status.is_client_error() && !status.is_success() {
            return Err(NoAnswer::Unknown(format!("answered {status}")));
        }
        if !self.is_signed(&answer, &stamp) {
            let words = "without a signature of the common secret, or five minutes off";
            return Err(NoAnswer::Unknown(format!("answered {status} {words}")));
        }
        if status.is_client_error() {
            let words = String::from_utf8_lossy(answer.body());
            let plain = |one| if acts(one) { '\u{fffd}' } else { one };
            let words = words.chars().take(200).map(plain).collect();
            return Err(NoAnswer::Refused(status, words));
        }
        serde_json::from_slice(answer.body()).map_err(in_words).map_err(unknown)
    }

    /// Whether this is the server's answer to the request with this stamp.
    fn is_signed(&self, answer: &Response<Bytes>, stamp: &str) -> bool {
        let signature = answer.headers().get(SIGNATURE).and_then(|value| value.to_str().ok());
        let message = [stamp.as_bytes(), b".", answer.body()].concat();
        signature.is_some_and(|signature| {
            self.signatures.verifies_stamped(&message, signature, self.clock.now())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::IntoFuture;

    use axum::Router;
    use axum::http::HeaderMap;
    use axum::routing::post;
    use private_servers::testing::bound_this_test;
    use serde_json::{Value, json};

    use super::*;

    fn signatures() -> Signatures {
        Signatures::new(&"0123456789abcdef0123456789abcdef".into())
    }

    /// The client's result for a server that answers with this status and body, signed or not.
    async fn answered(status: u16, is_signed: bool, body: &'static str) -> Result<Value, NoAnswer> {
        let clock = Clock::manual(chrono::DateTime::UNIX_EPOCH);
        let now = clock.now();
        let answer = async move |headers: HeaderMap| {
            let stamp = headers[SIGNATURE].as_bytes();
            let message = [stamp, b".", body.as_bytes()].concat();
            let signature = signatures().stamp(&message, now);
            let signature = if is_signed { signature } else { "none".to_owned() };
            (StatusCode::from_u16(status).expect("a status"), [(SIGNATURE, signature)], body)
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}/", listener.local_addr().expect("it is bound"));
        let base = base.parse().expect("a URL");
        let client = SignedClient::new(&base, signatures(), clock, Duration::from_secs(30), 1_000);
        let server = axum::serve(listener, Router::new().route("/do", post(answer)));
        let request = json!({"a": 1});
        tokio::select! {
            _ = server.into_future() => panic!("the server ends"),
            answer = client.post("/do", &request) => answer,
        }
    }

    #[tokio::test]
    async fn an_answer_counts_with_its_signature_and_an_error_of_the_server_never() {
        bound_this_test();
        for (status, is_signed, body, outcome) in [
            (200, true, r#"{"b":2}"#, r#"Ok(Object {"b": Number(2)})"#),
            (200, false, r#"{"b":2}"#, "without a signature"),
            (200, true, "no JSON", "Unknown"),
            (
                400,
                true,
                "gone\u{1b}[2J\u{9b}\u{202e}\r\n",
                "gone\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
            ),
            (400, true, "no such thing", r#"Err(Refused(400, "no such thing"))"#),
            (422, false, "no such thing", "without a signature"),
            (302, true, "elsewhere", r#"Err(Unknown("answered 302 Found"))"#),
            (500, true, "broken", r#"Err(Unknown("answered 500 Internal Server Error"))"#),
        ] {
            let answer = format!("{:?}", answered(status, is_signed, body).await);
            assert!(answer.contains(outcome), "{status} {is_signed} {body}: {answer}");
            assert_eq!(answer.starts_with("Ok"), outcome.starts_with("Ok"), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_refusal_keeps_two_hundred_characters_of_its_words() {
        bound_this_test();
        const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123456789\
            0123456789012345678901234567890123456789012345678901234567890123456789\
            0123456789012345678901234567890123456789012345678901234567890123456789";
        let Err(NoAnswer::Refused(_, words)) = answered(409, true, LONG).await else {
            panic!("it is refused");
        };
        assert_eq!((LONG.len(), words.as_str()), (210, &LONG[..200]));
    }
}
