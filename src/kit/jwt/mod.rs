//! Bearer tokens: JSON Web Tokens, signed with HS256 by a secret, or with RS256, ES256 or EdDSA by a key pair whose
//! public key is known here.
//!
//! Each key has one algorithm. The algorithm in a token's header only selects among the keys that have it (RFC 8725,
//! section 3.1). So `alg: none`, or a public key that is used as a secret, fails like any bad signature.
//!
//! Several secrets are valid at a time, so that a secret can be rotated without a user noticing: tokens are signed with
//! the first, and verified with all. A `kid` that names a public key selects it. Otherwise all keys of the algorithm
//! are tried.
//!
//! Tokens exactly like those issued here take a fast path: one fixed header, one prepared key, one pass over the
//! payload. The fast path can only accept. The library decides about every other token.

// Public keys of an issuer.
pub mod public_keys;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use secrecy::{ExposeSecret, SecretString};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::public_keys::{Key, PublicKeys};
use crate::base::config::StoreConfig;

/// Signs tokens with one secret, and verifies them with all keys.
pub struct Tokens {
    secrets: ArcSwap<Secrets>,
    /// Issuers whose tokens are accepted, too.
    issuers: Vec<Arc<PublicKeys>>,
    /// Issuer and audience that each token has to name, if they are set.
    issuer: Option<String>,
    audience: Option<String>,
}

struct Secrets {
    sign: EncodingKey,
    header: Header,
    /// The signing secret, then the further ones.
    verify: Vec<Key>,
    /// The first part of every token that is issued here, with the dot after it.
    own_header: String,
    own_key: hmac::Key,
}

/// What a verified token grants to its bearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    /// Subject: the `sub` of the token, a positive 64-bit integer.
    pub subject: i64,
    /// Scope beyond that of a user, if any.
    pub scope: Option<Scope>,
}

/// Scope of a token beyond that of a user. From the clerk on, each has all that the ones before it have; an integrator has
/// nothing that they have, and reads what only operators read besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Scope {
    /// Another system: reads events and exports.
    Integrator,
    /// Serves one customer at a time.
    Clerk,
    /// Keeps the service going.
    Operator,
    /// May do everything.
    Administrator,
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::Integrator, Self::Clerk, Self::Operator, Self::Administrator];

    /// The `role` of a token with this scope.
    pub fn role(self) -> &'static str {
        match self {
            Self::Integrator => "integrator",
            Self::Clerk => "clerk",
            Self::Operator => "operator",
            Self::Administrator => "admin",
        }
    }

    /// The scope of this `role`; `None` for an unknown role.
    fn of_role(role: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.role() == role)
    }
}

impl Grants {
    pub const fn user(subject: i64) -> Self {
        Self { subject, scope: None }
    }

    pub const fn administrator(subject: i64) -> Self {
        Self { subject, scope: Some(Scope::Administrator) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token has expired: get a new one")]
    Expired,
    #[error("the token isn't valid yet: its `nbf` is to come; is a clock wrong?")]
    Early,
    /// `exp` is too far in the future for a token that can't be revoked.
    #[error(
        "the token is valid for more than ten years: its issuer has to give it an earlier `exp`"
    )]
    Endless,
    /// The public keys that may verify the token haven't been fetched yet, so it may be valid.
    #[error("nothing was carried out: the keys that verify this token aren't known yet; ask again")]
    NoKeys,
    /// The request has two `Authorization` headers. A proxy in front may have checked the other one.
    #[error("the token isn't the only one: send one header `Authorization`")]
    Twice,
    /// The signature is right, but this member of the payload isn't.
    #[error("the token isn't valid: its `{0}` is missing, or isn't what this service accepts")]
    Member(&'static str),
    /// Any other fault. Only the issuer needs to know which part is wrong.
    #[error(
        "the token isn't valid: it has to be signed by this service's issuer, with `exp`, and with `sub` a positive whole number as a string"
    )]
    Invalid,
}

/// The payload of a token that is issued here.
#[derive(Serialize)]
struct Payload<'a> {
    sub: String,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
}

