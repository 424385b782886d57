//! The rows of endpoints and of deliveries.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use super::model::{Delivery, Webhook, WebhookChange, WebhookState};
use crate::base::gauges::Gauge;
use crate::base::limits;
use crate::events::feed::EventId;
use crate::store::ids::{DeliveryId, WebhookId};
use crate::store::postgres;

/// An endpoint that this process sends to, while nobody else does.
pub struct Leased {
    pub id: WebhookId,
    pub url: String,
    pub types: Vec<String>,
    pub secret: String,
    pub old_secret: Option<String>,
    pub last_event: Option<String>,
    /// The end of the lease, which stands for it.
    leased_until: DateTime<Utc>,
}

/// What a try to deliver has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    pub status: Option<u16>,
    /// What was wrong; `None` if the event was delivered.
    pub error: Option<String>,
}

/// Stores an endpoint, unless there are [`limits::WEBHOOKS_MAX`] already.
pub async fn insert(
    tx: &mut PgConnection,
    url: &str,
    types: &[String],
    secret: &str,
    last_event: Option<EventId>,
) -> sqlx::Result<Option<WebhookId>> {
    sqlx::query_scalar!(
        r#"INSERT INTO webhooks (url, types, secret, last_event)
           SELECT $1, $2, $3, $4 WHERE (SELECT count(*) FROM webhooks) < $5
           RETURNING id AS "id: WebhookId""#,
        url,
        types,
        secret,
        last_event.map(String::from),
        limits::WEBHOOKS_MAX,
    )
    .fetch_optional(tx)
    .await
}

/// All endpoints, newest first, or the one with this id.
pub async fn read(tx: &mut PgConnection, id: Option<WebhookId>) -> sqlx::Result<Vec<Webhook>> {
    sqlx::query_as!(
        Webhook,
        r#"SELECT id AS "id: WebhookId", url, types, state AS "state: WebhookState", last_event, failing_since, error,
                  CASE WHEN state = 'active' AND tries > 0 THEN next_try_at END AS next_try_at, created_at,
                  NULL::text AS secret
           FROM webhooks WHERE $1::bigint IS NULL OR id = $1 ORDER BY id DESC"#,
        id.map(WebhookId::get),
    )
    .fetch_all(tx)
    .await
}

/// Changes an endpoint, with its place in the feed if there is another one, and tries it at once if it is active. A
/// process that sends to it notices at the end of its request.
pub async fn change(
    tx: &mut PgConnection,
    id: WebhookId,
    change: &WebhookChange,
    new_secret: Option<&str>,
    place: Option<Option<EventId>>,
) -> sqlx::Result<bool> {
    let changed = sqlx::query!(
        "UPDATE webhooks
         SET url = coalesce($2, url), types = coalesce($3, types), state = coalesce($4, state),
             secret = coalesce($5, secret),
             old_secret = CASE WHEN $5 IS NULL THEN old_secret ELSE secret END,
             old_secret_until = CASE WHEN $5 IS NULL THEN old_secret_until ELSE now() + make_interval(secs => $6) END,
             last_event = CASE WHEN $7 THEN $8 ELSE last_event END,
             next_try_at = now(), leased_until = 'epoch',
             tries = CASE WHEN coalesce($4, state) = 'active' THEN 0 ELSE tries END,
             failing_since = CASE WHEN coalesce($4, state) = 'active' THEN NULL ELSE failing_since END,
             error = CASE WHEN coalesce($4, state) = 'active' THEN NULL ELSE error END
         WHERE id = $1",
        id.get(),
        change.url,
        change.types.as_deref(),
        change.state as Option<WebhookState>,
        new_secret,
        limits::WEBHOOK_SECRET_AFTERLIFE.as_secs_f64(),
        place.is_some(),
        place.flatten().map(String::from),
    )
    .execute(tx)
    .await?;
    Ok(changed.rows_affected() > 0)
}

