//! Public keys in a file, as a JSON Web Key Set (RFC 7517).
//!
//! The file is read again and again, so keys can be changed while the service runs: the issuer's key set is put there by
//! a program that fetches it. A file that can't be used changes nothing, and is logged once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use arc_swap::ArcSwap;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// A key that tokens are verified with.
pub struct Key {
    /// The `kid` of its tokens, if they have one.
    pub id: Option<String>,
    /// The key.
    pub verify: DecodingKey,
}

/// The keys of a file.
pub struct PublicKeys {
    file: PathBuf,
    /// Text of the file when it was last looked at, or the fault of that look.
    seen: Mutex<Result<String, String>>,
    keys: ArcSwap<ByAlgorithm>,
}

#[derive(Default)]
struct ByAlgorithm {
    rs256: Arc<Vec<Key>>,
    es256: Arc<Vec<Key>>,
    eddsa: Arc<Vec<Key>>,
}

/// Keys of kinds that are unknown here may stand among the others, so each is read by itself.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl PublicKeys {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// When the file can't be read, or has no key for RS256, ES256 or EdDSA.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = text_of(file)?;
        let keys = parse(&text).with_context(|| format!("{}", file.display()))?;
        Ok(Self {
            file: file.into(),
            seen: Mutex::new(Ok(text)),
            keys: ArcSwap::from_pointee(keys),
        })
    }

    /// The keys with this algorithm.
    pub fn of(&self, algorithm: Algorithm) -> Arc<Vec<Key>> {
        let keys = self.keys.load();
        match algorithm {
            Algorithm::RS256 => keys.rs256.clone(),
            Algorithm::ES256 => keys.es256.clone(),
            Algorithm::EdDSA => keys.eddsa.clone(),
            _ => Arc::default(),
        }
    }

    /// Reads the file again. If that fails, the last keys stay.
    pub fn read_again(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let found = text_of(&self.file).map_err(|error| format!("{error:#}"));
        if found == *seen {
            return;
        }
        match found.as_deref().map(parse) {
            Ok(Ok(keys)) => {
                tracing::info!(file = %self.file.display(), "the public keys of tokens have been read again");
                self.keys.store(Arc::new(keys));
            }
            Ok(Err(error)) => self.tell(&format!("{error:#}")),
            Err(error) => self.tell(error),
        }
        *seen = found;
    }

    fn tell(&self, error: &str) {
        tracing::warn!(file = %self.file.display(), error, "the public keys of tokens can't be read; the last ones stay");
    }
}

fn text_of(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))
}

fn parse(text: &str) -> anyhow::Result<ByAlgorithm> {
    let set: KeySet = serde_json::from_str(text)
        .context("this is no JSON Web Key Set: give an object with the list `keys`")?;
    let (mut rs256, mut es256, mut eddsa) = (Vec::new(), Vec::new(), Vec::new());
    for key in set.keys {
        let Some((algorithm, key)) = usable(key) else { continue };
        match algorithm {
            Algorithm::RS256 => rs256.push(key),
            Algorithm::ES256 => es256.push(key),
            _ => eddsa.push(key),
        }
    }
    let count = rs256.len() + es256.len() + eddsa.len();
    ensure!(
        count > 0,
        "no key is for RS256, ES256 or EdDSA (RSA, EC with P-256, OKP with Ed25519)"
    );
    Ok(ByAlgorithm { rs256: rs256.into(), es256: es256.into(), eddsa: eddsa.into() })
}

/// The key with its algorithm; `None` for keys of other kinds and for other uses. A secret in the set is none, because
/// the set is public.
fn usable(key: Value) -> Option<(Algorithm, Key)> {
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
    Some((algorithm, Key { id: common.key_id.clone(), verify }))
}
