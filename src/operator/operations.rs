//! What waits for a person, in one shape and one list. This module owns no table: a view reads those that are there
//! (`migrations/0008_operator.sql`). An item leaves the list when its row says that nothing is left to do.
//!
//! The list goes kind by kind, and within a kind from the newest item on. So each kind is read by the index of its own
//! table, and a page reads no more rows than it shows.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use utoipa::ToSchema;

use crate::payment::model::PaymentStatus;
use crate::payment::owed;
use crate::store::job::Job;
use crate::store::postgres;

/// Kind of an item that waits, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpenKind {
    /// A lane that has been closed for more than 30 s.
    Lane,
    /// A disagreement of the stores, in the newest comparison.
    Finding,
    /// A recovery with claims that could not be kept.
    Recovery,
    /// An open dead letter.
    DeadLetter,
    /// A payment whose money no order has.
    HeldPayment,
    /// A refund that the gateway has not confirmed.
    Refund,
    /// An endpoint of events that is disabled.
    Webhook,
    /// An item that a job could not deal with.
    Postponed,
}

impl OpenKind {
    /// All kinds, in the order of the list.
    pub const ALL: [Self; 8] = [
        Self::Lane,
        Self::Finding,
        Self::Recovery,
        Self::DeadLetter,
        Self::HeldPayment,
        Self::Refund,
        Self::Webhook,
        Self::Postponed,
    ];

    /// Name of the kind in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::Finding => "finding",
            Self::Recovery => "recovery",
            Self::DeadLetter => "dead_letter",
            Self::HeldPayment => "held_payment",
            Self::Refund => "refund",
            Self::Webhook => "webhook",
            Self::Postponed => "postponed",
        }
    }

    /// Advice about an item of this kind; `about` is the column of the view.
    fn advice(self, about: &str) -> String {
        let advice = match self {
            Self::Lane => {
                "Users can't claim the coupons of this lane. A recovery takes seconds: the log of the worker that keeps the lanes says what it waits for. If Postgres went back in time, an operator has to decide: `flash-sale recover --dry-run` shows what each store has that the other one lacks, and `--trust redis` or `--trust postgres` decides; `--lane N` for one lane alone."
            }
            Self::Finding => {
                return format!("docs/reconcile.md#{about} says what it means and what to do.");
            }
            Self::Recovery => {
                "Tell each buyer that the order isn't there (`GET /v1/recoveries` names them), then settle it with a note (`POST /v1/recoveries/{id}/settle`). A claim `accepted_without_unit` is a dead letter, too: restock the sale and try that one again, or discard it."
            }
            Self::DeadLetter => {
                "A buyer was told an order that isn't there. Try the claim again (`POST /v1/dead-letters/{id}/retry`), or discard it (`POST /v1/dead-letters/{id}/discard`): a cancelled order ends the promise, and its unit comes back if it exists."
            }
            Self::HeldPayment => owed::advice(PaymentStatus::Held, about),
            Self::Refund => owed::advice(PaymentStatus::Refunding, about),
            Self::Webhook => {
                "No event is sent to this endpoint any more. Ask those who run it; then `PATCH /v1/webhooks/{id}` with `{\"state\": \"active\"}` goes on where it stopped, and DELETE gives it up."
            }
            Self::Postponed => return advice_on_item(about),
        };
        advice.to_owned()
    }
}

/// Advice about an item that a job has postponed.
fn advice_on_item(job_and_item: &str) -> String {
    let (job, item) = job_and_item.split_once(' ').unwrap_or((job_and_item, ""));
    let remedy = Job::of_name(job).and_then(Job::remedy).unwrap_or("Look at the error.");
    remedy.replace("ID", item)
}

/// An item that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OpenItem {
    /// Kind of the item.
    pub kind: OpenKind,
    /// Id of the dead letter, payment, endpoint, postponed item or recovery; number of the lane; for a finding, a number that
    /// only this list uses.
    pub id: String,
    /// Time since which it waits; for a finding, the end of the comparison.
    pub since: DateTime<Utc>,
    /// The same as an age, in seconds.
    pub age_s: i64,
    /// Code of a finding, reason of a dead letter or a payment, or job of a postponed item; empty for others.
    pub reason: String,
    /// The item in words.
    pub detail: String,
    /// Advice in words.
    pub what_to_do: String,
    /// Place in the list.
    #[serde(skip)]
    pub place: OpenPlace,
}

/// Place in the list: `dead_letter-17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct OpenPlace {
    kind: OpenKind,
    id: i64,
}

/// Text of a place in the list.
#[derive(ToSchema)]
#[schema(
    max_length = 48,
    pattern = "^(lane-(0|[1-9][0-9]{0,3})|(finding|recovery|dead_letter|held_payment|refund|webhook|postponed)-[1-9][0-9]{0,18})$"
)]
pub struct OpenPlaceText(pub String);

#[derive(Debug, thiserror::Error)]
#[error("give the `next_cursor` of the page before, such as `dead_letter-17`")]
pub struct InvalidPlace;

impl fmt::Display for OpenPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.kind.as_str(), self.id)
    }
}

