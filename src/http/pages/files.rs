//! The files of `pages/`, embedded by `build.rs`: each as it is, and compressed.

use std::io::Write;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::http::tags::values;

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

pub struct File {
    /// Path below `pages/`.
    name: &'static str,
    pub media_type: &'static str,
    plain: &'static [u8],
    gzipped: &'static [u8],
}

/// Time for which a cache may keep a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Not at all.
    Never,
    /// For any time, but the cache has to ask before each use whether anything has changed.
    Asked,
    /// For ever: another build has another path.
    Forever,
}

impl Freshness {
    fn cache_control(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Never => "no-store",
            Self::Asked => "no-cache",
            Self::Forever => "public, max-age=31536000, immutable",
        })
    }
}

/// Version of this build's files, a part of the path of each asset.
pub fn version() -> &'static str {
    VERSION
}

/// A page.
///
/// # Panics
///
/// If there is no such page.
pub fn page(name: &str) -> &'static File {
    FILES.iter().find(|file| file.name == name).expect("the routes name pages that are there")
}

/// An asset: any file that isn't a page.
pub fn asset(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name && !name.ends_with(".html"))
}

impl File {
    /// A page as text.
    ///
    /// # Panics
    ///
    /// If it isn't UTF-8, as all pages are.
    pub fn text(&self) -> &'static str {
        str::from_utf8(self.plain).expect("pages are UTF-8")
    }

    /// A reply with this file, compressed for a client that takes gzip. The caller adds the media type.
    pub fn reply(&self, headers: &HeaderMap, freshness: Freshness) -> Response {
        // Weak, because it stands for the plain and the compressed form.
        let tag = HeaderValue::try_from(format!("W/\"{VERSION}\"")).expect("digits and letters");
        let tag = (freshness != Freshness::Never).then_some([(header::ETAG, tag)]);
        let about = (tag, [(header::CACHE_CONTROL, freshness.cache_control())]);
        let [plain, gzipped] = [self.plain, self.gzipped].map(Bytes::from_static);
        (about, coded(headers, plain, || gzipped)).into_response()
    }
}

/// A reply with this text, compressed for a client that takes gzip. The caller adds the media type.
pub fn coded(headers: &HeaderMap, plain: Bytes, gzipped: impl FnOnce() -> Bytes) -> Response {
    let vary = [(header::VARY, "accept-encoding")];
    match takes_gzip(headers) {
        true => (vary, [(header::CONTENT_ENCODING, "gzip")], gzipped()).into_response(),
        false => (vary, plain).into_response(),
    }
}

/// Compresses a text that wasn't there at build time.
pub fn gzip(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let packed = encoder.write_all(plain).and_then(|()| encoder.finish());
    packed.expect("memory takes all that is written").into()
}

/// Whether `Accept-Encoding` names gzip, and doesn't refuse it by `q=0`.
fn takes_gzip(headers: &HeaderMap) -> bool {
    values(headers, header::ACCEPT_ENCODING).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map(str::trim);
        let refused = weight.is_some_and(|weight| weight.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    #[test]
    fn gzip_is_sent_to_a_client_that_takes_it() {
        for (value, expected) in [
            ("gzip", true),
            ("gzip, deflate, br, zstd", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("identity, gzip; q=0", false),
            ("gzip;q=0.000", false),
            ("br", false),
            ("", false),
        ] {
            let headers =
                HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(takes_gzip(&headers), expected, "{value:?}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn pages_and_assets_are_found_by_their_names() {
        let page = page("shop.html");
        assert_eq!((page.name, page.media_type), ("shop.html", "text/html; charset=utf-8"));
        let style = asset("shop.css").expect("it is there");
        assert_eq!((style.name, style.media_type), ("shop.css", "text/css; charset=utf-8"));
        for none in ["shop.html", "board.html", "none.js", "", "../Cargo.toml"] {
            assert!(asset(none).is_none(), "{none}");
        }
        assert!(version().len() >= 8 && version().chars().all(|it| it.is_ascii_alphanumeric()));
    }

    /// The reply has a tag unless no cache may keep it, and the form that the client takes.
    #[tokio::test]
    async fn a_file_is_sent_as_fresh_as_its_path_and_in_the_form_that_is_taken() {
        bound_this_test();
        let style = asset("shop.css").expect("it is there");
        let tag = format!("W/\"{}\"", version());
        for (freshness, kept, has_tag) in [
            (Freshness::Never, "no-store", false),
            (Freshness::Asked, "no-cache", true),
            (Freshness::Forever, "public, max-age=31536000, immutable", true),
        ] {
            for (coding, is_packed) in [("gzip", true), ("br", false)] {
                let name = header::ACCEPT_ENCODING;
                let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(coding))]);
                let reply = style.reply(&headers, freshness);
                let told = |name| reply.headers().get(name).and_then(|value| value.to_str().ok());
                assert_eq!(told(header::CACHE_CONTROL), Some(kept));
                assert_eq!(told(header::ETAG), has_tag.then_some(tag.as_str()), "{kept}");
                assert_eq!(told(header::VARY), Some("accept-encoding"));
                assert_eq!(told(header::CONTENT_ENCODING), is_packed.then_some("gzip"));
                let body = axum::body::to_bytes(reply.into_body(), usize::MAX).await.unwrap();
                let expected = if is_packed { style.gzipped } else { style.plain };
                assert!(body == expected, "{coding}");
            }
        }
    }
}
