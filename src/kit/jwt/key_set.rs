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

#[cfg(test)]
mod tests {
    use super::*;

    const RSA: &str = r#""kty":"RSA","n":"AQAB","e":"AQAB""#;
    const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
    const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

    /// Each key stands beside one that counts: a set without any is refused.
    #[test]
    fn a_key_counts_for_its_algorithm_curve_and_use() {
        let ec = |curve: &str| format!(r#""kty":"EC","crv":"{curve}","x":"{X}","y":"{Y}""#);
        let okp = |curve: &str| format!(r#""kty":"OKP","crv":"{curve}","x":"{X}""#);
        for (key, more, [rs256, es256, eddsa]) in [
            (RSA.to_owned(), "", [1, 0, 0]),
            (RSA.to_owned(), r#","use":"sig","alg":"RS256""#, [1, 0, 0]),
            (RSA.to_owned(), r#","use":"enc""#, [0, 0, 0]),
            (RSA.to_owned(), r#","alg":"RS512""#, [0, 0, 0]),
            (ec("P-256"), "", [0, 1, 0]),
            (ec("P-256"), r#","alg":"ES256","use":"sig""#, [0, 1, 0]),
            (ec("P-256"), r#","alg":"RS256""#, [0, 0, 0]),
            (ec("P-384"), "", [0, 0, 0]),
            (okp("Ed25519"), r#","alg":"EdDSA""#, [0, 0, 1]),
            (okp("Ed25519"), r#","use":"enc""#, [0, 0, 0]),
            (okp("P-256"), "", [0, 0, 0]),
            (r#""kty":"oct","k":"AAAA""#.to_owned(), "", [0, 0, 0]),
            (r#""kty":"new""#.to_owned(), "", [0, 0, 0]),
        ] {
            let beside = okp("Ed25519");
            let set = format!(r#"{{"keys":[{{{beside},"kid":"d"}},{{{key}{more},"kid":"k"}}]}}"#);
            let keys = KeySet::parse(set.as_bytes()).expect("one key counts");
            let algorithms = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
            let counts = algorithms.map(|algorithm| keys.of(algorithm).len());
            assert_eq!(counts, [rs256, es256, eddsa + 1], "{set}");
            assert!(keys.of(Algorithm::HS256).is_empty() && keys.of(Algorithm::ES384).is_empty());
            let words = format!(
                "public keys: {rs256} for RS256, {es256} for ES256, {} for EdDSA",
                eddsa + 1
            );
            assert_eq!(keys.to_string(), words);
            assert_eq!(keys.of(Algorithm::EdDSA)[0].id.as_deref(), Some("d"));
        }
        for refused in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#] {
            assert!(KeySet::parse(refused.as_bytes()).is_err(), "{refused}");
        }
    }
}
