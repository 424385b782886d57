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
