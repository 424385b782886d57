//! Webhooks: events that the service sends to other systems. Owner of the tables `webhooks` and `webhook_deliveries`.
//!
//! # Model
//!
//! Each endpoint has its place in the feed: the last event that it was sent, or that isn't for it. A process that finds
//! later events takes the endpoint's lease, and sends them one after the other, outside of any transaction (`send.rs`).
//! After a reply with 2xx the place moves on, if the lease is still there; each other change of the row ends the lease.
//! So one process at a time sends to an endpoint, and one endpoint waits for no other.
//!
//! # Failures
//!
//! * No 2xx in time: the event is tried again, and nothing behind it is sent, after a pause that doubles from
//!   [`limits::WEBHOOK_PAUSE_MIN`] to [`limits::WEBHOOK_PAUSE_MAX`]. After [`limits::WEBHOOK_FAILING_MAX`] without a
//!   delivery, or with 410, the endpoint is disabled, and waits for a person (`GET /v1/operations`).
//! * The process dies: its lease ends, and another process sends the event again, under the same `webhook-id`.
//! * The event at the place is gone (the endpoint was paused for longer than events are kept, or Postgres went back):
//!   the endpoint goes on with the oldest event that is kept.
//!
//! # What is not promised
//!
//! That an event comes once, or that no event is missing after such a gap. The order is that of the feed.

// Sends what is due.
pub mod send;

// The rows of endpoints and of deliveries.
mod rows;

// Signatures.
mod sign;

// Endpoints and deliveries, as people see them.
pub mod model;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use secrecy::ExposeSecret;
use serde_json::json;
use sqlx::{PgConnection, PgPool};

use crate::base::clock::Clock;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::events::feed::{EventId, Feed};
use crate::kit::http_client::HttpClient;
use crate::kit::public_hosts::PublicHosts;
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::{DeliveryId, WebhookId};
use crate::store::postgres;

use model::{Delivery, NewWebhook, Webhook, WebhookChange};
pub use rows::{disabled, forget};

/// Endpoints, and the sending of events to them.
pub struct Webhooks {
    pool: PgPool,
    feed: Feed,
    client: HttpClient,
    hosts: PublicHosts,
    clock: Clock,
    shutdown: Shutdown,
}

/// Result of a change by the staff.
pub enum Changed {
    Done(Box<Webhook>),
    NotFound,
    /// The URL is refused, for this reason.
    Refused(String),
    /// There are as many endpoints as there may be.
    TooMany,
}

