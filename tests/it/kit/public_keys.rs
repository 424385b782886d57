//! Tokens of an issuer with a key pair, verified by the public keys in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use aws_lc_rs::{rand::SystemRandom, rsa};
use chrono::TimeDelta;
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::SecretString;
use serde_json::{Value, json};

use flash_sale::base::clock::Clock;
use flash_sale::kit::jwt::public_keys::PublicKeys;
use flash_sale::kit::jwt::{Grants, TokenError, Tokens};

use crate::support::Bounded;

/// A key pair of the issuer.
pub struct Issuer {
    algorithm: Algorithm,
    sign: EncodingKey,
    id: &'static str,
}

impl Issuer {
    pub fn all() -> [Self; 3] {
        let random = SystemRandom::new();
        let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
        let document = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der>::as_der(&pair).unwrap();
        // Behind the frame of PKCS #8 stands the key of PKCS #1.
        let rs256 = EncodingKey::from_rsa_der(&document.as_ref()[26..]);
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let es256 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let eddsa = Ed25519KeyPair::generate_pkcs8v1(&random).unwrap();
        [
            (Algorithm::RS256, rs256, "r"),
            (Algorithm::ES256, EncodingKey::from_ec_der(es256.as_ref()), "e"),
            (Algorithm::EdDSA, EncodingKey::from_ed_der(eddsa.as_ref()), "d"),
        ]
        .map(|(algorithm, sign, id)| Self { algorithm, sign, id })
    }

    pub fn public(&self) -> Value {
        let mut key = Jwk::from_encoding_key(&self.sign, self.algorithm).unwrap();
        key.common.key_id = Some(self.id.to_owned());
        key.common.public_key_use = Some(PublicKeyUse::Signature);
        serde_json::to_value(key).unwrap()
    }

    pub fn token(&self, kid: Option<&str>) -> String {
        let exp = (Clock::System.now() + TimeDelta::seconds(60)).timestamp();
        let header = Header { kid: kid.map(str::to_owned), ..Header::new(self.algorithm) };
        let payload = json!({"sub": "42", "exp": exp});
        jsonwebtoken::encode(&header, &payload, &self.sign).unwrap()
    }
}

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
pub const GRANTS: Grants = Grants::user(42);

/// A new folder of its own.
pub fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fs-keys-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir(&folder).unwrap();
    folder
}

async fn tokens(file: &Path, keys: &Value) -> (Tokens, Arc<PublicKeys>) {
    std::fs::write(file, keys.to_string()).unwrap();
    let mut tokens = Tokens::new(&SecretString::from(SECRET));
    let keys = Arc::new(PublicKeys::in_file(file.to_owned()));
    keys.refresh().bounded().await.expect("it has a key");
    tokens.accept(keys.clone());
    (tokens, keys)
}

#[tokio::test]
async fn tokens_of_each_algorithm_are_verified_by_the_public_key() {
    let folder = folder();
    let issuers = Issuer::all();
    let strangers = Issuer::all();
    let others = [json!({"kty": "oct", "k": "AAAA"}), json!({"kty": "AKP", "pub": "x"})];
    let keys: Vec<Value> = issuers.iter().map(Issuer::public).chain(others).collect();
    let (tokens, _) = tokens(&folder.join("keys.json"), &json!({ "keys": keys })).await;
    for issuer in &issuers {
        for kid in [Some(issuer.id), None, Some("unknown")] {
            assert_eq!(tokens.verify(&issuer.token(kid)), Ok(GRANTS), "{:?}", issuer.algorithm);
        }
        assert_eq!(tokens.verify(&(issuer.token(None) + "A")), Err(TokenError::Invalid));
    }
    for stranger in &strangers {
        assert_eq!(tokens.verify(&stranger.token(Some(stranger.id))), Err(TokenError::Invalid));
    }
    // The secret still counts, and is no other's key.
    let own = tokens.issue(GRANTS, Clock::System.now() + TimeDelta::seconds(60));
    assert_eq!(tokens.verify(&own), Ok(GRANTS));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The public key of an issuer, taken for a secret of HS256.
#[tokio::test]
async fn a_public_key_is_no_secret() {
    let folder = folder();
    let [rsa, ..] = Issuer::all();
    let public = rsa.public();
    let (tokens, _) = tokens(&folder.join("keys.json"), &json!({ "keys": [public.clone()] })).await;
    let secret = public["n"].as_str().unwrap().as_bytes();
    let forged =
        Issuer { algorithm: Algorithm::HS256, sign: EncodingKey::from_secret(secret), id: "r" };
    assert_eq!(tokens.verify(&forged.token(Some("r"))), Err(TokenError::Invalid));
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn keys_change_with_their_file_and_a_broken_file_changes_nothing() {
    let folder = folder();
    let file = folder.join("keys.json");
    let [first, second, _] = Issuer::all();
    let (tokens, keys) = tokens(&file, &json!({ "keys": [first.public()] })).await;
    let accepted = |issuer: &Issuer| tokens.verify(&issuer.token(None)).is_ok();
    assert_eq!((accepted(&first), accepted(&second)), (true, false));
    for broken in ["", "{", "{\"keys\":[]}", "[]"] {
        std::fs::write(&file, broken).unwrap();
        keys.refresh().bounded().await.expect_err(broken);
        assert_eq!((accepted(&first), accepted(&second)), (true, false), "{broken}");
    }
    std::fs::remove_file(&file).unwrap();
    keys.refresh().bounded().await.expect_err("it is gone");
    assert!(accepted(&first));
    std::fs::write(&file, json!({ "keys": [second.public()] }).to_string()).unwrap();
    keys.refresh().bounded().await.expect("it has a key");
    assert_eq!((accepted(&first), accepted(&second)), (false, true));
    std::fs::remove_dir_all(folder).unwrap();
}
