//! Sends events to the endpoints that have not had them.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use tokio::time::timeout;

use super::model::WebhookState;
use super::rows::{self, Leased, Tried};
use super::{Webhooks, sign};
use crate::base::limits;
use crate::events::feed::{CloudEvent, EventId, Told};
use crate::kit::http_client::in_words;
use crate::store::ids::WebhookId;
use crate::store::{Failure, in_plain_text};

impl Webhooks {
    /// Starts a task for each endpoint that is to be sent something and that no process sends to.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn run_once(self: &Arc<Self>) -> Result<(), Failure> {
        if !self.feed.is_on() {
            return Ok(());
        }
        let due = rows::due(&self.pool).await?;
        if due.is_empty() {
            return Ok(());
        }
        let newest = self.feed.newest().await?.map(String::from);
        for (id, last_event) in due {
            if last_event == newest {
                continue;
            }
            if let Some(leased) = rows::lease(&self.pool, id).await? {
                self.shutdown.spawn(self.clone().serve(leased));
            }
        }
        Ok(())
    }

    /// Sends an event that tells nothing, outside of the feed. `None` if there is no such endpoint.
    pub async fn test(&self, id: WebhookId) -> sqlx::Result<Option<Tried>> {
        let Some(webhook) = rows::secrets(&self.pool, id).await? else { return Ok(None) };
        let event = CloudEvent::test(self.feed.source().await?, self.clock.now());
        let tried = timeout(limits::WEBHOOK_TEST_TIMEOUT, self.send(&webhook, &event)).await;
        let no_reply = |_| Tried {
            status: None,
            error: Some(format!("no answer in {:?}", limits::WEBHOOK_TEST_TIMEOUT)),
        };
        Ok(Some(tried.unwrap_or_else(no_reply)))
    }

    async fn serve(self: Arc<Self>, mut leased: Leased) {
        let id = leased.id;
        // The lease ends by itself.
        if let Err(error) = self.send_all(&mut leased).await {
            tracing::warn!(webhook = %id, %error, "the next events of a webhook are sent later");
        }
    }

    /// Sends until nothing is left, a try fails, the lease is lost, or the service stops.
    async fn send_all(&self, leased: &mut Leased) -> sqlx::Result<()> {
        loop {
            let events = self.next(leased).await?;
            let last = events.last().map(|event| event.id);
            let Some(last) = last.filter(|_| !self.shutdown.stop_token().is_cancelled()) else {
                return rows::release(&self.pool, leased).await;
            };
            // It may have been changed while the page was read. Then the next lease sends by its new settings.
            if !rows::renew(&self.pool, leased).await? {
                return Ok(());
            }
            let of_type =
                |event: &&CloudEvent| leased.types.is_empty() || leased.types.contains(&event.kind);
            let wanted: Vec<&CloudEvent> = events.iter().filter(of_type).collect();
            for event in wanted {
                if !self.deliver(leased, event).await? {
                    return Ok(());
                }
            }
            let is_noted = leased.last_event == Some(String::from(last));
            if !is_noted && !rows::advance(&self.pool, leased, last).await? {
                return Ok(());
            }
        }
    }

    /// The events behind the last one of the endpoint, and from the oldest on if that one is gone.
    async fn next(&self, leased: &mut Leased) -> sqlx::Result<Vec<CloudEvent>> {
        let after = leased.last_event.clone().and_then(|last| EventId::try_from(last).ok());
        if let Told::Events(events) = self.feed.page(after, limits::WEBHOOK_PAGE).await? {
            return Ok(events);
        }
        tracing::warn!(webhook = %leased.id, last_event = leased.last_event, "the last event that a webhook was sent is no longer kept: it goes on with the oldest one, and some may be missing");
        if !rows::begin_anew(&self.pool, leased).await? {
            return Ok(Vec::new());
        }
        match self.feed.page(None, limits::WEBHOOK_PAGE).await? {
            Told::Events(events) => Ok(events),
            Told::Unknown | Told::Off => Ok(Vec::new()),
        }
    }

    /// Sends one event. False if nothing more is to be sent for now.
    async fn deliver(&self, leased: &mut Leased, event: &CloudEvent) -> sqlx::Result<bool> {
        let stop = self.shutdown.stop_token();
        let Some(tried) = stop.run_until_cancelled(self.send(leased, event)).await else {
            rows::release(&self.pool, leased).await?;
            return Ok(false);
        };
        rows::note(&self.pool, leased.id, event.id, &event.kind, &tried).await?;
        let Some(error) = &tried.error else {
            return rows::advance(&self.pool, leased, event.id).await;
        };
        let is_gone = tried.status == Some(StatusCode::GONE.as_u16());
        match rows::fail(&self.pool, leased, error, is_gone).await? {
            Some(WebhookState::Disabled) => {
                tracing::error!(webhook = %leased.id, error, "ALARM: a webhook is disabled, and no event is sent to it any more: GET /v1/operations says what to do");
            }
            _ => tracing::info!(webhook = %leased.id, error, "a webhook is not delivered"),
        }
        Ok(false)
    }

    async fn send(&self, webhook: &Leased, event: &CloudEvent) -> Tried {
        match self.post(webhook, event).await {
            Ok(status) if status.is_success() => {
                Tried { status: Some(status.as_u16()), error: None }
            }
            Ok(status) => {
                let followed = if status.is_redirection() { ", which isn't followed" } else { "" };
                Tried {
                    status: Some(status.as_u16()),
                    error: Some(format!("answered {status}{followed}")),
                }
            }
            Err(error) => {
                let error = in_plain_text(&error);
                let error = error.chars().take(limits::POSTPONED_ERROR_CHARS_MAX).collect();
                Tried { status: None, error: Some(error) }
            }
        }
    }

    async fn post(&self, webhook: &Leased, event: &CloudEvent) -> Result<StatusCode, String> {
        // The settings may have changed since the endpoint was stored.
        let url = webhook.url.parse().map_err(in_words)?;
        self.hosts.check(&url).map_err(|reason| format!("the URL {reason}"))?;
        let body = serde_json::to_vec(event).map_err(in_words)?;
        let (id, seconds) = (String::from(event.id), self.clock.now().timestamp());
        let secrets = [Some(&webhook.secret), webhook.old_secret.as_ref()];
        let secrets: Vec<_> =
            secrets.into_iter().flatten().map(|secret| secret.as_str().into()).collect();
        let signature = sign::signatures(&secrets, &id, seconds, &body);
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(header::CONTENT_TYPE, "application/cloudevents+json")
            .header(header::USER_AGENT, "flash-sale")
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signature)
            .body(Body::from(body))
            .map_err(in_words)?;
        self.client.status(request).await
    }
}
