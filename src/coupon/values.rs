//! Values in bodies of administrators' requests: the schema of each, and the checks of texts.
//!
//! A schema takes literals only; the tests below compare them with the limits.

use chrono::{DateTime, Utc};
use utoipa::ToSchema;

use crate::base::plain_text::turns_direction;

/// Headline: 1 to 200 characters in one line, at least one of which can be seen, without control characters and those
/// that turn the direction of text.
#[derive(ToSchema)]
#[schema(
    min_length = 1,
    max_length = 200,
    pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]*[^\\u0000-\\u0020\\u007f-\\u00a0\\u00ad\\u034f\\u061c\\u115f\\u1160\\u1680\\u17b4\\u17b5\\u180b-\\u180f\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u2800\\u3000\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0][^\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]*$"
)]
pub struct Headline(pub String);

/// Line: up to 200 characters, without control characters and those that turn the direction of text.
#[derive(ToSchema)]
#[schema(
    max_length = 200,
    pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]*$"
)]
pub struct Line(pub String);

/// Terms, in words: lines of up to 4,000 characters together, without other control characters and those that turn the
/// direction of text.
#[derive(ToSchema)]
#[schema(
    max_length = 4000,
    pattern = "^[^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]*$"
)]
pub struct Terms(pub String);

/// Name of a restock, of the client's choice: 1 to 100 characters in one line, without control characters and those
/// that turn the direction of text.
#[derive(ToSchema)]
#[schema(
    min_length = 1,
    max_length = 100,
    pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]*$"
)]
pub struct RestockKey(pub String);

/// Money, in minor units.
#[derive(ToSchema)]
#[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
pub struct Cents(pub i64);

/// Currency: three capital letters of ISO 4217, as in CNY.
#[derive(ToSchema)]
#[schema(pattern = "^[A-Z]{3}$")]
pub struct Currency(pub String);

/// Units of a sale.
#[derive(ToSchema)]
#[schema(minimum = 1, maximum = 100_000_000)]
pub struct Units(pub i64);

/// A line that shows as it is written: at least one character that can be seen, no control characters, and none that
/// turn the direction of the text around them (property Bidi_Control of Unicode).
pub fn headline(text: &str, _: &()) -> garde::Result {
    if text.chars().all(is_unseen) {
        return Err(garde::Error::new("a title has at least one character that can be seen"));
    }
    one_line(text, &())
}

/// The same, but may be empty or blank.
pub fn one_line(text: &str, _: &()) -> garde::Result {
    match text.contains(char::is_control) || text.contains(turns_direction) {
        true => Err(garde::Error::new(NO_CONTROLS)),
        false => Ok(()),
    }
}

/// The same in several lines, with tabs.
pub fn lines(text: &str, _: &()) -> garde::Result {
    one_line(&text.replace(['\n', '\r', '\t'], " "), &())
}

pub fn iso_4217(code: &str, _: &()) -> garde::Result {
    if code.len() == 3 && code.bytes().all(|letter| letter.is_ascii_uppercase()) {
        return Ok(());
    }
    Err(garde::Error::new("give the three capital letters of ISO 4217, as in CNY"))
}

const NO_CONTROLS: &str = "leave out control characters, and those that turn the direction of text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069)";

/// Spaces, the empty pattern of Braille, and what Unicode lets a font leave out (property Default_Ignorable_Code_Point,
/// in the basic plane).
fn is_unseen(character: char) -> bool {
    character.is_whitespace()
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        )
}

/// Between 1970 and 9999: milliseconds that Lua counts exactly and RFC 3339 can write.
pub fn a_time_redis_can_count(time: &DateTime<Utc>, _: &()) -> garde::Result {
    if (0..253_402_300_800_000).contains(&time.timestamp_millis()) {
        return Ok(());
    }
    Err(garde::Error::new("give a time between the years 1970 and 9999"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use utoipa::PartialSchema;

    use super::*;
    use crate::base::limits;

    fn schema<T: PartialSchema>() -> Value {
        serde_json::to_value(T::schema()).expect("a schema is JSON")
    }

    #[test]
    fn schemas_have_the_limits() {
        assert_eq!(schema::<Cents>()["maximum"], limits::CENTS_MAX);
        assert_eq!(schema::<Units>()["maximum"], limits::TOTAL_MAX);
    }

    /// Each character that may matter, alone and inside a text.
    #[test]
    fn patterns_take_the_texts_that_the_checks_take() {
        let pattern = |schema: &Value| {
            let pattern = schema["pattern"].as_str().expect("a pattern");
            regex_lite::Regex::new(pattern).expect("it is valid")
        };
        let (head, line, terms) = (schema::<Headline>(), schema::<Line>(), schema::<Terms>());
        let (head, line, terms) = (pattern(&head), pattern(&line), pattern(&terms));
        for character in ('\0'..='\u{ffff}').chain(['\u{1f39f}']) {
            for text in [character.to_string(), format!("a{character}b"), format!(" {character}")] {
                assert_eq!(head.is_match(&text), headline(&text, &()).is_ok(), "{text:?}");
                assert_eq!(line.is_match(&text), one_line(&text, &()).is_ok(), "{text:?}");
                assert_eq!(terms.is_match(&text), lines(&text, &()).is_ok(), "{text:?}");
            }
        }
    }

    #[test]
    fn a_headline_has_a_character_that_can_be_seen_and_no_control() {
        for (text, is_headline, is_line, are_lines) in [
            ("a", true, true, true),
            (" \u{3000}a\u{200b}", true, true, true),
            ("", false, true, true),
            ("  ", false, true, true),
            ("\u{200b}\u{2800}\u{ad}\u{3164}", false, true, true),
            ("a\u{7f}", false, false, false),
            ("a\nb\tc\r", false, false, true),
            ("a\u{202e}b", false, false, false),
            ("a\u{2069}b", false, false, false),
            ("a\u{61c}", false, false, false),
            ("a\0", false, false, false),
        ] {
            let checks = [headline(text, &()), one_line(text, &()), lines(text, &())];
            let passed = checks.map(|check| check.is_ok());
            assert_eq!(passed, [is_headline, is_line, are_lines], "{text:?}");
        }
    }

    #[test]
    fn a_currency_has_three_capital_letters() {
        for (code, is_valid) in [
            ("CNY", true),
            ("EUR", true),
            ("cny", false),
            ("CN", false),
            ("CNYX", false),
            ("C1Y", false),
        ] {
            assert_eq!(iso_4217(code, &()).is_ok(), is_valid, "{code}");
        }
    }

    #[test]
    fn a_time_is_from_1970_on_and_before_the_year_10000() {
        for (ms, is_valid) in
            [(-1, false), (0, true), (253_402_300_799_999, true), (253_402_300_800_000, false)]
        {
            let time = DateTime::from_timestamp_millis(ms).expect("a time");
            assert_eq!(a_time_redis_can_count(&time, &()).is_ok(), is_valid, "{time}");
        }
    }
}
