//! Pages of lists, newest first.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::de::{Deserialize, Deserializer, Error};
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;

/// Items on a page if the client gives no limit.
const LIMIT: u32 = 20;

/// Part of a list whose items have ids of type `I`.
#[derive(serde::Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page<I: ToSchema> {
    /// `next_cursor` of the page before; nothing for the first.
    #[param(inline, nullable = false)]
    pub cursor: Option<I>,
    /// Items on a page, 1 to 100; 20 if not given.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

impl<I: ToSchema> Page<I> {
    /// Length of the page, of at most `max` items.
    pub fn limit(&self, max: u32) -> Result<u32, Problem> {
        page_limit(self.limit, max)
    }
}

/// Length of a page for the limit that a client has given.
pub fn page_limit(asked: Option<u32>, max: u32) -> Result<u32, Problem> {
    let limit = asked.unwrap_or(LIMIT);
    if (1..=max).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("`limit` is a number from 1 to {max}");
    Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", detail))
}

/// Time in a query: of RFC 3339, as in 2030-01-01T00:00:00Z, in the years 1970 to 9999. Postgres refuses some others.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(value_type = String, format = DateTime, pattern = "^(19[7-9][0-9]|[2-9][0-9]{3})-")]
pub struct Time(pub DateTime<Utc>);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let year = text.split_once('-').map_or("", |(year, _)| year);
        match text.parse() {
            Ok(time) if year.len() == 4 && year >= "1970" => Ok(Self(time)),
            _ => Err(Error::custom("no time of these years")),
        }
    }
}

/// Cuts the found items down to a page. If there are more, the cursor is the last id on the page.
pub fn cut_page<T, I>(mut found: Vec<T>, limit: u32, id: impl Fn(&T) -> I) -> (Vec<T>, Option<I>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = found.len() > limit;
    found.truncate(limit);
    let cursor = found.last().map(id).filter(|_| more);
    (found, cursor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::ids::RunId;

    #[test]
    fn the_limit_of_a_page_is_bounded_and_has_a_default() {
        for (asked, max, limit) in [
            (None, 100, Some(20)),
            (Some(1), 100, Some(1)),
            (Some(100), 100, Some(100)),
            (Some(101), 100, None),
            (Some(0), 100, None),
            (Some(u32::MAX), 100, None),
            (Some(7), 7, Some(7)),
            (None, 19, None),
        ] {
            let page = Page::<RunId> { cursor: None, limit: asked };
            for read in [page_limit(asked, max), page.limit(max)] {
                assert_eq!(read.as_ref().ok().copied(), limit, "{asked:?} of {max}");
                if let Err(problem) = read {
                    assert_eq!(problem.code(), "invalid_query");
                }
            }
        }
    }

    #[test]
    fn a_page_is_cut_to_its_limit_and_tells_its_last_id_if_there_are_more() {
        let newest_first = [9, 7, 5, 3];
        for (found, limit, page, cursor) in [
            (0, 2, &[][..], None),
            (1, 2, &[9], None),
            (2, 2, &[9, 7], None),
            (3, 2, &[9, 7], Some(-7)),
            (4, 2, &[9, 7], Some(-7)),
            (2, 1, &[9], Some(-9)),
        ] {
            let cut = cut_page(newest_first[..found].to_vec(), limit, |id| -id);
            assert_eq!(cut, (page.to_vec(), cursor), "{found} found, {limit} on a page");
        }
    }

    #[test]
    fn a_time_of_a_query_has_a_year_of_four_digits_from_1970_on() {
        for (text, is_one) in [
            ("1970-01-01T00:00:00Z", true),
            ("1971-01-01T00:00:00Z", true),
            ("9999-12-31T23:59:59Z", true),
            ("1969-12-31T23:59:59Z", false),
            ("0000-01-01T00:00:00Z", false),
            ("200-01-01T00:00:00Z", false),
            ("+10000-01-01T00:00:00Z", false),
            ("+2026-01-01T00:00:00Z", false),
            ("-2026-01-01T00:00:00Z", false),
            ("2026-13-01T00:00:00Z", false),
            ("2026", false),
            ("", false),
        ] {
            let read = serde_json::from_value::<Time>(text.into());
            let expected = is_one.then(|| text.parse::<DateTime<Utc>>().expect("a time"));
            assert_eq!(read.ok().map(|Time(time)| time), expected, "{text}");
        }
    }
}
