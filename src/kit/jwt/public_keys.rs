//! Public keys of an issuer: a JSON Web Key Set (RFC 7517) in a file or at a URL.
//!
//! The set is read at the start, and then by one task: periodically, and soon after a token has named an unknown key.
//! Verification uses the keys in memory, so no request waits for the issuer. If the issuer doesn't answer, or not with
//! a set, the last good set stays in use for as long as that lasts: an issuer that is down logs no user out. A key that
//! the issuer removes from its set becomes invalid at the next read.

use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use arc_swap::ArcSwapOption;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, Uri, header};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::base::secret::text_of;
use crate::base::telemetry::Metrics;
use crate::kit::http_client::{HttpClient, in_words};

pub struct Key {
    /// The `kid` that tokens name it by, if any.
    pub id: Option<String>,
    /// The only algorithm that it is used with.
    pub algorithm: Algorithm,
    pub verify: DecodingKey,
}

/// Public keys, at least one.
pub struct KeySet(pub Vec<Key>);

/// A set may also have keys of unknown kinds, so each key is parsed by itself.
#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a set.
    ///
    /// # Errors
    ///
    /// When this isn't a set, or the set has no key for RS256, ES256 or EdDSA.
    pub fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let document: Document = serde_json::from_slice(text)
            .context("this is no JSON Web Key Set: give an object with the list `keys`")?;
        let keys: Vec<Key> = document.keys.into_iter().filter_map(usable).collect();
        ensure!(
            !keys.is_empty(),
            "no key is for RS256, ES256 or EdDSA (RSA, EC with P-256, OKP with Ed25519)"
        );
        Ok(Self(keys))
    }
}

/// As in "public keys: 2 for RS256, 0 for ES256, 1 for EdDSA".
impl Display for KeySet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let count = |of| self.0.iter().filter(|key| key.algorithm == of).count();
        let [rs256, es256, eddsa] =
            [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA].map(count);
        write!(f, "public keys: {rs256} for RS256, {es256} for ES256, {eddsa} for EdDSA")
    }
}

/// `None` for keys of other kinds or for other uses. A secret in the set is never used, because the set is public.
fn usable(key: Value) -> Option<Key> {
    let key: Jwk = serde_json::from_value(key).ok()?;
    let (algorithm, named) = match &key.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    let common = &key.common;
    let signs = common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature);
    let fits = common.key_algorithm.is_none_or(|algorithm| algorithm == named);
    let verify = DecodingKey::from_jwk(&key).ok().filter(|_| signs && fits)?;
    Some(Key { id: common.key_id.clone(), algorithm, verify })
}

enum Source {
    File(PathBuf),
    Url(Uri, Box<HttpClient>),
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(url, _) => url.fmt(f),
        }
    }
}

pub struct PublicKeys {
    source: Source,
    pace: Pace,
    /// The last good set; `None` before the first.
    keys: ArcSwapOption<KeySet>,
    /// Result of the last read: the document, or the fault. `None` before the first.
    seen: Mutex<Option<Result<Bytes, String>>>,
    /// Notified when a token names an unknown key.
    missed: Notify,
}

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub period: Duration,
    /// Least pause between two reads after a failure, or for an unknown key.
    pub pause: Duration,
    /// The same while there are no keys at all.
    pub pause_without_keys: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            period: limits::KEY_SET_PERIOD,
            pause: limits::KEY_SET_PAUSE,
            pause_without_keys: limits::KEY_SET_PAUSE_WITHOUT_KEYS,
        }
    }
}

impl PublicKeys {
    /// The keys in this file, which is read again every few seconds. There are none before the first
    /// [`refresh`](Self::refresh).
    pub fn in_file(path: PathBuf) -> Self {
        let period = limits::HOUSEKEEPING_PERIOD;
        Self::new(Source::File(path), Pace { period, pause: period, pause_without_keys: period })
    }

    /// The keys at this URL. There are none before the first [`refresh`](Self::refresh).
    pub fn under(url: Uri, pace: Pace, timeout: Duration) -> Self {
        Self::new(
            Source::Url(url, Box::new(HttpClient::new(timeout, limits::KEY_SET_BYTES_MAX))),
            pace,
        )
    }

    fn new(source: Source, pace: Pace) -> Self {
        let (keys, seen, missed) = (ArcSwapOption::empty(), Mutex::default(), Notify::new());
        Self { source, pace, keys, seen, missed }
    }

