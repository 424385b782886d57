//! Users with their tokens, signed before any clock starts.

use std::io::Write;

use chrono::TimeDelta;
use hyper::body::Bytes;
use hyper::header::HeaderValue;

use flash_sale::base::clock::Clock;
use flash_sale::kit::jwt::{Grants, Tokens};

/// All tokens have the same length if all users have as many digits, so one buffer holds them without gaps.
pub const FIRST_USER: i64 = 1_000_000_000;
const HOURS_VALID: i64 = 24;

/// Distinct users, each with the header that proves who they are.
pub struct Crowd {
    headers: Bytes,
    header_bytes: usize,
}

impl Crowd {
    /// Signs one token for each of `count` users from `first` on.
    pub fn sign(tokens: &Tokens, first: i64, count: usize) -> Self {
        let expires_at = Clock::System.now() + TimeDelta::hours(HOURS_VALID);
        let mut headers = Vec::new();
        for subject in (first..).take(count) {
            let token = tokens.issue(Grants::user(subject), expires_at);
            write!(headers, "Bearer {token}").expect("memory takes what is written");
        }
        let header_bytes = headers.len() / count.max(1);
        assert_eq!(headers.len(), header_bytes * count, "all tokens have the same length");
        Self { headers: headers.into(), header_bytes }
    }

    /// Number of users.
    pub fn len(&self) -> usize {
        self.headers.len().checked_div(self.header_bytes).unwrap_or(0)
    }

    /// The header `Authorization` of one of them; `None` when there aren't as many.
    pub fn header(&self, index: usize) -> Option<HeaderValue> {
        let from = index.checked_mul(self.header_bytes)?;
        if from >= self.headers.len() {
            return None;
        }
        let header = self.headers.slice(from..from + self.header_bytes);
        Some(HeaderValue::from_maybe_shared(header).expect("a token is plain ASCII"))
    }
}

/// The header of an administrator, who creates coupons.
pub fn admin_header(tokens: &Tokens) -> HeaderValue {
    let expires_at = Clock::System.now() + TimeDelta::hours(HOURS_VALID);
    let token = tokens.issue(Grants::administrator(1), expires_at);
    HeaderValue::from_str(&format!("Bearer {token}")).expect("a token is plain ASCII")
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn every_user_has_a_token_of_their_own_and_there_are_no_more() {
        let tokens = Tokens::new(&SecretString::from("0123456789abcdef0123456789abcdef"));
        let crowd = Crowd::sign(&tokens, FIRST_USER, 3);
        assert_eq!(crowd.len(), 3);
        for index in 0..3 {
            let header = crowd.header(index).unwrap();
            let token = header.to_str().unwrap().strip_prefix("Bearer ").unwrap();
            let subject = tokens.verify(token).unwrap().subject;
            assert_eq!(subject, FIRST_USER + i64::try_from(index).unwrap());
        }
        assert!(crowd.header(3).is_none());
    }
}