/// The last event that had been delivered to an endpoint by then.
pub async fn delivered_before(
    tx: &mut PgConnection,
    id: WebhookId,
    time: DateTime<Utc>,
) -> sqlx::Result<Option<EventId>> {
    let event = sqlx::query_scalar!(
        "SELECT event FROM webhook_deliveries WHERE webhook = $1 AND at < $2 AND error IS NULL
         ORDER BY at DESC LIMIT 1",
        id.get(),
        time,
    );
    Ok(event.fetch_optional(tx).await?.and_then(|event| EventId::try_from(event).ok()))
}

pub async fn delete(tx: &mut PgConnection, id: WebhookId) -> sqlx::Result<bool> {
    let deleted = sqlx::query!("DELETE FROM webhooks WHERE id = $1", id.get()).execute(tx).await?;
    Ok(deleted.rows_affected() > 0)
}

/// URL and secrets of an endpoint.
pub async fn secrets(pool: &PgPool, id: WebhookId) -> sqlx::Result<Option<Leased>> {
    sqlx::query_as!(
        Leased,
        r#"SELECT id AS "id: WebhookId", url, types, secret, last_event, leased_until,
                  CASE WHEN old_secret_until > now() THEN old_secret END AS old_secret
           FROM webhooks WHERE id = $1"#,
        id.get(),
    )
    .fetch_optional(pool)
    .await
}

/// Endpoints that are to be tried now and that no process sends to, each with the last event that it has.
pub async fn due(pool: &PgPool) -> sqlx::Result<Vec<(WebhookId, Option<String>)>> {
    let due = sqlx::query!(
        r#"SELECT id AS "id: WebhookId", last_event FROM webhooks
           WHERE state = 'active' AND next_try_at <= now() AND leased_until <= now()"#
    );
    let due = due.fetch_all(pool).await?;
    Ok(due.into_iter().map(|row| (row.id, row.last_event)).collect())
}

/// Takes the lease of an endpoint that is due; `None` if another process was faster.
pub async fn lease(pool: &PgPool, id: WebhookId) -> sqlx::Result<Option<Leased>> {
    sqlx::query_as!(
        Leased,
        r#"UPDATE webhooks SET leased_until = now() + make_interval(secs => $2)
           WHERE id = $1 AND state = 'active' AND next_try_at <= now() AND leased_until <= now()
           RETURNING id AS "id: WebhookId", url, types, secret, last_event, leased_until,
                     CASE WHEN old_secret_until > now() THEN old_secret END AS old_secret"#,
        id.get(),
        limits::WEBHOOK_LEASE.as_secs_f64(),
    )
    .fetch_optional(pool)
    .await
}

/// Renews the lease. False if it has ended, as it does when the endpoint is changed.
pub async fn renew(pool: &PgPool, leased: &mut Leased) -> sqlx::Result<bool> {
    let until = sqlx::query_scalar!(
        "UPDATE webhooks SET leased_until = now() + make_interval(secs => $3)
         WHERE id = $1 AND leased_until = $2 RETURNING leased_until",
        leased.id.get(),
        leased.leased_until,
        limits::WEBHOOK_LEASE.as_secs_f64(),
    );
    let Some(until) = until.fetch_optional(pool).await? else { return Ok(false) };
    leased.leased_until = until;
    Ok(true)
}

/// Notes that the endpoint has this event, or isn't to have it, and renews the lease. False if the lease has ended: then nothing is noted.
pub async fn advance(pool: &PgPool, leased: &mut Leased, event: EventId) -> sqlx::Result<bool> {
    let event = String::from(event);
    let until = sqlx::query_scalar!(
        r#"UPDATE webhooks SET last_event = $3, tries = 0, failing_since = NULL, error = NULL,
                  leased_until = now() + make_interval(secs => $4)
           WHERE id = $1 AND leased_until = $2 RETURNING leased_until"#,
        leased.id.get(),
        leased.leased_until,
        event,
        limits::WEBHOOK_LEASE.as_secs_f64(),
    );
    let Some(until) = until.fetch_optional(pool).await? else { return Ok(false) };
    (leased.leased_until, leased.last_event) = (until, Some(event));
    Ok(true)
}

