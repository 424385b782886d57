//! Bearer tokens: JSON Web Tokens signed with HS256.
//!
//! The algorithm is fixed here; the algorithm in a token's header is only compared, never obeyed (RFC 8725, section
//! 3.1). So `alg: none` and a key confusion with RS256 fail like any bad signature.
//!
//! A token exactly like those that are issued here is verified on a short way: one header, one key that is made ready
//! once, one look at the payload. That way can only accept. About every other token the library decides.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

/// Signs and verifies tokens with one secret.
pub struct Tokens {
    sign: EncodingKey,
    verify: DecodingKey,
    validation: Validation,
    /// The first part of every token that is issued here, with the dot behind it.
    own_header: String,
    own_key: hmac::Key,
}

/// Grants of a verified token to its bearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    /// Subject: the `sub` of the token, a positive 64-bit integer.
    pub subject: i64,
    /// Whether the token says `role: "admin"`.
    pub admin: bool,
}

/// Reason why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// `exp` has passed.
    #[error("the token has expired: get a new one")]
    Expired,
    /// `nbf` is to come.
    #[error("the token isn't valid yet: its `nbf` is to come; is a clock wrong?")]
    Early,
    /// `exp` is too far away for a token that can't be called back.
    #[error(
        "the token is valid for more than ten years: its issuer has to give it an earlier `exp`"
    )]
    Endless,
    /// Any other fault. The wrong part concerns only the issuer.
    #[error(
        "the token isn't valid: it has to be signed by this service's issuer with HS256, with `exp`, and with `sub` a positive whole number as a string"
    )]
    Invalid,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    sub: String,
    exp: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<String>,
}

/// The same without a copy, and with no other field: `nbf` or `aud` are left to the library.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnPayload<'a> {
    sub: &'a str,
    exp: i64,
    role: Option<&'a str>,
}

const ADMIN: &str = "admin";
/// Longest time for which a token is accepted from now on: ten years.
const LIFETIME_SECONDS_MAX: i64 = 10 * 366 * 86_400;
/// Bytes of a payload on the short way; one that is issued here has at most 70.
const OWN_PART_BYTES_MAX: usize = 128;

impl Tokens {
    /// Signs and verifies with `secret`.
    pub fn new(secret: &SecretString) -> Self {
        let secret = secret.expose_secret().as_bytes();
        let mut validation = Validation::new(Algorithm::HS256);
        validation.leeway = 0;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "sub"]);
        let header = serde_json::to_vec(&Header::new(Algorithm::HS256));
        let header = header.expect("two short strings are JSON");
        Self {
            sign: EncodingKey::from_secret(secret),
            verify: DecodingKey::from_secret(secret),
            validation,
            own_header: URL_SAFE_NO_PAD.encode(header) + ".",
            own_key: hmac::Key::new(hmac::HMAC_SHA256, secret),
        }
    }

    /// A token with these grants, valid until `expires_at`.
    ///
    /// # Panics
    ///
    /// Never: HS256 signs any bytes.
    pub fn issue(&self, grants: Grants, expires_at: DateTime<Utc>) -> String {
        let payload = Payload {
            sub: grants.subject.to_string(),
            exp: expires_at.timestamp(),
            role: grants.admin.then(|| ADMIN.to_owned()),
        };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &payload, &self.sign)
            .expect("HS256 signs any bytes")
    }

    /// The grants of the token.
    ///
    /// # Errors
    ///
    /// When the token can't be trusted, has expired, or its subject isn't a positive 64-bit integer.
    pub fn verify(&self, token: &str) -> Result<Grants, TokenError> {
        match self.verify_own(token) {
            Some(grants) => Ok(grants),
            None => self.verify_any(token),
        }
    }

    /// The short way; `None` says nothing about the token.
    fn verify_own(&self, token: &str) -> Option<Grants> {
        let (signed, signature) = token.rsplit_once('.')?;
        let payload = signed.strip_prefix(&self.own_header)?;
        let mut buffer = [0; OWN_PART_BYTES_MAX];
        let signature = decode(signature, &mut buffer)?;
        // In constant time.
        hmac::verify(&self.own_key, signed.as_bytes(), signature).ok()?;
        let payload: OwnPayload = serde_json::from_slice(decode(payload, &mut buffer)?).ok()?;
        let subject = subject(payload.sub).filter(|_| in_time(payload.exp).is_ok())?;
        Some(Grants { subject, admin: payload.role == Some(ADMIN) })
    }

    fn verify_any(&self, token: &str) -> Result<Grants, TokenError> {
        let decoded = jsonwebtoken::decode::<Payload>(token, &self.verify, &self.validation);
        let decoded = decoded.map_err(|error| match error.kind() {
            ErrorKind::ExpiredSignature => TokenError::Expired,
            ErrorKind::ImmatureSignature => TokenError::Early,
            _ => TokenError::Invalid,
        })?;
        // Extensions that must be understood (RFC 7515, section 4.1.11), and none is.
        if decoded.header.crit.is_some() {
            return Err(TokenError::Invalid);
        }
        let payload = decoded.claims;
        in_time(payload.exp)?;
        let subject = subject(&payload.sub).ok_or(TokenError::Invalid)?;
        Ok(Grants { subject, admin: payload.role.as_deref() == Some(ADMIN) })
    }
}

