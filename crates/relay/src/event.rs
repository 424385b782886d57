//! An event, as the service tells it and as it is published.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An event (CloudEvents 1.0).
#[derive(Clone, Serialize, Deserialize)]
pub struct CloudEvent {
    pub specversion: String,
    pub id: String,
    pub source: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub time: DateTime<Utc>,
    pub datacontenttype: String,
    pub data: Value,
}

impl CloudEvent {
    /// One message for each order of a batch of claims, so that a consumer can divide the work by order; the event
    /// itself in all other cases.
    pub fn messages(mut self) -> Vec<Self> {
        let Some(Value::Array(orders)) = self.data.get_mut("orders").map(Value::take) else {
            return vec![self];
        };
        let orders = orders.into_iter().enumerate();
        orders.map(|(position, order)| self.of_order(position, order)).collect()
    }

    fn of_order(&self, position: usize, order: Value) -> Self {
        Self {
            id: format!("{}.{position}", self.id),
            subject: order["order_id"].as_str().map(|id| format!("orders/{id}")),
            data: order,
            ..self.clone()
        }
    }

    /// What the event is about, for the order in which it is published: its order, or else its coupon.
    pub fn key(&self) -> Option<&str> {
        self.data["order_id"].as_str().or_else(|| self.coupon())
    }

    pub fn coupon(&self) -> Option<&str> {
        self.data["coupon_id"].as_str()
    }
}

/// What is published before the cursor moves.
pub struct Batch {
    pub messages: Vec<CloudEvent>,
    /// Id of its last event, where the cursor goes.
    pub last: String,
    /// Time of its first event.
    pub time: DateTime<Utc>,
}

/// Messages of a batch, unless its first event alone has more.
const BATCH_MESSAGES_MAX: usize = 1_000;

impl Batch {
    /// A page of the feed, divided between events.
    pub fn of_page(page: Vec<CloudEvent>) -> Vec<Self> {
        let mut batches: Vec<Self> = Vec::new();
        for event in page {
            let (last, time) = (event.id.clone(), event.time);
            let messages = event.messages();
            match batches.last_mut() {
                Some(batch) if batch.messages.len() + messages.len() <= BATCH_MESSAGES_MAX => {
                    batch.messages.extend(messages);
                    batch.last = last;
                }
                _ => batches.push(Self { messages, last, time }),
            }
        }
        batches
    }
}
