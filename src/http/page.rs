//! Pages of lists, newest first. Each page begins after the last id of the page before.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use chrono::{DateTime, Utc};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use utoipa::{IntoParams, ToSchema};

use super::extract::query;
use super::problem::Problem;
use crate::base::limits;

/// Items on a page if the client gives no limit.
const LIMIT: u32 = 20;

/// Parameters of a page, for the document; the items of the list have ids of type `I`.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only the document reads it")]
pub struct PageParams<I: ToSchema> {
    /// `next_cursor` of the page before; leave it out for the first page.
    #[param(inline, nullable = false)]
    cursor: Option<I>,
    /// Items on a page, 1 to 100; 20 if not given.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// The page that a request asks for.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page<I> {
    /// Last id of the page before, if there is one.
    pub cursor: Option<I>,
    limit: Option<u32>,
}

/// For a list without filters.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct All {}

/// What a request for a list asks for: its filter, and the page.
pub struct List<F, I>(pub F, pub Page<I>);

impl<S: Send + Sync, F: DeserializeOwned, I: DeserializeOwned> FromRequestParts<S> for List<F, I> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let parts = parts.uri.query().unwrap_or_default().split('&');
        let is_of_page = |part: &&str| part.starts_with("cursor=") || part.starts_with("limit=");
        let (page, filter): (Vec<&str>, Vec<&str>) = parts.partition(is_of_page);
        let page: Page<I> = query(&page.join("&"))?;
        if !(1..=limits::PAGE_MAX).contains(&page.limit()) {
            let detail = format!("`limit` is a number from 1 to {}", limits::PAGE_MAX);
            return Err(Problem::of("invalid_query", detail));
        }
        Ok(Self(query(&filter.join("&"))?, page))
    }
}

impl<I> Page<I> {
    pub fn limit(&self) -> u32 {
        self.limit.unwrap_or(LIMIT)
    }

    /// Items to read: one more than the page has, to see whether there is another page.
    pub fn read_max(&self) -> u32 {
        self.limit() + 1
    }

    /// Cuts the found items down to the page. If there are more, the cursor is the last id on the page.
    pub fn cut<T>(&self, mut found: Vec<T>, id: impl Fn(&T) -> I) -> (Vec<T>, Option<I>) {
        let limit = usize::try_from(self.limit()).unwrap_or(usize::MAX);
        let more = found.len() > limit;
        found.truncate(limit);
        let cursor = found.last().map(id).filter(|_| more);
        (found, cursor)
    }
}

/// A time in RFC 3339, such as 2030-01-01T00:00:00Z, in the years 1970 to 9999. Postgres refuses some others.
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