    /// The last good keys; `None` before the first.
    pub fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.load_full()
    }

    /// Asks for an early read, because a token named an unknown key.
    pub fn miss(&self) {
        self.missed.notify_one();
    }

    /// Reads the set whenever it is due, until `stop`.
    pub async fn keep(&self, metrics: &Metrics, stop: &CancellationToken) {
        let Pace { period, pause, pause_without_keys } = self.pace;
        let mut failed = self.keys().is_none();
        loop {
            let last = Instant::now();
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
            let Some(checked) = stop.run_until_cancelled(self.refresh()).await else { return };
            failed = checked.is_err();
            metrics.key_set_failures.increment(failed.into());
        }
    }

    /// Reads the set. On a failure, the last keys stay. Logs a result only if it differs from the last one.
    ///
    /// # Errors
    ///
    /// The reason, in words, if there is no usable set.
    pub async fn refresh(&self) -> Result<(), String> {
        let found = match self.document().await {
            Ok(document) => match KeySet::parse(&document) {
                Ok(keys) => Ok((document, keys)),
                Err(error) => Err(format!("{error:#}")),
            },
            Err(error) => Err(error),
        };
        let result = found.as_ref().map(|(document, _)| document.clone()).map_err(String::clone);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = seen.replace(result.clone()) != Some(result);
        drop(seen);
        let source = &self.source;
        match found {
            Ok((_, keys)) => {
                if is_news {
                    tracing::info!(%source, "the keys of tokens have been read; {keys}");
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
                    tracing::warn!(%source, error, "the keys of tokens can't be read; {meanwhile}");
                }
                Err(error)
            }
        }
    }

    async fn document(&self) -> Result<Bytes, String> {
        let (url, client) = match &self.source {
            Source::File(path) => return text_of(path).map(Bytes::from),
            Source::Url(url, client) => (url, client),
        };
        let request = Request::get(url)
            .header(header::ACCEPT, "application/jwk-set+json, application/json")
            .body(Body::empty())
            .map_err(in_words)?;
        let reply = client.send(request).await?;
        match reply.status() {
            StatusCode::OK => Ok(reply.into_body()),
            status => Err(format!("answered {status}")),
        }
    }
}

/// Warning about a URL without protection, with the remedy.
pub const UNPROTECTED: &str = "keys of tokens come by http: a machine on the way could give itself any user's token; let --token-jwks-url begin with https://";

/// True for a URL that a machine on the way could answer with its own keys.
pub fn is_unprotected(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    url.scheme_str() != Some("https") && !here
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSA: &str = r#""kty":"RSA","n":"AQAB","e":"AQAB""#;
    const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
    const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

    /// Each key stands beside a valid one, because a set without any is refused.
    #[test]
    fn a_key_counts_for_its_algorithm_curve_and_use() {
        let ec = |curve: &str| format!(r#""kty":"EC","crv":"{curve}","x":"{X}","y":"{Y}""#);
        let okp = |curve: &str| format!(r#""kty":"OKP","crv":"{curve}","x":"{X}""#);
        for (key, more, counts) in [
            (RSA.to_owned(), "", "1 for RS256, 0 for ES256, 1 for EdDSA"),
            (RSA.to_owned(), r#","use":"enc""#, "0 for RS256, 0 for ES256, 1 for EdDSA"),
            (RSA.to_owned(), r#","alg":"RS512""#, "0 for RS256, 0 for ES256, 1 for EdDSA"),
            (ec("P-256"), r#","alg":"ES256","use":"sig""#, "0 for RS256, 1 for ES256, 1 for EdDSA"),
            (ec("P-256"), r#","alg":"RS256""#, "0 for RS256, 0 for ES256, 1 for EdDSA"),
            (ec("P-384"), "", "0 for RS256, 0 for ES256, 1 for EdDSA"),
            (okp("Ed25519"), r#","alg":"EdDSA""#, "0 for RS256, 0 for ES256, 2 for EdDSA"),
            (r#""kty":"oct","k":"AAAA""#.to_owned(), "", "0 for RS256, 0 for ES256, 1 for EdDSA"),
            (r#""kty":"new""#.to_owned(), "", "0 for RS256, 0 for ES256, 1 for EdDSA"),
        ] {
            let beside = okp("Ed25519");
            let set = format!(r#"{{"keys":[{{{beside},"kid":"d"}},{{{key}{more},"kid":"k"}}]}}"#);
            let keys = KeySet::parse(set.as_bytes()).expect("one key counts");
            assert_eq!(keys.to_string(), format!("public keys: {counts}"), "{set}");
        }
        for refused in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#] {
            assert!(KeySet::parse(refused.as_bytes()).is_err(), "{refused}");
        }
    }

    #[test]
    fn only_https_and_this_machine_are_protected() {
        for (url, unprotected) in [
            ("https://issuer.example/keys", false),
            ("http://localhost:8080/keys", false),
            ("http://[::1]:1/keys", false),
            ("http://issuer.example/keys", true),
            ("http://10.0.0.1/keys", true),
        ] {
            assert_eq!(is_unprotected(&url.parse().unwrap()), unprotected, "{url}");
        }
    }
}
