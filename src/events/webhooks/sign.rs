//! Signatures of Standard Webhooks 1.0 (<https://www.standardwebhooks.com>): HMAC-SHA256 over id, time and body.

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};

/// What a secret begins with; its bytes follow in base64.
const PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;

/// A new secret, for people to copy.
///
/// # Panics
///
/// If the system has no randomness.
pub fn new_secret() -> SecretString {
    let mut bytes = [0; SECRET_BYTES];
    rand::fill(&mut bytes).expect("the system has randomness");
    format!("{PREFIX}{}", STANDARD.encode(bytes)).into()
}

/// The value of the header `webhook-signature`: a signature by each of the secrets.
pub fn signatures(secrets: &[SecretString], id: &str, seconds: i64, body: &[u8]) -> String {
    let message = [format!("{id}.{seconds}.").as_bytes(), body].concat();
    let sign = |secret: &SecretString| {
        let secret = secret.expose_secret().strip_prefix(PREFIX).unwrap_or_default();
        let key = Key::new(HMAC_SHA256, &STANDARD.decode(secret).unwrap_or_default());
        format!("v1,{}", STANDARD.encode(hmac::sign(&key, &message)))
    };
    secrets.iter().map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification, which its libraries are tested with.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let secrets = [secret.into(), new_secret()];
        let body = br#"{"test": 2432232314}"#;
        let header = signatures(&secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        let (first, second) = header.split_once(' ').expect("one for each secret");
        assert_eq!(first, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_ne!(first, second);
    }
}
