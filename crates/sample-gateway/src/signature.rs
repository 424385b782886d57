//! Stamped signatures: `t=<seconds since 1970>,v1=<HMAC-SHA256 of the time, a dot and the message>`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};

/// Age of a signature, at most.
const AGE_MAX: Duration = Duration::from_secs(300);

/// The secret that both sides know.
pub struct Secret(Key);

impl Secret {
    pub fn new(secret: &str) -> Self {
        Self(Key::new(HMAC_SHA256, secret.as_bytes()))
    }

    pub fn stamp(&self, message: &[u8]) -> String {
        let seconds = now().as_secs();
        let tag = hmac::sign(&self.0, &[format!("{seconds}.").as_bytes(), message].concat());
        let tag: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("t={seconds},v1={tag}")
    }

    pub fn verifies(&self, message: &[u8], stamp: &str) -> bool {
        let parts = stamp.strip_prefix("t=").and_then(|rest| rest.split_once(",v1="));
        let Some((seconds, tag)) = parts else {
            return false;
        };
        let is_young = seconds
            .parse::<u64>()
            .is_ok_and(|stamped_at| now().as_secs().abs_diff(stamped_at) <= AGE_MAX.as_secs());
        let message = [format!("{seconds}.").as_bytes(), message].concat();
        is_young && decode(tag).is_some_and(|tag| hmac::verify(&self.0, &message, &tag).is_ok())
    }
}

fn decode(hexadecimal: &str) -> Option<Vec<u8>> {
    let pairs = (0..hexadecimal.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(hexadecimal.get(at..at + 2)?, 16).ok()).collect()
}

#[expect(clippy::disallowed_methods, reason = "a program of its own, without the service's clock")]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
