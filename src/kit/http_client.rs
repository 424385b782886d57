//! A client for other HTTP and HTTPS servers, bounded in time and size.

use std::error::Error;
use std::time::Duration;

use axum::body::{self, Body, Bytes};
use axum::http::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

/// Sends requests, and reads whole replies. Does not follow redirections.
pub struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    timeout: Duration,
    reply_bytes_max: usize,
}

impl HttpClient {
    /// A reply has to be complete within `timeout`, and may have `reply_bytes_max` bytes.
    pub fn new(timeout: Duration, reply_bytes_max: usize) -> Self {
        let client = Client::builder(TokioExecutor::new()).build(connector());
        Self { client, timeout, reply_bytes_max }
    }

    /// Sends the request, and reads the whole reply.
    ///
    /// # Errors
    ///
    /// The reason, in words, if there is no complete reply in time.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Bytes>, String> {
        let reply = async {
            let reply = self.client.request(request).await.map_err(in_words)?;
            let (head, body) = reply.into_parts();
            let body = body::to_bytes(Body::new(body), self.reply_bytes_max).await;
            Ok(Response::from_parts(head, body.map_err(in_words)?))
        };
        let no_reply = |_| Err(format!("no answer in {:?}", self.timeout));
        timeout(self.timeout, reply).await.unwrap_or_else(no_reply)
    }
}

/// Connects by HTTP or HTTPS. Trusts servers whose certificate comes from an authority in the machine's list;
/// `SSL_CERT_FILE` names another list. A machine without a list, like a bare container, gets the list of the browsers.
pub fn connector() -> HttpsConnector<HttpConnector> {
    let builder = HttpsConnectorBuilder::new()
        .with_native_roots()
        .unwrap_or_else(|_| HttpsConnectorBuilder::new().with_webpki_roots());
    builder.https_or_http().enable_http1().build()
}

/// The error and its causes, in one line.
pub fn in_words(error: impl Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Because(&'static str, Option<Box<Because>>);

    impl fmt::Display for Because {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Because {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &(dyn Error + 'static))
        }
    }

    #[test]
    fn an_error_is_told_with_all_its_causes() {
        let cause = |words, of| Some(Box::new(Because(words, of)));
        assert_eq!(in_words(Because("no answer", None)), "no answer");
        let error = Because("no answer", cause("no connection", cause("refused", None)));
        assert_eq!(in_words(error), "no answer: no connection: refused");
    }
}
