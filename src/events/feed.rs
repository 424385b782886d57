//! The feed: events in order, after the last one that a reader has processed.
//!
//! The id of an event is its place in the feed, and the time of its transaction. A reader keeps the id of the last
//! event that it has processed, and nothing else. That event has to be there still. It isn't if Postgres has gone back
//! in time (another event may have its place by now, with another time), if the reader was away for longer than events
//! are kept, or if the database is that of another cluster. The reader is then told so, instead of being given events
//! with a gap.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::store::postgres;

/// Id of an event: transaction, number and microsecond, as `4711-12-1796054400000000`. Readers keep it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EventId {
    xid: i64,
    id: i64,
    micros: i64,
}

impl EventId {
    fn of(xid: i64, id: i64, at: DateTime<Utc>) -> Self {
        Self { xid, id, micros: at.timestamp_micros() }
    }
}

impl From<EventId> for String {
    fn from(EventId { xid, id, micros }: EventId) -> Self {
        format!("{xid}-{id}-{micros}")
    }
}

impl TryFrom<String> for EventId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let numbers = text.split('-').map(|part| part.parse().ok());
        match numbers.collect::<Option<Vec<i64>>>().as_deref() {
            Some(&[xid, id, micros]) => Ok(Self { xid, id, micros }),
            _ => Err("`after` is the `id` of an event"),
        }
    }
}

/// An event (CloudEvents 1.0).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CloudEvent {
    /// `1.0`, the version of CloudEvents.
    specversion: &'static str,
    /// Id of the event, and its place in the feed. No other event ever gets it.
    #[schema(value_type = String)]
    pub id: EventId,
    /// The installation, as `urn:uuid:...`.
    source: String,
    /// Kind of the event, such as `order.paid`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The order or coupon that it is about, such as `orders/123`.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// When its transaction began.
    time: DateTime<Utc>,
    /// `application/json`, the form of `data`.
    datacontenttype: &'static str,
    /// Details of the event (docs/events.md).
    #[schema(value_type = Object)]
    data: Value,
}

/// Answer to a reader.
#[derive(Debug)]
pub enum Told {
    /// The next events; none if there are none yet.
    Events(Vec<CloudEvent>),
    /// The event that the reader names isn't there.
    Unknown,
    /// Events are not written.
    Off,
}

/// The feed. Clones share the pool.
#[derive(Clone)]
pub struct Feed {
    pool: PgPool,
    shutdown: Shutdown,
    is_on: bool,
}

impl Feed {
    /// Whether events are written.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// The feed of this database; `is_on` if events are written to it.
    pub fn new(pool: PgPool, shutdown: Shutdown, is_on: bool) -> Self {
        Self { pool, shutdown, is_on }
    }

    /// The events after this one, oldest first; without one, from the oldest event on. Waits up to `wait` for the
    /// first.
    pub async fn read(
        &self,
        after: Option<EventId>,
        limit: u32,
        wait: Duration,
    ) -> sqlx::Result<Told> {
        if !self.is_on {
            return Ok(Told::Off);
        }
        let deadline = Instant::now() + wait;
        loop {
            let page = self.page(after, limit).await?;
            let is_empty = matches!(&page, Told::Events(events) if events.is_empty());
            let now = Instant::now();
            if !is_empty || now >= deadline || self.shutdown.stop_token().is_cancelled() {
                return Ok(page);
            }
            sleep(limits::EVENTS_CHECK_PERIOD.min(deadline - now)).await;
        }
    }

    /// Id of the newest event that can be read.
    pub async fn newest(&self) -> sqlx::Result<Option<EventId>> {
        let mut tx = postgres::begin_by_index(&self.pool).await?;
        let newest = sqlx::query!(
            r#"SELECT xid::text::bigint AS "xid!", id, created_at FROM events
               WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid DESC, id DESC LIMIT 1"#
        );
        let newest = newest.fetch_optional(&mut *tx).await?;
        tx.commit().await?;
        Ok(newest.map(|row| EventId::of(row.xid, row.id, row.created_at)))
    }

    /// The installation, as events name it.
    pub async fn source(&self) -> sqlx::Result<String> {
        let installation =
            sqlx::query_scalar!(r#"SELECT installation::text AS "id!" FROM settings"#);
        Ok(source(&installation.fetch_one(&self.pool).await?))
    }

    /// The events after this one, without waiting.
    pub async fn page(&self, after: Option<EventId>, limit: u32) -> sqlx::Result<Told> {
        // Begins with the reader's own event, so the same query tells whether it is there. Finds nothing while there
        // are rows of another cluster, which are about to be deleted.
        let mut tx = postgres::begin_by_index(&self.pool).await?;
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT xid::text::bigint AS "xid!", id, (SELECT installation::text FROM settings) AS "installation!",
                      type AS kind, subject, data, claims, created_at
               FROM events
               WHERE (xid, id) >= ($1::text::xid8, $2) AND xid < pg_snapshot_xmin(pg_current_snapshot())
                 AND NOT EXISTS (SELECT FROM events WHERE xid >= pg_snapshot_xmax(pg_current_snapshot()))
               ORDER BY xid, id LIMIT $3"#,
            after.map_or(0, |after| after.xid).to_string(),
            after.map_or(0, |after| after.id),
            i64::from(limit) + i64::from(after.is_some()),
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let mut events = rows.into_iter().map(CloudEvent::from);
        if after.is_some() && events.next().map(|event| event.id) != after {
            return Ok(Told::Unknown);
        }
        Ok(Told::Events(events.collect()))
    }
}

struct Row {
    xid: i64,
    id: i64,
    installation: String,
    kind: String,
    subject: Option<String>,
    data: Option<Value>,
    claims: Option<Vec<i64>>,
    created_at: DateTime<Utc>,
}

impl From<Row> for CloudEvent {
    fn from(row: Row) -> Self {
        let claims = row.claims.unwrap_or_default();
        let orders: Vec<Value> = claims.chunks_exact(4).map(claim).collect();
        Self {
            specversion: "1.0",
            id: EventId::of(row.xid, row.id, row.created_at),
            source: source(&row.installation),
            kind: row.kind,
            subject: row.subject,
            time: row.created_at,
            datacontenttype: "application/json",
            data: row.data.unwrap_or_else(|| json!({ "orders": orders })),
        }
    }
}

impl CloudEvent {
    /// An event that isn't of the feed, to try an endpoint with.
    pub fn test(source: String, now: DateTime<Utc>) -> Self {
        Self {
            specversion: "1.0",
            id: EventId::of(0, 0, now),
            source,
            kind: "webhook.test".to_owned(),
            subject: None,
            time: now,
            datacontenttype: "application/json",
            data: json!({}),
        }
    }
}

fn source(installation: &str) -> String {
    format!("urn:uuid:{installation}")
}

/// The first move of an order.
fn claim(numbers: &[i64]) -> Value {
    let [order, coupon, user] = [numbers[0], numbers[1], numbers[2]].map(|id| id.to_string());
    json!({"order_id": order, "coupon_id": coupon, "user_id": user, "pay_cents": numbers[3], "move": 1})
}