impl FromStr for OpenPlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let (kind, id) = text.split_once('-').ok_or(InvalidPlace)?;
        let kind = OpenKind::ALL.into_iter().find(|known| known.as_str() == kind);
        let place =
            Self { kind: kind.ok_or(InvalidPlace)?, id: id.parse().map_err(|_| InvalidPlace)? };
        // A place has one text. Only lanes are numbered from 0.
        let is_id = place.id > 0 || place.id == 0 && place.kind == OpenKind::Lane;
        (is_id && place.to_string() == text).then_some(place).ok_or(InvalidPlace)
    }
}

impl From<OpenPlace> for String {
    fn from(place: OpenPlace) -> Self {
        place.to_string()
    }
}

impl TryFrom<String> for OpenPlace {
    type Error = InvalidPlace;

    fn try_from(text: String) -> Result<Self, InvalidPlace> {
        text.parse()
    }
}

/// The list of what waits for a person. Clones share the pool.
#[derive(Clone)]
pub struct Operations {
    pool: PgPool,
}

impl Operations {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Items of one kind or of all, after the given place.
    pub async fn list(
        &self,
        only: Option<OpenKind>,
        behind: Option<OpenPlace>,
        limit: u32,
    ) -> sqlx::Result<Vec<OpenItem>> {
        let first = behind.map_or(OpenKind::ALL[0], |place| place.kind);
        let kinds = OpenKind::ALL.into_iter().filter(|kind| *kind >= first);
        let mut found = Vec::new();
        for kind in kinds.filter(|kind| only.is_none_or(|only| only == *kind)) {
            let room = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            if room == 0 {
                break;
            }
            let below = behind.filter(|place| place.kind == kind).map(|place| place.id);
            found.extend(of_kind(&self.pool, kind, below, room).await?);
        }
        Ok(found)
    }
}

async fn of_kind(
    pool: &PgPool,
    kind: OpenKind,
    below: Option<i64>,
    limit: u32,
) -> sqlx::Result<Vec<OpenItem>> {
    // A plan that knows the kind reads one table, by its ids.
    let mut tx = postgres::begin_planning(pool).await?;
    let rows = sqlx::query_as!(
        WaitingRow,
        r#"SELECT id AS "id!", since AS "since!", detail AS "detail!", about AS "about!",
                  greatest(extract(epoch FROM now() - since), 0)::bigint AS "age_s!"
           FROM waiting WHERE kind = $1 AND id < coalesce($2, 9223372036854775807)
           ORDER BY id DESC LIMIT $3"#,
        kind.as_str(),
        below,
        i64::from(limit),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    let item = |row: WaitingRow| OpenItem {
        kind,
        id: row.id.to_string(),
        since: row.since,
        age_s: row.age_s,
        reason: row.about.split(' ').next().unwrap_or_default().to_owned(),
        detail: row.detail,
        what_to_do: kind.advice(&row.about),
        place: OpenPlace { kind, id: row.id },
    };
    Ok(rows.into_iter().map(item).collect())
}

/// Number of items of one kind, and the age of the oldest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OpenCount {
    /// Name of the kind.
    pub kind: String,
    /// Number of items.
    pub items: i64,
    /// Age of the oldest, in seconds.
    pub oldest_s: i64,
}

/// Counts the items; kinds without any are left out.
pub async fn count(pool: &PgPool) -> sqlx::Result<Vec<OpenCount>> {
    sqlx::query_as!(
        OpenCount,
        r#"SELECT kind AS "kind!", count(*) AS "items!",
                  greatest(extract(epoch FROM now() - min(since)), 0)::bigint AS "oldest_s!"
           FROM waiting GROUP BY kind ORDER BY kind"#
    )
    .fetch_all(pool)
    .await
}

/// The newest items of each kind that was counted, at most `limit` of each.
pub async fn newest(
    pool: &PgPool,
    counted: &[OpenCount],
    limit: u32,
) -> sqlx::Result<Vec<OpenItem>> {
    let mut found = Vec::new();
    for kind in OpenKind::ALL {
        if counted.iter().any(|count| count.kind == kind.as_str()) {
            found.extend(of_kind(pool, kind, None, limit).await?);
        }
    }
    Ok(found)
}

struct WaitingRow {
    id: i64,
    since: DateTime<Utc>,
    age_s: i64,
    detail: String,
    about: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_name() {
        for text in ["lane-0", "lane-1023", "dead_letter-17", "refund-9223372036854775807"] {
            let place: OpenPlace = text.parse().expect("it is a place");
            assert_eq!(place.to_string(), text);
        }
        let wrong = [
            "",
            "17",
            "dead_letter",
            "dead_letter-",
            "dead_letter-0",
            "dead_letter--1",
            "finding-03",
            "cook-1",
            "refund-+1",
            "refund-9223372036854775808",
        ];
        for text in wrong {
            assert!(text.parse::<OpenPlace>().is_err(), "{text}");
        }
    }

    #[test]
    fn kinds_stand_in_the_order_of_the_list() {
        assert!(OpenKind::ALL.is_sorted());
        for kind in OpenKind::ALL {
            assert_eq!(serde_json::to_value(kind).expect("a word"), kind.as_str());
        }
    }

    #[test]
    fn a_postponed_item_has_the_remedy_of_its_job_with_its_id() {
        let advice = OpenKind::Postponed.advice("archive 77");
        assert!(advice.contains("`POST /v1/coupons/77/archive`"), "{advice}");
        assert_eq!(OpenKind::Postponed.advice("new_job 7"), "Look at the error.");
    }
}
