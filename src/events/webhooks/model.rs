//! Endpoints and deliveries, as people see them.

use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::events::types::is_type;
use crate::store::ids::{DeliveryId, WebhookId};

/// State of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum WebhookState {
    /// Events are sent.
    Active,
    /// The staff has stopped it for now.
    Paused,
    /// It has failed for three days, or said that it is gone; an administrator makes it active again.
    Disabled,
}

/// An endpoint that events are sent to.
#[derive(Clone, Serialize, ToSchema)]
pub struct Webhook {
    /// Id of the endpoint.
    pub id: WebhookId,
    /// Where events are posted.
    pub url: String,
    /// Types of the events that are sent; all if there are none.
    pub types: Vec<String>,
    /// State of the endpoint.
    pub state: WebhookState,
    /// The last event that it was sent, or that isn't of its types; null before the first one.
    pub last_event: Option<String>,
    /// Time of the first failure since the last delivery; null without one.
    pub failing_since: Option<DateTime<Utc>>,
    /// The last failure, in words; null without one.
    pub error: Option<String>,
    /// Time of the next try; null if it isn't failing, or isn't active.
    pub next_try_at: Option<DateTime<Utc>>,
    /// Time at which it was created.
    pub created_at: DateTime<Utc>,
    /// The secret that signs what is sent to it. Only told when it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub secret: Option<String>,
}

/// A new endpoint.
#[derive(Debug, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Where to post events: `https://...`, with a public address.
    #[schema(min_length = 1, max_length = 2000)]
    #[garde(length(chars, min = 1, max = 2_000))]
    pub url: String,
    /// Types of the events to send, such as `order.paid`; all if not given.
    #[serde(default)]
    #[schema(required = false, max_items = 30)]
    #[garde(length(max = 30), inner(custom(a_type)))]
    pub types: Vec<String>,
}

/// What to change about an endpoint. If it is active then, it is tried at once.
#[derive(Debug, Default, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct WebhookChange {
    /// Where to post events.
    #[schema(nullable = false, min_length = 1, max_length = 2000)]
    #[garde(inner(length(chars, min = 1, max = 2_000)))]
    pub url: Option<String>,
    /// Types of the events to send; all if the list is empty.
    #[schema(nullable = false, max_items = 30)]
    #[garde(inner(length(max = 30), inner(custom(a_type))))]
    pub types: Option<Vec<String>>,
    /// `paused` or `active`.
    #[schema(nullable = false)]
    #[garde(custom(not_disabled))]
    pub state: Option<WebhookState>,
    /// Make a new secret, which the reply tells. For a day, events have a signature by the one before, too.
    #[serde(default)]
    #[garde(skip)]
    pub rotate_secret: bool,
    /// Send again what was delivered since this time; all that is kept if nothing was delivered before.
    #[schema(nullable = false)]
    #[garde(skip)]
    pub resend_from: Option<DateTime<Utc>>,
}

/// A try to deliver an event.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Delivery {
    /// Id of the try.
    pub id: DeliveryId,
    /// Time of its end.
    pub at: DateTime<Utc>,
    /// Id of the event, which is the `webhook-id` of the request.
    pub event_id: String,
    /// Type of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the reply; null if there was none.
    pub status: Option<i16>,
    /// What was wrong; null if the event was delivered.
    pub error: Option<String>,
}

fn a_type(text: &str, _: &()) -> garde::Result {
    if is_type(text) { Ok(()) } else { Err(garde::Error::new("there is no such type of events")) }
}

fn not_disabled(state: &Option<WebhookState>, _: &()) -> garde::Result {
    match state {
        Some(WebhookState::Disabled) => Err(garde::Error::new("it is `active` or `paused`")),
        _ => Ok(()),
    }
}
