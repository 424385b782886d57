//! A key set that an issuer serves under a URL.
//!
//! The set is fetched at the start, and then by one task: periodically, and soon after a token has named a key that is
//! unknown. Verification only reads the keys that are there, so no request waits for the issuer. When the issuer doesn't
//! answer, or not with a set, the last good one stays, for as long as that lasts: an issuer that is away logs no user out.
//! A key that the issuer takes out of its set counts no more after the next look.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, Uri, header};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::key_set::KeySet;
use crate::base::limits;
use crate::base::telemetry::Metrics;
use crate::kit::http_client::{HttpClient, in_words};

/// The keys that an issuer serves.
pub struct KeyUrl {
    url: Uri,
    client: HttpClient,
    pace: Pace,
    /// The last good set; none before the first one.
    keys: ArcSwapOption<KeySet>,
    /// Result of the last look: the document, or the fault.
    seen: Mutex<Option<Result<Bytes, String>>>,
    /// Told when a token names a key that is unknown.
    missed: Notify,
}

/// Times of the looks at a URL.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time for a look.
    pub timeout: Duration,
    /// Period of the looks.
    pub period: Duration,
    /// Pause between two looks, at least, after a failure or for an unknown key.
    pub pause: Duration,
    /// The same while there are no keys at all.
    pub pause_without_keys: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            timeout: limits::KEY_SET_TIMEOUT,
            period: limits::KEY_SET_PERIOD,
            pause: limits::KEY_SET_PAUSE,
            pause_without_keys: limits::KEY_SET_PAUSE_WITHOUT_KEYS,
        }
    }
}

impl KeyUrl {
    /// The keys under this URL; none before the first [`look`](Self::look).
    pub fn new(url: Uri, pace: Pace) -> Self {
        Self {
            url,
            client: HttpClient::new(pace.timeout, limits::KEY_SET_BYTES_MAX),
            pace,
            keys: ArcSwapOption::empty(),
            seen: Mutex::default(),
            missed: Notify::new(),
        }
    }