/// Begins with the oldest event. False if the lease has ended.
pub async fn begin_anew(pool: &PgPool, leased: &mut Leased) -> sqlx::Result<bool> {
    let begun = sqlx::query!(
        "UPDATE webhooks SET last_event = NULL WHERE id = $1 AND leased_until = $2",
        leased.id.get(),
        leased.leased_until,
    );
    leased.last_event = None;
    Ok(begun.execute(pool).await?.rows_affected() > 0)
}

/// Notes a failure, and ends the lease. Returns the state now; `None` if the lease had ended before.
pub async fn fail(
    pool: &PgPool,
    leased: &Leased,
    error: &str,
    is_gone: bool,
) -> sqlx::Result<Option<WebhookState>> {
    sqlx::query_scalar!(
        r#"UPDATE webhooks
           SET tries = tries + 1, failing_since = coalesce(failing_since, now()), error = $3, leased_until = 'epoch',
               next_try_at = now() + make_interval(secs => least($5, $4 * 2 ^ least(tries, 30))),
               state = CASE WHEN $7 OR failing_since < now() - make_interval(secs => $6) THEN 'disabled' ELSE state END
           WHERE id = $1 AND leased_until = $2
           RETURNING state AS "state: WebhookState""#,
        leased.id.get(),
        leased.leased_until,
        error,
        limits::WEBHOOK_PAUSE_MIN.as_secs_f64(),
        limits::WEBHOOK_PAUSE_MAX.as_secs_f64(),
        limits::WEBHOOK_FAILING_MAX.as_secs_f64(),
        is_gone,
    )
    .fetch_optional(pool)
    .await
}

/// Ends the lease: nothing is left to send, or the process stops.
pub async fn release(pool: &PgPool, leased: &Leased) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE webhooks SET leased_until = 'epoch' WHERE id = $1 AND leased_until = $2",
        leased.id.get(),
        leased.leased_until,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Notes a try. An endpoint that was deleted meanwhile has none.
pub async fn note(
    pool: &PgPool,
    id: WebhookId,
    event: EventId,
    kind: &str,
    tried: &Tried,
) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO webhook_deliveries (webhook, event, type, status, error)
         SELECT $1, $2, $3, $4, $5 WHERE EXISTS (SELECT FROM webhooks WHERE id = $1 FOR KEY SHARE)",
        id.get(),
        String::from(event),
        kind,
        tried.status.and_then(|status| i16::try_from(status).ok()),
        tried.error,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// The tries of an endpoint, newest first, from before the try `behind`.
pub async fn deliveries(
    pool: &PgPool,
    id: WebhookId,
    behind: Option<DeliveryId>,
    limit: u32,
) -> sqlx::Result<Vec<Delivery>> {
    sqlx::query_as!(
        Delivery,
        r#"SELECT id AS "id: DeliveryId", at, event AS event_id, type AS kind, status, error
           FROM webhook_deliveries WHERE webhook = $1 AND id < $2 ORDER BY id DESC LIMIT $3"#,
        id.get(),
        behind.map_or(i64::MAX, DeliveryId::get),
        i64::from(limit),
    )
    .fetch_all(pool)
    .await
}

/// Deletes tries from before this time, and those of endpoints that are gone, `limit` at most. Returns their number.
pub async fn forget(pool: &PgPool, before: DateTime<Utc>, limit: u32) -> sqlx::Result<u64> {
    let mut tx = postgres::begin_planning(pool).await?;
    let gone = sqlx::query!(
        "DELETE FROM webhook_deliveries WHERE (webhook, id) IN (
             SELECT webhook, id FROM webhook_deliveries
             WHERE at < $1 OR NOT EXISTS (SELECT FROM webhooks WHERE webhooks.id = webhook)
             LIMIT $2 FOR UPDATE SKIP LOCKED)",
        before,
        i64::from(limit),
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(deleted)
}

/// Number of endpoints that are disabled, for the operator's numbers.
pub async fn disabled(pool: &PgPool) -> sqlx::Result<Gauge> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM webhooks WHERE state = 'disabled'"#
    );
    Ok(Gauge::plain("flash_sale_webhooks_disabled", count.fetch_one(pool).await? as f64))
}