/// A token is accepted until its `exp`, and not in that second any more (RFC 7519, section 4.1.4).
fn in_time(exp: i64) -> Result<(), TokenError> {
    let now = i64::try_from(jsonwebtoken::get_current_timestamp()).unwrap_or(i64::MAX);
    match exp.saturating_sub(now) {
        ..=0 => Err(TokenError::Expired),
        LIFETIME_SECONDS_MAX.. => Err(TokenError::Endless),
        _ => Ok(()),
    }
}

/// The bytes of a part of a token; `None` if they are none, or too many for the short way.
fn decode<'a>(part: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let bytes = URL_SAFE_NO_PAD.decode_slice(part, buffer).ok()?;
    buffer.get(..bytes)
}

/// A positive whole number without sign and leading zeros: `+7` and `007` parse too, but then one user would
/// have several names.
fn subject(text: &str) -> Option<i64> {
    let plain = text.bytes().all(|digit| digit.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::base::clock::Clock;

    fn tokens() -> Tokens {
        Tokens::new(&SecretString::from("0123456789abcdef0123456789abcdef"))
    }

    fn in_seconds(seconds: i64) -> DateTime<Utc> {
        Clock::System.now() + TimeDelta::seconds(seconds)
    }

    fn signed(payload: &serde_json::Value, algorithm: Algorithm) -> String {
        jsonwebtoken::encode(&Header::new(algorithm), payload, &tokens().sign).unwrap()
    }

    #[test]
    fn what_is_issued_is_granted() {
        for admin in [false, true] {
            let grants = Grants { subject: 42, admin };
            assert_eq!(tokens().verify(&tokens().issue(grants, in_seconds(60))), Ok(grants));
        }
    }

    #[test]
    fn an_expired_token_is_refused() {
        let token = tokens().issue(Grants { subject: 42, admin: false }, in_seconds(-1));
        assert_eq!(tokens().verify(&token), Err(TokenError::Expired));
    }

    #[test]
    fn only_a_positive_whole_number_is_a_subject() {
        for sub in ["0", "-1", "+7", "007", "", "x", "1.5", "9223372036854775808"] {
            let payload = serde_json::json!({"sub": sub, "exp": in_seconds(60).timestamp()});
            let token = signed(&payload, Algorithm::HS256);
            assert_eq!(tokens().verify(&token), Err(TokenError::Invalid), "{sub}");
        }
    }

    #[test]
    fn the_short_way_takes_what_is_issued_here_and_nothing_that_the_library_refuses() {
        let tokens = tokens();
        let token = tokens.issue(Grants { subject: 42, admin: true }, in_seconds(60));
        assert_eq!(tokens.verify_own(&token), tokens.verify_any(&token).ok());
        for (at, _) in token.char_indices() {
            for other in ["A", "Q", "-", "=", ".", ""] {
                let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
                assert_eq!(
                    tokens.verify_own(&changed),
                    tokens.verify_any(&changed).ok(),
                    "{changed}"
                );
            }
        }
    }

    #[test]
    fn the_short_way_leaves_what_is_unusual_to_the_library() {
        let soon = in_seconds(60).timestamp();
        for (payload, granted) in [
            (serde_json::json!({"sub": "42", "exp": soon, "iss": "another issuer"}), true),
            (serde_json::json!({"sub": "42", "exp": soon as f64 + 0.5}), false),
            (serde_json::json!({"sub": "42", "exp": soon, "aud": "another audience"}), false),
            (serde_json::json!({"sub": "42", "exp": -1}), false),
            (serde_json::json!({"sub": 42, "exp": soon}), false),
            (
                serde_json::json!({"sub": "42", "exp": soon, "nbf": in_seconds(-1).timestamp()}),
                true,
            ),
            (
                serde_json::json!({"sub": "42", "exp": soon, "nbf": in_seconds(30).timestamp()}),
                false,
            ),
            (serde_json::json!({"sub": "42", "exp": soon, "nbf": "now"}), false),
        ] {
            let token = signed(&payload, Algorithm::HS256);
            assert_eq!(tokens().verify_own(&token), None, "{payload}");
            assert_eq!(tokens().verify(&token).is_ok(), granted, "{payload}");
        }
    }

    #[test]
    fn a_token_that_is_not_valid_yet_says_so() {
        let times = serde_json::json!({"exp": in_seconds(60).timestamp(), "nbf": in_seconds(30).timestamp()});
        let mut payload = times;
        payload["sub"] = "42".into();
        let token = signed(&payload, Algorithm::HS256);
        assert_eq!(tokens().verify(&token), Err(TokenError::Early));
    }

    #[test]
    fn a_token_ends_in_its_second_and_within_ten_years() {
        let now = in_seconds(0).timestamp();
        assert_eq!(in_time(now), Err(TokenError::Expired));
        for (exp, expected) in [
            (1, Err(TokenError::Expired)),
            (now + 60, Ok(())),
            (now + 9 * 366 * 86_400, Ok(())),
            (now + 11 * 366 * 86_400, Err(TokenError::Endless)),
            (i64::MAX, Err(TokenError::Endless)),
        ] {
            assert_eq!(in_time(exp), expected, "{exp}");
            // The same on both ways.
            let token = signed(&serde_json::json!({"sub": "42", "exp": exp}), Algorithm::HS256);
            assert_eq!(tokens().verify(&token).map(drop), expected, "{exp}");
            let token =
                signed(&serde_json::json!({"sub": "42", "exp": exp, "iss": "x"}), Algorithm::HS256);
            assert_eq!(tokens().verify(&token).map(drop), expected, "{exp}");
        }
    }

    #[test]
    fn an_extension_that_must_be_understood_is_not() {
        let payload = serde_json::json!({"sub": "42", "exp": in_seconds(60).timestamp()});
        let mut header = Header::new(Algorithm::HS256);
        header.crit = Some(vec!["b64".to_owned()]);
        let token = jsonwebtoken::encode(&header, &payload, &tokens().sign).unwrap();
        assert_eq!(tokens().verify(&token), Err(TokenError::Invalid));
    }

    #[test]
    fn exp_and_the_algorithm_are_not_negotiable() {
        let no_exp = signed(&serde_json::json!({"sub": "42"}), Algorithm::HS256);
        assert_eq!(tokens().verify(&no_exp), Err(TokenError::Invalid));
        let payload = serde_json::json!({"sub": "42", "exp": in_seconds(60).timestamp()});
        assert_eq!(tokens().verify(&signed(&payload, Algorithm::HS512)), Err(TokenError::Invalid));
    }
}
