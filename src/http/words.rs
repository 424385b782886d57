//! Words of the staff in bodies: reasons and notes.

use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

/// Reason for a change that an administrator makes for a buyer.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Because {
    /// Reason, for the book of changes: 1 to 1,000 characters, not only spaces.
    #[schema(min_length = 1, max_length = 1_000)]
    #[garde(length(chars, min = 1, max = 1_000), custom(in_words))]
    pub reason: String,
}

/// Postgres stores no NUL, and blanks are no words.
pub fn in_words(words: &str, _: &()) -> garde::Result {
    if words.trim().is_empty() || words.contains('\0') {
        return Err(garde::Error::new("say it in words"));
    }
    Ok(())
}
