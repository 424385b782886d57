//! The token of a request (RFC 6750, section 2.1).

use axum::http::HeaderValue;

use crate::kit::jwt::{Grants, Scope, Tokens};

/// The token in the header.
pub fn bearer(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The user of a token, for people; `refused` for a token that is.
pub fn actor(tokens: &Tokens, header: &HeaderValue) -> String {
    match bearer(header).map(|token| tokens.verify(token)) {
        Some(Ok(Grants { subject, scope })) => {
            format!("{} {subject}", scope.map_or("user", Scope::role))
        }
        Some(Err(_)) | None => "refused".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use secrecy::SecretString;

    use super::*;
    use crate::base::clock::Clock;

    #[test]
    fn a_token_stands_behind_the_scheme_bearer_and_no_other() {
        for (value, token) in [
            ("Bearer a.b.c", Some("a.b.c")),
            ("bearer a", Some("a")),
            ("BEARER  a ", Some("a")),
            ("Bearer a b", Some("a b")),
            ("Bearer ", Some("")),
            ("Bearer", None),
            ("Basic a", None),
            ("Bearerx a", None),
            ("a.b.c", None),
            ("", None),
        ] {
            assert_eq!(bearer(&HeaderValue::from_static(value)), token, "{value:?}");
        }
    }

    #[test]
    fn the_actor_of_a_token_is_its_role_and_its_user() {
        let tokens = Tokens::new(&SecretString::from("a secret that is only good for tests"));
        let until = Clock::System.now() + TimeDelta::hours(1);
        let [clerk, operator, admin] = Scope::ALL;
        for (scope, scheme, expected) in [
            (None, "Bearer", "user 42"),
            (Some(clerk), "Bearer", "clerk 42"),
            (Some(operator), "bearer", "operator 42"),
            (Some(admin), "Bearer", "admin 42"),
            (Some(admin), "Basic", "refused"),
        ] {
            let token = tokens.issue(Grants { subject: 42, scope }, until);
            let header = HeaderValue::try_from(format!("{scheme} {token}")).expect("plain ASCII");
            assert_eq!(actor(&tokens, &header), expected);
        }
        assert_eq!(actor(&tokens, &HeaderValue::from_static("Bearer a.b.c")), "refused");
    }
}
