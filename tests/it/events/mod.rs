//! Events and exports, for other systems.

// The feed: what is told, in which order, to whom.
mod feed;

// What is sent to other systems.
mod webhooks;

// All orders, as CSV and as lines of JSON.
mod export;

use flash_sale::kit::jwt::Scope;
use serde_json::Value;

use crate::support::{Reply, TestApp, eventually, scoped_token};

impl TestApp {
    async fn with_events() -> Self {
        Self::configured(&["--events"]).await
    }

    /// What an integrator is told under this path.
    async fn integrate(&self, path: &str) -> Reply {
        self.get(path, &scoped_token(9, Scope::Integrator)).await
    }

    /// The events behind this one, or all, which are so many once the transactions of other tests have ended.
    async fn events(&self, after: Option<&str>, count: usize) -> Vec<Value> {
        let after = after.map_or_else(String::new, |after| format!("?after={after}"));
        let mut events = Vec::new();
        eventually("the events can be read", async || {
            let reply = self.integrate(&format!("/v1/events{after}")).await;
            events = reply.body.as_array().cloned().unwrap_or_default();
            events.len() >= count
        })
        .await;
        assert_eq!(events.len(), count, "{events:?}");
        events
    }
}

fn id(event: &Value) -> &str {
    event["id"].as_str().expect("an event has an id")
}
