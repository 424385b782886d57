//! Days that statistics are told of.

use std::str::FromStr;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};

use crate::kit::id;

/// A UTC day on which ids can have been handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Day(pub(super) NaiveDate);

/// A text that is no such day.
#[derive(Debug, thiserror::Error)]
#[error("a day is written as 2026-11-27, and lies between 2022-01-01 and today, in UTC")]
pub struct InvalidDay;

impl Day {
    /// The first moment.
    pub fn begin(self) -> DateTime<Utc> {
        self.0.and_time(NaiveTime::MIN).and_utc()
    }

    /// The first moment of the next day.
    pub fn end(self) -> DateTime<Utc> {
        self.begin() + Days::new(1)
    }
}

/// Exactly as in `2026-11-27`; days that are still to come are days, too.
impl FromStr for Day {
    type Err = InvalidDay;

    fn from_str(text: &str) -> Result<Self, InvalidDay> {
        let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").map_err(|_| InvalidDay)?;
        let is_written_so = day.to_string() == text && text.len() == "2026-11-27".len();
        (is_written_so && day >= id::FIRST_DAY).then_some(Self(day)).ok_or(InvalidDay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_in_one_way() {
        for text in ["2022-01-01", "2024-02-29", "2026-11-27", "9999-12-31"] {
            assert_eq!(text.parse::<Day>().expect("it is a day").0.to_string(), text);
        }
        for text in [
            "",
            "today",
            "2021-12-31",
            "1970-01-01",
            "2026-02-29",
            "2026-13-01",
            "2026-11-31",
            "2026-1-5",
            "+2026-1-05",
            " 2026-1-05",
            "26-11-27",
            "+2026-11-27",
            "20261127",
            "2026-11-27T00:00:00Z",
            " 2026-11-27",
            "2026-11-27 ",
            "+12026-11-27",
        ] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
    }
}
