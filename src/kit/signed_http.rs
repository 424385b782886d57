//! A client for another server: JSON requests, stamped with a signature (`kit/signature.rs`), bounded in time and size.

use std::time::Duration;

use axum::body::{self, Body};
use axum::http::{Method, Request, StatusCode, Uri, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::base::clock::Clock;
use crate::kit::signature::Signatures;

/// Sends signed requests to one server.
pub struct SignedClient {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    /// Where the server's paths begin, without a slash at its end.
    base: String,
    signatures: Signatures,
    clock: Clock,
    timeout: Duration,
    reply_bytes_max: usize,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The server refuses this request, and will refuse it again.
    #[error("refused with {0}: {1}")]
    Refused(StatusCode, String),
    /// The outcome is unknown: no answer in time, none that can be read, or an error of the server.
    #[error("{0}")]
    Unknown(String),
}

impl SignedClient {
    /// A client of the server whose paths begin with `base`; an answer has to come within `timeout`.
    pub fn new(
        base: &Uri,
        signatures: Signatures,
        clock: Clock,
        timeout: Duration,
        reply_bytes_max: usize,
    ) -> Self {
        let connector =
            HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let base = base.to_string().trim_end_matches('/').to_owned();
        Self { client, base, signatures, clock, timeout, reply_bytes_max }
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
        let message = serde_json::to_vec(request).map_err(unknown)?;
        let stamp = self.signatures.stamp(&message, self.clock.now());
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-signature", stamp)
            .body(Body::from(message))
            .map_err(unknown)?;
        let answered = timeout(self.timeout, self.answer(request)).await;
        let (status, bytes) = answered
            .map_err(|_| NoAnswer::Unknown(format!("no answer in {:?}", self.timeout)))??;
        if status.is_client_error() {
            let words = String::from_utf8_lossy(&bytes).chars().take(200).collect();
            return Err(NoAnswer::Refused(status, words));
        }
        if !status.is_success() {
            return Err(NoAnswer::Unknown(format!("answered {status}")));
        }
        serde_json::from_slice(&bytes).map_err(unknown)
    }

    async fn answer(&self, request: Request<Body>) -> Result<(StatusCode, body::Bytes), NoAnswer> {
        let reply = self.client.request(request).await.map_err(unknown)?;
        let status = reply.status();
        let bytes = body::to_bytes(Body::new(reply.into_body()), self.reply_bytes_max).await;
        Ok((status, bytes.map_err(unknown)?))
    }
}

fn unknown(error: impl std::error::Error) -> NoAnswer {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    NoAnswer::Unknown(words)
}
