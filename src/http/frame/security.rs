//! Headers that keep browsers from doing harm with a reply. A handler that has set one of them has its reasons.

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue};

use crate::http::contract::paths;

/// A reply of the API is no page: nothing may be loaded for it, and no page may frame it.
const API: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
/// Swagger UI has its scripts and styles in files, and its icons in its styles.
const DOCS: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Adds the headers to the reply to a request for this path. `private` replies are for one client alone.
pub fn secure(headers: &mut HeaderMap, path: Kind, private: bool) {
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(NOSNIFF);
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(match path {
        Kind::Api => API,
        Kind::Docs => DOCS,
    });
    if private {
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
    }
}

/// Kind of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read by programs.
    Api,
    /// Shown by browsers.
    Docs,
}

impl Kind {
    /// The kind of this path.
    pub fn of(path: &str) -> Self {
        if path.starts_with(paths::DOCS) { Self::Docs } else { Self::Api }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reply_gets_the_headers_of_its_kind_unless_its_handler_has_set_them() {
        for (kind, private, policy, kept) in [
            (Kind::Api, false, API, None),
            (Kind::Api, true, API, Some(NO_STORE)),
            (Kind::Docs, false, DOCS, None),
            (Kind::Docs, true, DOCS, Some(NO_STORE)),
        ] {
            let mut headers = HeaderMap::new();
            secure(&mut headers, kind, private);
            assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert_eq!(headers[CONTENT_SECURITY_POLICY], policy, "{kind:?}");
            assert_eq!(headers.get(CACHE_CONTROL), kept.as_ref(), "{kind:?} {private}");
            // Once more changes nothing, and neither does another kind.
            let before = headers.clone();
            secure(&mut headers, Kind::Api, private);
            assert_eq!(headers, before);
        }
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, no-cache"));
        secure(&mut headers, Kind::Api, true);
        assert_eq!(headers[CACHE_CONTROL], "public, no-cache");
    }

    #[test]
    fn the_documentation_is_told_from_the_api_by_its_path() {
        for (path, kind) in [
            ("/docs", Kind::Docs),
            ("/docs/problems", Kind::Docs),
            ("/", Kind::Api),
            ("/v1/docs", Kind::Api),
            ("/openapi.json", Kind::Api),
        ] {
            assert_eq!(Kind::of(path), kind, "{path}");
        }
    }
}