/// Members of a payload as they were sent; null counts as missing. A member that occurs twice is refused, because
/// readers differ on which one counts.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Members {
    sub: Value,
    exp: Value,
    nbf: Value,
    role: Value,
    iss: Value,
    aud: Value,
    /// With this, serde doesn't accept a list in place of an object.
    #[serde(flatten)]
    _others: BTreeMap<String, IgnoredAny>,
}

/// The same, as the fast path reads it. With any other field, such as `nbf`, or with a list of audiences, the token
/// takes the slow path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnPayload<'a> {
    sub: &'a str,
    exp: i64,
    role: Option<&'a str>,
    iss: Option<&'a str>,
    aud: Option<&'a str>,
}

/// Longest time until `exp`: ten years.
const LIFETIME_SECONDS_MAX: i64 = 10 * 366 * 86_400;
/// Bytes of a payload on the fast path. One that is issued here has at most 70, without issuer and audience.
const OWN_PART_BYTES_MAX: usize = 128;

impl Tokens {
    pub fn new(secret: &SecretString) -> Self {
        Self::with(Secrets::new(secret))
    }

    /// As configured: signs with `secret`, and also verifies with the further secrets.
    pub fn configured(config: &StoreConfig, secret: &impl ExposeSecret<str>) -> Self {
        let mut tokens = Self::with(Secrets::configured(config, secret));
        tokens.issuer.clone_from(&config.token_issuer);
        tokens.audience.clone_from(&config.token_audience);
        tokens
    }

    fn with(secrets: Secrets) -> Self {
        let secrets = ArcSwap::from_pointee(secrets);
        Self { secrets, issuers: Vec::new(), issuer: None, audience: None }
    }

    /// Replaces the secrets by those of this configuration.
    pub fn change(&self, config: &StoreConfig, secret: &impl ExposeSecret<str>) {
        self.secrets.store(Secrets::configured(config, secret).into());
    }

    /// Also verifies with the public keys of this issuer. The caller runs [`PublicKeys::keep`].
    pub fn accept(&mut self, issuer: Arc<PublicKeys>) {
        self.issuers.push(issuer);
    }

    pub fn issuers(&self) -> &[Arc<PublicKeys>] {
        &self.issuers
    }

    /// Issues a token with these grants, valid until `expires_at`.
    ///
    /// # Panics
    ///
    /// Never: HS256 signs any bytes.
    pub fn issue(&self, grants: Grants, expires_at: DateTime<Utc>) -> String {
        let payload = Payload {
            sub: grants.subject.to_string(),
            exp: expires_at.timestamp(),
            role: grants.scope.map(Scope::role),
            iss: self.issuer.as_deref(),
            aud: self.audience.as_deref(),
        };
        let secrets = self.secrets.load();
        jsonwebtoken::encode(&secrets.header, &payload, &secrets.sign)
            .expect("HS256 signs any bytes")
    }

    /// Verifies a token, and returns what it grants.
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

    /// The fast path; `None` says nothing about the token.
    fn verify_own(&self, token: &str) -> Option<Grants> {
        let (signed, signature) = token.rsplit_once('.')?;
        let secrets = self.secrets.load();
        let payload = signed.strip_prefix(&secrets.own_header)?;
        let mut buffer = [0; OWN_PART_BYTES_MAX];
        let signature = decode(signature, &mut buffer)?;
        // In constant time.
        hmac::verify(&secrets.own_key, signed.as_bytes(), signature).ok()?;
        let payload: OwnPayload = serde_json::from_slice(decode(payload, &mut buffer)?).ok()?;
        if payload.iss != self.issuer.as_deref() || payload.aud != self.audience.as_deref() {
            return None;
        }
        let subject = subject(payload.sub).filter(|_| in_time(payload.exp).is_ok())?;
        Some(Grants { subject, scope: payload.role.and_then(Scope::of_role) })
    }