    /// The last good keys; `None` before the first ones.
    pub fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.load_full()
    }

    /// Asks for a look: a token has named a key that is unknown.
    pub fn miss(&self) {
        self.missed.notify_one();
    }

    /// Looks whenever it is time, until the stop.
    pub async fn keep(&self, metrics: &Metrics, stop: &CancellationToken) {
        let Pace { period, pause, pause_without_keys, .. } = self.pace;
        loop {
            let last = Instant::now();
            let failed = !matches!(*self.seen(), Some(Ok(_)));
            let pause = if self.keys().is_some() { pause } else { pause_without_keys };
            let missed = async {
                self.missed.notified().await;
                sleep_until(last + pause).await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(last + if failed { pause } else { period }) => {}
                () = missed => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                looked = self.look() => if looked.is_err() {
                    metrics.key_set_failures.increment(1);
                },
            }
        }
    }

    /// Fetches the set. If that fails, the last keys stay. Logs a result that is another than the last one.
    ///
    /// # Errors
    ///
    /// Without a set that can be used; the reason, in words.
    pub async fn look(&self) -> Result<(), String> {
        let found = self.fetch().await;
        let result = match &found {
            Ok((document, _)) => Ok(document.clone()),
            Err(error) => Err(error.clone()),
        };
        let is_news = self.seen().replace(result.clone()).as_ref() != Some(&result);
        match found {
            Ok((_, keys)) => {
                if is_news {
                    tracing::info!(url = %self.url, "the keys of tokens have been fetched; {keys}");
                }
                self.keys.store(Some(Arc::new(keys)));
                Ok(())
            }
            Err(error) => {
                if is_news {
                    let meanwhile = match self.keys() {
                        Some(_) => "the last ones stay",
                        None => "until they can be, tokens of their issuer are answered 503",
                    };
                    tracing::warn!(url = %self.url, error, "the keys of tokens can't be fetched; {meanwhile}");
                }
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> Result<(Bytes, KeySet), String> {
        let request = Request::get(&self.url)
            .header(header::ACCEPT, "application/jwk-set+json, application/json")
            .body(Body::empty())
            .map_err(in_words)?;
        let reply = self.client.send(request).await?;
        if reply.status() != StatusCode::OK {
            return Err(format!("answered {}", reply.status()));
        }
        let document = reply.into_body();
        let keys = KeySet::parse(&document).map_err(|error| format!("{error:#}"))?;
        Ok((document, keys))
    }

    fn seen(&self) -> MutexGuard<'_, Option<Result<Bytes, String>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cost of a URL that is unprotected, and the remedy.
pub const UNPROTECTED: &str = "keys of tokens come by http: a machine on the way could give itself any user's token; let --token-jwks-url begin with https://";

/// True for a URL to which a machine on the way could answer with keys of its own.
pub fn is_unprotected(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    url.scheme_str() != Some("https") && !here
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use private_servers::testing::bound_this_test;
    use tokio::time::timeout;

    use super::super::{TokenError, Tokens};
    use super::*;

    #[test]
    fn only_https_and_this_machine_are_protected() {
        for (url, unprotected) in [
            ("https://issuer.example/keys", false),
            ("http://localhost:8080/keys", false),
            ("http://127.0.0.1/keys", false),
            ("http://[::1]:1/keys", false),
            ("http://issuer.example/keys", true),
            ("http://10.0.0.7/keys", true),
            ("http://localhost.example/keys", true),
        ] {
            assert_eq!(is_unprotected(&url.parse().unwrap()), unprotected, "{url}");
        }
    }

    /// A token that no key has signed.
    fn token(algorithm: &str, kid: Option<&str>) -> String {
        let mut header = serde_json::json!({ "alg": algorithm });
        if let Some(kid) = kid {
            header["kid"] = kid.into();
        }
        let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let payload = serde_json::json!({"sub": "42", "exp": 4_000_000_000_i64});
        format!("{}.{}.AAAA", part(header), part(payload))
    }

    #[tokio::test]
    async fn a_look_is_asked_for_by_a_token_with_an_unknown_key_and_by_no_other() {
        bound_this_test();
        let set = |ids: &[&str]| {
            let key = |id: &&str| {
                format!(
                    r#"{{"kty":"OKP","crv":"Ed25519","kid":"{id}","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}"#
                )
            };
            let keys: Vec<String> = ids.iter().map(key).collect();
            KeySet::parse(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes()).expect("a set")
        };
        for (ids, algorithm, kid, refusal, is_missed) in [
            (&[][..], "EdDSA", Some("a"), TokenError::NoKeys, true),
            (&[], "EdDSA", None, TokenError::NoKeys, false),
            (&["a"], "EdDSA", Some("a"), TokenError::Invalid, false),
            (&["a", "b"], "EdDSA", Some("a"), TokenError::Invalid, false),
            (&["a", "b"], "EdDSA", Some("c"), TokenError::Invalid, true),
            (&["a"], "EdDSA", None, TokenError::Invalid, false),
            (&["a"], "RS256", Some("a"), TokenError::Invalid, true),
            (&[], "ES256", Some("a"), TokenError::NoKeys, true),
            (&[], "HS512", Some("a"), TokenError::Invalid, false),
            (&[], "HS256", Some("a"), TokenError::Invalid, false),
        ] {
            let url = Uri::from_static("http://localhost/keys");
            let url = Arc::new(KeyUrl::new(url, Pace::default()));
            url.keys.store((!ids.is_empty()).then(|| Arc::new(set(ids))));
            let mut tokens = Tokens::new(&"0123456789abcdef0123456789abcdef".into());
            tokens.accept_keys_under(url.clone());
            assert!(tokens.key_url().is_some());
            let verdict = tokens.verify(&token(algorithm, kid));
            assert_eq!(verdict, Err(refusal), "{ids:?} {algorithm} {kid:?}");
            let missed = timeout(Duration::ZERO, url.missed.notified()).await.is_ok();
            assert_eq!(missed, is_missed, "{ids:?} {algorithm} {kid:?}");
        }
    }
}
