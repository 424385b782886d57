//! Requests and their answers.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

use crate::facts::Outcome;
use crate::world::Signer;

/// Time for an answer; then the outcome is unknown.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// The body, or null.
    pub body: Value,
}

/// Sends requests.
#[derive(Clone)]
pub struct Http {
    client: reqwest::Client,
    /// Signs tokens.
    pub signer: Signer,
}

impl Http {
    /// A sender without connections.
    pub fn new() -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().timeout(ANSWER_WITHIN).no_proxy().build()?;
        Ok(Self { client, signer: Signer::default() })
    }

    /// Sends a request. `None`: no complete answer came.
    pub async fn send(
        &self,
        method: Method,
        url: String,
        token: &str,
        body: Option<&Value>,
    ) -> Option<Answer> {
        let mut request = self.client.request(method, url).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let reply = request.send().await.ok()?;
        let status = reply.status().as_u16();
        let body = reply.json().await.ok()?;
        Some(Answer { status, body })
    }
}

impl Answer {
    /// The code of a problem.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// The order in the body.
    pub fn order(&self) -> Option<i64> {
        self.body["order_id"].as_str()?.parse().ok()
    }

    /// The outcome for a client: 429 and 5xx say "ask again".
    pub fn outcome(&self) -> Outcome {
        match (self.status, self.order()) {
            (200..=299, Some(order)) => Outcome::Ok(order),
            (400..=428 | 430..=499, order) => Outcome::Refused(self.code().to_owned(), order),
            _ => Outcome::Unknown,
        }
    }
}
