//! Signatures of messages between servers: HMAC-SHA256 (RFC 2104) over the bytes as they were sent, in hexadecimal.
//!
//! A signature proves who sent a message, and that it is unchanged. A plain signature doesn't prove when: its receiver
//! has to handle a message that comes twice. A stamped signature (`t=1700000000,v1=<hexadecimal>`, over the time, a dot
//! and the message) is valid for [`limits::SIGNATURE_AGE_MAX`].

use arc_swap::ArcSwap;
use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretString};

use crate::base::clock::Clock;
use crate::base::limits;

/// Signs with one secret. Verifies with that one, and with the previous one during a rotation.
pub struct Signatures {
    keys: ArcSwap<Keys>,
}

struct Keys {
    key: Key,
    previous: Option<Key>,
}

impl Signatures {
    /// Signatures with one secret, which both sides know.
    pub fn new(secret: &SecretString) -> Self {
        Self::changing(secret, None)
    }

    /// Signs with `secret`, and also accepts signatures made with `previous`.
    pub fn changing<S: ExposeSecret<str>>(secret: &S, previous: Option<&S>) -> Self {
        Self { keys: ArcSwap::from_pointee(Keys::new(secret, previous)) }
    }

    /// Replaces the secrets.
    pub fn change<S: ExposeSecret<str>>(&self, secret: &S, previous: Option<&S>) {
        self.keys.store(Keys::new(secret, previous).into());
    }

    /// Signs these bytes: 64 hexadecimal digits.
    pub fn sign(&self, message: &[u8]) -> String {
        let tag = hmac::sign(&self.keys.load().key, message);
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Signs these bytes together with the time.
    pub fn stamp(&self, message: &[u8], now: DateTime<Utc>) -> String {
        let seconds = now.timestamp();
        format!("t={seconds},v1={}", self.sign(&stamped(&seconds.to_string(), message)))
    }

    /// Whether `signature` is valid for these bytes, compared in constant time.
    pub fn verifies(&self, message: &[u8], signature: &str) -> bool {
        let Some(tag) = decode(signature) else {
            return false;
        };
        let keys = self.keys.load();
        let keys = [Some(&keys.key), keys.previous.as_ref()];
        keys.into_iter().flatten().any(|key| hmac::verify(key, message, &tag).is_ok())
    }

    /// Whether `stamp` is valid for these bytes, and neither too old nor from the future.
    pub fn verifies_stamped(&self, message: &[u8], stamp: &str, now: DateTime<Utc>) -> bool {
        let parts = stamp.strip_prefix("t=").and_then(|rest| rest.split_once(",v1="));
        let Some((seconds, signature)) = parts else {
            return false;
        };
        let age = seconds.parse::<i64>().map(|stamped_at| now.timestamp().abs_diff(stamped_at));
        age.is_ok_and(|age| age <= limits::SIGNATURE_AGE_MAX.as_secs())
            && self.verifies(&stamped(seconds, message), signature)
    }
}

/// Verifies messages that another server sends.
pub struct Callbacks {
    signatures: Signatures,
    clock: Clock,
    stamped_only: bool,
}

impl Callbacks {
    /// Accepts stamped signatures, and plain ones unless `stamped_only`.
    pub fn new(signatures: Signatures, clock: Clock, stamped_only: bool) -> Self {
        Self { signatures, clock, stamped_only }
    }

    pub fn signatures(&self) -> &Signatures {
        &self.signatures
    }

    /// Whether a signature must have a time.
    pub fn stamped_only(&self) -> bool {
        self.stamped_only
    }

    pub fn verifies(&self, message: &[u8], signature: &str) -> bool {
        self.signatures.verifies_stamped(message, signature, self.clock.now())
            || !self.stamped_only && self.signatures.verifies(message, signature)
    }
}

impl Keys {
    fn new<S: ExposeSecret<str>>(secret: &S, previous: Option<&S>) -> Self {
        let key = |secret: &S| Key::new(HMAC_SHA256, secret.expose_secret().as_bytes());
        Self { key: key(secret), previous: previous.map(key) }
    }
}

fn stamped(seconds: &str, message: &[u8]) -> Vec<u8> {
    [seconds.as_bytes(), b".", message].concat()
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
    fn a_secret_is_changed_without_a_gap() {
        let (old, new) = (SecretString::from("old"), SecretString::from("new"));
        let (before, during) = (Signatures::new(&old), Signatures::changing(&new, Some(&old)));
        assert!(during.verifies(b"message", &before.sign(b"message")));
        assert!(during.verifies(b"message", &Signatures::new(&new).sign(b"message")));
        assert_eq!(during.sign(b"message"), Signatures::new(&new).sign(b"message"));
        assert!(!before.verifies(b"message", &during.sign(b"message")));
    }

    #[test]
    fn a_stamp_is_good_for_five_minutes_either_way() {
        let ours = signatures("0123456789abcdef0123456789abcdef");
        let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let stamp = ours.stamp(b"message", now);
        assert!(stamp.starts_with("t=1700000000,v1="));
        for (seconds, good) in [(-301, false), (-300, true), (0, true), (300, true), (301, false)] {
            let later = now + chrono::TimeDelta::seconds(seconds);
            assert_eq!(ours.verifies_stamped(b"message", &stamp, later), good, "{seconds}");
        }
        assert!(!ours.verifies_stamped(b"massage", &stamp, now));
        let other_time = stamp.replace("1700000000", "1700000001");
        for wrong in ["", "t=", "t=1700000000", "v1=00", &other_time, &ours.sign(b"message")] {
            assert!(!ours.verifies_stamped(b"message", wrong, now), "{wrong}");
        }
    }

    #[test]
    fn only_the_right_signature_of_the_very_bytes_verifies() {
        let ours = signatures("0123456789abcdef0123456789abcdef");
        let signature = ours.sign(b"message");
        assert!(ours.verifies(b"message", &signature));
        assert!(ours.verifies(b"message", &signature.to_uppercase()));
        assert!(!ours.verifies(b"message ", &signature));
        assert!(!signatures("another").verifies(b"message", &signature));
        let longer = ["0", "00"].map(|more| format!("{signature}{more}"));
        let [one, two] = longer.each_ref().map(String::as_str);
        for wrong in ["", "0", "00", "zz", "+5", &signature[1..], &signature[2..], one, two] {
            assert!(!ours.verifies(b"message", wrong), "{wrong}");
        }
    }

    #[test]
    fn plain_callbacks_are_believed_unless_they_have_to_be_stamped() {
        let secret = "0123456789abcdef0123456789abcdef";
        let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let plain = signatures(secret).sign(b"message");
        let stamped = |seconds| {
            signatures(secret).stamp(b"message", now + chrono::TimeDelta::seconds(seconds))
        };
        for stamped_only in [false, true] {
            let callbacks = Callbacks::new(signatures(secret), Clock::manual(now), stamped_only);
            assert_eq!(callbacks.stamped_only(), stamped_only);
            for (signature, good) in [
                (plain.clone(), !stamped_only),
                (stamped(0), true),
                (stamped(-300), true),
                (stamped(-301), false),
                (stamped(301), false),
                (signatures("another").sign(b"message"), false),
                (signatures("another").stamp(b"message", now), false),
                (String::new(), false),
            ] {
                assert_eq!(callbacks.verifies(b"message", &signature), good, "{signature}");
            }
        }
    }
}
