//! Texts of the staff in bodies: reasons and notes.

use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::coupon::values::lines;

/// A text of the staff, for the records: 1 to 1,000 characters in one or more lines, not only spaces. Control
/// characters other than tabs and ends of lines are refused, and so are characters that change the direction of text.
#[derive(ToSchema)]
#[schema(
    min_length = 1,
    max_length = 1000,
    pattern = "^[^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]*[^\\u0000-\\u0020\\u007f-\\u00a0\\u061c\\u1680\\u2000-\\u200a\\u200e\\u200f\\u2028-\\u202f\\u205f\\u2066-\\u2069\\u3000][^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]*$"
)]
pub struct Words(pub String);

/// Reason for a change that an administrator makes for buyers.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Because {
    /// Reason, for the audit log: 1 to 1,000 characters, not only spaces.
    #[schema(value_type = Words)]
    #[garde(length(chars, min = 1, max = 1_000), custom(in_words))]
    pub reason: String,
}

/// A note of what was done about a matter that waited.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Noted {
    /// The note, for the records: 1 to 1,000 characters, not only spaces.
    #[schema(value_type = Words)]
    #[garde(length(chars, min = 1, max = 1_000), custom(in_words))]
    pub note: String,
}

/// Refuses a text of spaces alone, and characters that `coupon/values.rs` refuses.
fn in_words(words: &str, _: &()) -> garde::Result {
    if words.trim().is_empty() {
        return Err(garde::Error::new("say it in words"));
    }
    lines(words, &())
}

#[cfg(test)]
mod tests {
    use utoipa::PartialSchema;

    use super::*;

    /// Each character that may matter, alone and beside others.
    #[test]
    fn the_pattern_takes_the_words_that_the_check_takes() {
        let schema = serde_json::to_value(Words::schema()).expect("a schema is JSON");
        let pattern = schema["pattern"].as_str().expect("a pattern");
        let pattern = regex_lite::Regex::new(pattern).expect("it is valid");
        for character in ('\0'..='\u{3100}').chain(['\u{feff}', '\u{1f39f}']) {
            for text in [character.to_string(), format!("a{character}b"), format!(" {character}\n")]
            {
                assert_eq!(pattern.is_match(&text), in_words(&text, &()).is_ok(), "{text:?}");
            }
        }
    }
}
