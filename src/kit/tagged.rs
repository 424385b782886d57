//! JSON bodies with their entity tags (RFC 9110, section 8.8.3).

use aws_lc_rs::digest;
use axum::body::Bytes;
use axum::http::HeaderValue;
use serde::Serialize;

/// First part of the tag of a thing that has revisions; the number follows.
pub const REVISION: &str = "revision-";

/// A body, and its tag. Clones share the body.
#[derive(Clone, Debug)]
pub struct TaggedJson {
    /// The text.
    pub body: Bytes,
    /// Strong: another byte is another tag.
    pub tag: HeaderValue,
}

impl TaggedJson {
    /// The value as JSON.
    ///
    /// # Panics
    ///
    /// When the value can't be written as JSON: a map whose keys are no texts.
    pub fn new(value: &impl Serialize) -> Self {
        Self::tagged("", value)
    }

    /// The value as JSON, of a thing that has revisions: the tag begins with this one.
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

/// The strong tag of these bytes, with this first part.
pub fn tag_of(begin: &str, body: &[u8]) -> HeaderValue {
    let digest = digest::digest(&digest::SHA256, body);
    let (half, _) = digest.as_ref().split_at(16);
    let digits: String = half.iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(format!("\"{begin}{digits}\"")).expect("digits and letters")
}