    fn verify_any(&self, token: &str) -> Result<Grants, TokenError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::Invalid)?;
        // A token with `crit` has extensions that must be understood (RFC 7515, section 4.1.11). This service knows
        // none.
        if header.crit.is_some() {
            return Err(TokenError::Invalid);
        }
        let kid = header.kid.as_deref();
        if header.alg == Algorithm::HS256 {
            let secrets = self.secrets.load();
            return self.verify_with(secrets.verify.iter(), token, header.alg);
        }
        let sets: Vec<_> = self.issuers.iter().map(|issuer| issuer.keys()).collect();
        let keys = sets.iter().flatten().flat_map(|set| &set.0);
        let keys = keys.filter(|key| key.algorithm == header.alg);
        let verdict = self.verify_with(chosen(keys.clone(), kid), token, header.alg);
        let is_public =
            matches!(header.alg, Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA);
        if verdict != Err(TokenError::Invalid) || !is_public {
            return verdict;
        }
        if kid.is_some() && !keys.map(|key| key.id.as_deref()).any(|id| id == kid) {
            self.issuers.iter().for_each(|issuer| issuer.miss());
        }
        let all_known = sets.iter().all(Option::is_some);
        Err(if all_known { TokenError::Invalid } else { TokenError::NoKeys })
    }

    /// The verdict of the first key that signed the token.
    fn verify_with<'a>(
        &self,
        keys: impl Iterator<Item = &'a Key>,
        token: &str,
        algorithm: Algorithm,
    ) -> Result<Grants, TokenError> {
        // The library checks only the signature: it reports nothing about a member of the wrong type.
        let mut validation = Validation::new(algorithm);
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.set_required_spec_claims::<&str>(&[]);
        for key in keys {
            match jsonwebtoken::decode::<Members>(token, &key.verify, &validation) {
                Ok(decoded) => return self.grants(&decoded.claims),
                Err(error) if *error.kind() == ErrorKind::InvalidSignature => {}
                Err(_) => return Err(TokenError::Invalid),
            }
        }
        Err(TokenError::Invalid)
    }

    /// The grants of these members. A member that this service doesn't understand is never ignored (RFC 7519, section
    /// 4.1).
    fn grants(&self, members: &Members) -> Result<Grants, TokenError> {
        let wrong = TokenError::Member;
        in_time(seconds(&members.exp).ok_or(wrong("exp"))?)?;
        if !members.nbf.is_null() && seconds(&members.nbf).ok_or(wrong("nbf"))? > now() {
            return Err(TokenError::Early);
        }
        if self.issuer.is_some() && members.iss.as_str() != self.issuer.as_deref() {
            return Err(wrong("iss"));
        }
        if !is_for(self.audience.as_deref(), &members.aud) {
            return Err(wrong("aud"));
        }
        let role = match &members.role {
            Value::Null => None,
            role => Some(role.as_str().ok_or(wrong("role"))?),
        };
        let subject = members.sub.as_str().and_then(subject).ok_or(wrong("sub"))?;
        Ok(Grants { subject, scope: role.and_then(Scope::of_role) })
    }
}

/// A time in a payload: seconds since 1970. A fraction is cut off.
fn seconds(time: &Value) -> Option<i64> {
    let number = time.as_number()?;
    // A float out of range becomes the nearest integer in range.
    number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds.floor() as i64))
}

/// Whether a token with this `aud`, one or several, is meant for `audience`. A token with an `aud` is refused if none
/// is configured.
fn is_for(audience: Option<&str>, named: &Value) -> bool {
    match (audience, named) {
        (None, named) => named.is_null(),
        (Some(audience), Value::Array(named)) => {
            named.iter().all(Value::is_string) && named.iter().any(|one| one == audience)
        }
        (Some(audience), named) => named == audience,
    }
}

impl Secrets {
    fn new(secret: &impl ExposeSecret<str>) -> Self {
        let secret = secret.expose_secret().as_bytes();
        let header = Header::new(Algorithm::HS256);
        let own_header = serde_json::to_vec(&header).expect("a few short strings are JSON");
        Self {
            sign: EncodingKey::from_secret(secret),
            header,
            verify: vec![secret_key(secret)],
            own_header: URL_SAFE_NO_PAD.encode(own_header) + ".",
            own_key: hmac::Key::new(hmac::HMAC_SHA256, secret),
        }
    }

