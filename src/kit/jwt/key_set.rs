//! A JSON Web Key Set (RFC 7517): public keys by which tokens are verified.

use std::fmt::{self, Display, Formatter};

use anyhow::{Context, ensure};
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

/// Public keys by algorithm; there is at least one.
pub struct KeySet {
    rs256: Vec<Key>,
    es256: Vec<Key>,
    eddsa: Vec<Key>,
}

/// Keys of kinds that are unknown here may stand among the others, so each is read by itself.
#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a set.
    ///
    /// # Errors
    ///
    /// When this is no set, or has no key for RS256, ES256 or EdDSA.
    pub fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let document: Document = serde_json::from_slice(text)
            .context("this is no JSON Web Key Set: give an object with the list `keys`")?;
        let (mut rs256, mut es256, mut eddsa) = (Vec::new(), Vec::new(), Vec::new());
        for key in document.keys {
            let Some((algorithm, key)) = usable(key) else { continue };
            match algorithm {
                Algorithm::RS256 => rs256.push(key),
                Algorithm::ES256 => es256.push(key),
                _ => eddsa.push(key),
            }
        }
        ensure!(
            rs256.len() + es256.len() + eddsa.len() > 0,
            "no key is for RS256, ES256 or EdDSA (RSA, EC with P-256, OKP with Ed25519)"
        );
        Ok(Self { rs256, es256, eddsa })
    }

    /// The keys with this algorithm.
    pub fn of(&self, algorithm: Algorithm) -> &[Key] {
        match algorithm {
            Algorithm::RS256 => &self.rs256,
            Algorithm::ES256 => &self.es256,
            Algorithm::EdDSA => &self.eddsa,
            _ => &[],
        }
    }
}

/// As in "public keys: 2 for RS256, 0 for ES256, 1 for EdDSA".
impl Display for KeySet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [rs256, es256, eddsa] = [&self.rs256, &self.es256, &self.eddsa].map(Vec::len);
        write!(f, "public keys: {rs256} for RS256, {es256} for ES256, {eddsa} for EdDSA")
    }
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
