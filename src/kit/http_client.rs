//! A client for other HTTP and HTTPS servers, bounded in time and size.

use std::error::Error;
use std::time::Duration;

use axum::body::{self, Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use super::public_hosts::{PublicHosts, Resolver};

/// Sends requests, and reads whole replies. Does not follow redirections.
pub struct HttpClient {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Body>,
    timeout: Duration,
    reply_bytes_max: usize,
}

impl HttpClient {
    /// A reply has to be complete within `timeout`, and may have `reply_bytes_max` bytes.
    pub fn new(timeout: Duration, reply_bytes_max: usize) -> Self {
        Self::resolving(timeout, reply_bytes_max, Resolver::default())
    }

    /// The same, for hosts that [`PublicHosts`] allows.
    pub fn to_public(timeout: Duration, reply_bytes_max: usize, hosts: PublicHosts) -> Self {
        Self::resolving(timeout, reply_bytes_max, Resolver::public(hosts))
    }

    fn resolving(timeout: Duration, reply_bytes_max: usize, resolver: Resolver) -> Self {
        let client = Client::builder(TokioExecutor::new()).build(connector(resolver));
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
        self.bounded(reply).await
    }

    /// Sends the request. Of the reply, only the status counts: its body is read, so that the connection can be used
    /// again, unless it is too large.
    ///
    /// # Errors
    ///
    /// The reason, in words, if there is no reply in time.
    pub async fn status(&self, request: Request<Body>) -> Result<StatusCode, String> {
        let reply = async { self.client.request(request).await.map_err(in_words) };
        let (head, body) = self.bounded(reply).await?.into_parts();
        let body = body::to_bytes(Body::new(body), self.reply_bytes_max);
        _ = timeout(self.timeout / 10, body).await;
        Ok(head.status)
    }

    async fn bounded<T>(
        &self,
        reply: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let no_reply = |_| Err(format!("no answer in {:?}", self.timeout));
        timeout(self.timeout, reply).await.unwrap_or_else(no_reply)
    }
}

/// Connects by HTTP or HTTPS, to addresses from this resolver. Trusts servers whose certificate comes from an authority
/// in the machine's list; `SSL_CERT_FILE` names another list. A machine without a list, like a bare container, gets the
/// list of the browsers.
fn connector(resolver: Resolver) -> HttpsConnector<HttpConnector<Resolver>> {
    let mut http = HttpConnector::new_with_resolver(resolver);
    http.enforce_http(false);
    let builder = HttpsConnectorBuilder::new()
        .with_native_roots()
        .unwrap_or_else(|_| HttpsConnectorBuilder::new().with_webpki_roots());
    builder.https_or_http().enable_http1().wrap_connector(http)
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