    fn configured(config: &StoreConfig, secret: &impl ExposeSecret<str>) -> Self {
        let mut secrets = Self::new(secret);
        let further = config.further_token_secrets.iter();
        secrets.verify.extend(further.map(|secret| secret_key(secret.expose_secret().as_bytes())));
        secrets
    }
}

fn secret_key(secret: &[u8]) -> Key {
    Key { id: None, algorithm: Algorithm::HS256, verify: DecodingKey::from_secret(secret) }
}

/// The keys that may have signed a token with this `kid`: those that it names, or all if it names none.
fn chosen<'a>(
    keys: impl Iterator<Item = &'a Key> + Clone,
    kid: Option<&str>,
) -> impl Iterator<Item = &'a Key> {
    let is_named = move |key: &&Key| key.id.is_some() && key.id.as_deref() == kid;
    let named = keys.clone().any(|key| is_named(&key));
    keys.filter(move |key| !named || is_named(key))
}

/// Seconds since 1970.
fn now() -> i64 {
    i64::try_from(jsonwebtoken::get_current_timestamp()).unwrap_or(i64::MAX)
}

/// A token is valid before its `exp`, and no longer in that second (RFC 7519, section 4.1.4).
fn in_time(exp: i64) -> Result<(), TokenError> {
    match exp.saturating_sub(now()) {
        ..=0 => Err(TokenError::Expired),
        LIFETIME_SECONDS_MAX.. => Err(TokenError::Endless),
        _ => Ok(()),
    }
}

/// Decodes a part of a token; `None` if it isn't Base64, or too long for the fast path.
fn decode<'a>(part: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let bytes = URL_SAFE_NO_PAD.decode_slice(part, buffer).ok()?;
    buffer.get(..bytes)
}

