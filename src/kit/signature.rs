//! Signed messages between servers: HMAC-SHA256 (RFC 2104) over the bytes as they were sent, in hexadecimal.
//!
//! A signature proves the sender of a message, and that the message is unchanged. A signature proves no time: a
//! receiver must be able to receive a message twice.

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use secrecy::{ExposeSecret, SecretString};

/// Signs and verifies with one secret.
pub struct Signatures {
    key: Key,
}

impl Signatures {
    /// Signatures by the secret that both sides know.
    pub fn new(secret: &SecretString) -> Self {
        Self { key: Key::new(HMAC_SHA256, secret.expose_secret().as_bytes()) }
    }

    /// The signature of these bytes: 64 hexadecimal digits.
    pub fn sign(&self, message: &[u8]) -> String {
        let tag = hmac::sign(&self.key, message);
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether this is the signature of these bytes. The time is the same for a wrong one and the right one.
    pub fn verifies(&self, message: &[u8], signature: &str) -> bool {
        decode(signature).is_some_and(|tag| hmac::verify(&self.key, message, &tag).is_ok())
    }
}

fn decode(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = hexadecimal
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signatures(secret: &str) -> Signatures {
        Signatures::new(&SecretString::from(secret))
    }

    #[test]
    fn it_is_hmac_sha256() {
        // RFC 4231, test case 2.
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signatures("Jefe").sign(b"what do ya want for nothing?"), expected);
    }

    #[test]
    fn only_the_right_signature_of_the_very_bytes_verifies() {
        let ours = signatures("0123456789abcdef0123456789abcdef");
        let signature = ours.sign(b"message");
        assert!(ours.verifies(b"message", &signature));
        assert!(ours.verifies(b"message", &signature.to_uppercase()));
        assert!(!ours.verifies(b"message ", &signature));
        assert!(!signatures("another").verifies(b"message", &signature));
        for wrong in
            ["", "0", "00", "zz", "+5", &signature[1..], &signature[2..], &format!("{signature}00")]
        {
            assert!(!ours.verifies(b"message", wrong), "{wrong}");
        }
    }
}
