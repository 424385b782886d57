//! JSON bodies with their entity tags (RFC 9110, section 8.8.3).

use aws_lc_rs::digest;
use axum::body::Bytes;
use axum::http::HeaderValue;
use serde::Serialize;

/// Start of the tag of a thing that has revisions; the revision's number follows.
pub const REVISION: &str = "revision-";

/// A JSON body and its tag. Clones share the body.
#[derive(Clone, Debug)]
pub struct TaggedJson {
    pub body: Bytes,
    /// A strong tag: it changes with every byte of the body.
    pub tag: HeaderValue,
}

impl TaggedJson {
    /// The value as JSON.
    ///
    /// # Panics
    ///
    /// When the value can't be written as JSON, for example a map whose keys aren't strings.
    pub fn new(value: &impl Serialize) -> Self {
        Self::tagged("", value)
    }

    /// Like [`TaggedJson::new`], for a thing that has revisions. The tag begins with this revision.
    ///
    /// # Panics
    ///
    /// As [`TaggedJson::new`].
    pub fn of_revision(revision: i64, value: &impl Serialize) -> Self {
        Self::tagged(&format!("{REVISION}{revision}."), value)
    }

    fn tagged(begin: &str, value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("a reply can be written as JSON");
        let tag = tag_of(begin, &body);
        Self { body: body.into(), tag }
    }
}

/// The strong tag of these bytes, after the prefix `begin`.
pub fn tag_of(begin: &str, body: &[u8]) -> HeaderValue {
    let digest = digest::digest(&digest::SHA256, body);
    let (half, _) = digest.as_ref().split_at(16);
    let digits: String = half.iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(format!("\"{begin}{digits}\"")).expect("digits and letters")
}