/// A positive whole number without a sign and leading zeros. `+7` and `007` parse as well, but then one user would have
/// several names.
fn subject(text: &str) -> Option<i64> {
    let plain = text.bytes().all(|digit| digit.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use clap::ValueEnum;

    use super::public_keys::KeySet;
    use super::*;
    use crate::base::clock::Clock;
    use crate::base::fuzzing::Fuzz;

    fn tokens() -> Tokens {
        Tokens::new(&SecretString::from("0123456789abcdef0123456789abcdef"))
    }

    fn in_seconds(seconds: i64) -> DateTime<Utc> {
        Clock::System.now() + TimeDelta::seconds(seconds)
    }

    fn signed(payload: &serde_json::Value, algorithm: Algorithm) -> String {
        jsonwebtoken::encode(&Header::new(algorithm), payload, &tokens().secrets.load().sign)
            .unwrap()
    }

    #[test]
    fn what_is_issued_is_granted() {
        assert_eq!(Scope::ALL, Scope::value_variants());
        for scope in [None].into_iter().chain(Scope::ALL.map(Some)) {
            let grants = Grants { subject: 42, scope };
            assert_eq!(tokens().verify(&tokens().issue(grants, in_seconds(60))), Ok(grants));
        }
    }

    #[test]
    fn an_unknown_role_is_that_of_a_user() {
        for role in ["root", "Admin", "clerk ", ""] {
            let soon = in_seconds(60).timestamp();
            let payload = serde_json::json!({"sub": "42", "exp": soon, "role": role});
            let token = signed(&payload, Algorithm::HS256);
            assert_eq!(tokens().verify(&token), Ok(Grants::user(42)), "{role}");
        }
    }

    #[test]
    fn an_expired_token_is_refused() {
        let token = tokens().issue(Grants::user(42), in_seconds(-1));
        assert_eq!(tokens().verify(&token), Err(TokenError::Expired));
    }

    #[test]
    fn only_a_positive_whole_number_is_a_subject() {
        for sub in ["0", "-1", "+7", "007", "", "x", "1.5", "9223372036854775808"] {
            let payload = serde_json::json!({"sub": sub, "exp": in_seconds(60).timestamp()});
            let token = signed(&payload, Algorithm::HS256);
            assert_eq!(tokens().verify(&token), Err(TokenError::Member("sub")), "{sub}");
        }
    }

    #[test]
    fn the_short_way_takes_what_is_issued_here_and_nothing_that_the_library_refuses() {
        let tokens = tokens();
        let token = tokens.issue(Grants::administrator(42), in_seconds(60));
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
            (serde_json::json!({"sub": "42", "exp": soon as f64 + 0.5}), true),
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

    /// A member of the wrong type never counts as missing, and the refusal names it.
    #[test]
    fn a_member_that_is_not_understood_is_named() {
        let soon = in_seconds(60).timestamp();
        for (member, value) in [
            ("exp", serde_json::json!("soon")),
            ("exp", Value::Null),
            ("sub", serde_json::json!(42)),
            ("nbf", serde_json::json!("now")),
            ("role", serde_json::json!(["admin"])),
            ("aud", serde_json::json!(1)),
            ("aud", serde_json::json!([])),
            ("aud", serde_json::json!({"a": 1})),
            ("aud", serde_json::json!("another")),
        ] {
            let mut payload = serde_json::json!({"sub": "42", "exp": soon});
            payload[member] = value;
            let refused = tokens().verify(&signed(&payload, Algorithm::HS256));
            assert_eq!(refused, Err(TokenError::Member(member)), "{payload}");
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
            // The same on both paths.
            let token = signed(&serde_json::json!({"sub": "42", "exp": exp}), Algorithm::HS256);
            assert_eq!(tokens().verify(&token).map(drop), expected, "{exp}");
            let token =
                signed(&serde_json::json!({"sub": "42", "exp": exp, "iss": "x"}), Algorithm::HS256);
            assert_eq!(tokens().verify(&token).map(drop), expected, "{exp}");
        }
    }

    fn configured(arguments: &[&str]) -> Tokens {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            stores: StoreConfig,
        }
        let arguments = ["x"].iter().chain(arguments);
        let config = <Command as clap::Parser>::parse_from(arguments).stores;
        Tokens::configured(&config, config.token_secret.as_ref().expect("one is given"))
    }

    const OLD: &str = "an old secret of thirty-two bytes";
    const NEW: &str = "a new secret of thirty-two bytes";

    #[test]
    fn a_secret_follows_another_without_a_user_noticing() {
        let grants = Grants::user(42);
        let later = in_seconds(60);
        let before = configured(&["--token-secret", OLD]);
        // First all processes learn the new secret, then all sign with it, then the old one is removed.
        let learning = configured(&["--token-secret", OLD, "--further-token-secrets", NEW]);
        let changed = configured(&["--token-secret", NEW, "--further-token-secrets", OLD]);
        let after = configured(&["--token-secret", NEW]);
        for (issuer, verifiers) in [
            (&before, [&before, &learning, &changed]),
            (&learning, [&before, &learning, &changed]),
            (&changed, [&learning, &changed, &after]),
        ] {
            let token = issuer.issue(grants, later);
            for verifier in verifiers {
                assert_eq!(verifier.verify(&token), Ok(grants));
            }
        }
        let old = before.issue(grants, later);
        assert_eq!(after.verify(&old), Err(TokenError::Invalid));
        // Tokens signed with the new secret take the fast path.
        assert_eq!(changed.verify_own(&changed.issue(grants, later)), Some(grants));
    }

    #[test]
    fn issuer_and_audience_have_to_be_named_if_they_are_set() {
        let settings =
            ["--token-secret", NEW, "--token-issuer", "bank", "--token-audience", "door"];
        let tokens = configured(&settings);
        let own = tokens.issue(Grants::administrator(42), in_seconds(60));
        assert!(tokens.verify_own(&own).is_some());
        let key = EncodingKey::from_secret(NEW.as_bytes());
        let exp = in_seconds(60).timestamp();
        for (iss, aud, granted) in [
            (Some("bank"), serde_json::json!("door"), true),
            (Some("bank"), serde_json::json!(["other", "door"]), true),
            (Some("bank"), serde_json::json!(["other"]), false),
            (Some("bank"), serde_json::json!("other"), false),
            (Some("bank"), serde_json::json!(["door", 1]), false),
            (Some("bank"), serde_json::json!(1), false),
            (Some("bank"), Value::Null, false),
            (Some("other"), serde_json::json!("door"), false),
            (None, serde_json::json!("door"), false),
        ] {
            let mut payload = serde_json::json!({"sub": "42", "exp": exp});
            if let Some(iss) = iss {
                payload["iss"] = iss.into();
            }
            if !aud.is_null() {
                payload["aud"] = aud.clone();
            }
            let token =
                jsonwebtoken::encode(&Header::new(Algorithm::HS256), &payload, &key).unwrap();
            assert_eq!(tokens.verify(&token).is_ok(), granted, "{iss:?} {aud}");
        }
    }

    #[test]
    fn an_extension_that_must_be_understood_is_not() {
        let payload = serde_json::json!({"sub": "42", "exp": in_seconds(60).timestamp()});
        let mut header = Header::new(Algorithm::HS256);
        header.crit = Some(vec!["b64".to_owned()]);
        let token = jsonwebtoken::encode(&header, &payload, &tokens().secrets.load().sign).unwrap();
        assert_eq!(tokens().verify(&token), Err(TokenError::Invalid));
    }

    #[test]
    fn exp_and_the_algorithm_are_not_negotiable() {
        let no_exp = signed(&serde_json::json!({"sub": "42"}), Algorithm::HS256);
        assert_eq!(tokens().verify(&no_exp), Err(TokenError::Member("exp")));
        let payload = serde_json::json!({"sub": "42", "exp": in_seconds(60).timestamp()});
        assert_eq!(tokens().verify(&signed(&payload, Algorithm::HS512)), Err(TokenError::Invalid));
    }

    /// No changed token is granted anything, and the fast path accepts nothing that the library refuses.
    #[test]
    fn fuzz_tokens() {
        let tokens = tokens();
        let grants = [Grants::user(42), Grants::administrator(7)];
        let mut seeds = grants.map(|grants| tokens.issue(grants, in_seconds(3_600))).to_vec();
        let payload = serde_json::json!({"sub": "42", "exp": in_seconds(3_600).timestamp(), "nbf": 1, "aud": ["x"]});
        seeds.push(signed(&payload, Algorithm::HS512));
        seeds.push("e30.e30.".to_owned());
        let words = &[".", "..", "=", "e30", "eyJhbGciOiJub25lIn0", "eyJhbGciOiJIUzI1NiJ9", "-_"];
        let issued = seeds[..2].to_vec();
        let seeds = seeds.into_iter().map(String::into_bytes).collect();
        Fuzz { target: "tokens", seeds, words }.run(|input| {
            let Ok(token) = std::str::from_utf8(input) else { return };
            let any = tokens.verify_any(token);
            assert_eq!(tokens.verify_own(token), any.ok(), "{token}");
            if any.is_ok() {
                assert!(issued.iter().any(|issued| issued == token), "{token} is another");
            }
        });
    }

    /// A document is a set with at least one key, or is refused in words.
    #[test]
    fn fuzz_key_sets() {
        let seeds = [
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"d","use":"sig","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#,
            r#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#,
            r#"{"keys":[{"kty":"RSA","alg":"RS256","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AAAA"}]}"#,
        ];
        let seeds = seeds.map(|seed| seed.as_bytes().to_vec()).to_vec();
        let words = &["\"kty\":", "\"RSA\"", "\"EC\"", "\"OKP\"", "null", "{}", "[]", "\"\"", ","];
        Fuzz { target: "key-sets", seeds, words }.run(|input| match KeySet::parse(input) {
            Ok(keys) => assert!(!keys.0.is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        });
    }
}