impl Webhooks {
    /// Sends what this feed tells, to public hosts and to these exceptions.
    pub fn new(
        pool: PgPool,
        feed: Feed,
        hosts: PublicHosts,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Arc<Self> {
        let client = HttpClient::to_public(
            limits::WEBHOOK_TIMEOUT,
            limits::WEBHOOK_REPLY_BYTES_MAX,
            hosts.clone(),
        );
        Arc::new(Self { pool, feed, client, hosts, clock, shutdown })
    }

    /// All endpoints, newest first.
    pub async fn list(&self) -> sqlx::Result<Vec<Webhook>> {
        rows::read(&mut *self.pool.acquire().await?, None).await
    }

    pub async fn show(&self, id: WebhookId) -> sqlx::Result<Option<Webhook>> {
        Ok(rows::read(&mut *self.pool.acquire().await?, Some(id)).await?.pop())
    }

    /// The tries of an endpoint, newest first, from before the try `behind`. `None` if there is no such endpoint.
    pub async fn deliveries(
        &self,
        id: WebhookId,
        behind: Option<DeliveryId>,
        limit: u32,
    ) -> sqlx::Result<Option<Vec<Delivery>>> {
        if self.show(id).await?.is_none() {
            return Ok(None);
        }
        rows::deliveries(&self.pool, id, behind, limit).await.map(Some)
    }

    /// Creates an endpoint, which is sent what happens from now on.
    pub async fn create(&self, new: NewWebhook, by: &Actor) -> sqlx::Result<Changed> {
        if let Err(reason) = self.check(&new.url) {
            return Ok(Changed::Refused(reason));
        }
        let last_event = self.feed.newest().await?;
        let secret = sign::new_secret();
        let mut tx = postgres::begin(&self.pool).await?;
        let id =
            rows::insert(&mut tx, &new.url, &new.types, secret.expose_secret(), last_event).await?;
        let Some(id) = id else { return Ok(Changed::TooMany) };
        let event = Event::of(Action::CreateWebhook, id.get());
        audit::note(&mut tx, by, event.after(json!({"url": new.url, "types": new.types}))).await?;
        let webhook = rows::read(&mut tx, Some(id)).await?.pop().ok_or(sqlx::Error::RowNotFound)?;
        tx.commit().await?;
        let secret = Some(secret.expose_secret().to_owned());
        Ok(Changed::Done(Box::new(Webhook { secret, ..webhook })))
    }

    /// Changes an endpoint.
    pub async fn change(
        &self,
        id: WebhookId,
        change: WebhookChange,
        by: &Actor,
    ) -> sqlx::Result<Changed> {
        if let Some(Err(reason)) = change.url.as_deref().map(|url| self.check(url)) {
            return Ok(Changed::Refused(reason));
        }
        let secret = change.rotate_secret.then(sign::new_secret);
        let secret = secret.map(|secret| secret.expose_secret().to_owned());
        let mut tx = postgres::begin(&self.pool).await?;
        let Some(before) = rows::read(&mut tx, Some(id)).await?.pop() else {
            return Ok(Changed::NotFound);
        };
        let place = self.resent(&mut tx, &before, change.resend_from).await?;
        if !rows::change(&mut tx, id, &change, secret.as_deref(), place).await? {
            return Ok(Changed::NotFound);
        }
        let after = rows::read(&mut tx, Some(id)).await?.pop().ok_or(sqlx::Error::RowNotFound)?;
        let values = |it: &Webhook| json!({"url": it.url, "types": it.types, "state": it.state});
        let mut told = values(&after);
        if secret.is_some() || change.resend_from.is_some() || told != values(&before) {
            told["has_new_secret"] = secret.is_some().into();
            told["resend_from"] = json!(change.resend_from);
            let event = Event::of(Action::ChangeWebhook, id.get()).before(values(&before));
            audit::note(&mut tx, by, event.after(told)).await?;
        }
        tx.commit().await?;
        Ok(Changed::Done(Box::new(Webhook { secret, ..after })))
    }

    /// The place from which all is sent again that was delivered since `from`; never behind the present one.
    async fn resent(
        &self,
        tx: &mut PgConnection,
        webhook: &Webhook,
        from: Option<DateTime<Utc>>,
    ) -> sqlx::Result<Option<Option<EventId>>> {
        let Some(from) = from else { return Ok(None) };
        // Postgres knows no time before the Stone Age.
        let from = from.clamp(DateTime::UNIX_EPOCH, self.clock.now());
        let before = rows::delivered_before(tx, webhook.id, from).await?;
        let now = webhook.last_event.clone().and_then(|last| EventId::try_from(last).ok());
        Ok(Some(before.min(now)))
    }

    /// Deletes an endpoint. False if there is none.
    pub async fn delete(&self, id: WebhookId, by: &Actor) -> sqlx::Result<bool> {
        let mut tx = postgres::begin(&self.pool).await?;
        let Some(before) = rows::read(&mut tx, Some(id)).await?.pop() else { return Ok(false) };
        if !rows::delete(&mut tx, id).await? {
            return Ok(false);
        }
        let event = Event::of(Action::DeleteWebhook, id.get());
        audit::note(&mut tx, by, event.before(json!({"url": before.url, "types": before.types})))
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    fn check(&self, url: &str) -> Result<(), String> {
        let url = url.parse().map_err(|error| format!("is no URL: {error}"))?;
        self.hosts.check(&url)
    }
}
