//! Rung 23b: this service through HTTP, with a token for each request. Clients and service share the process.

use std::sync::Arc;

use anyhow::bail;
use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::kit::jwt::{Grants, Tokens};
use ladders::service::tokens;
use reqwest::StatusCode;

use super::Service;
use crate::design::Design;
use crate::scene::Scene;

pub struct Http {
    service: Service,
    claims: String,
    tokens: Tokens,
    client: reqwest::Client,
}

impl Design for Http {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let service = Service::start(&scene).await?;
        let address = service.running.listen()?;
        let claims = format!("http://{address}/v1/coupons/{}/claims", service.coupon);
        Ok(Self { service, claims, tokens: tokens(), client: reqwest::Client::new() })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let expires_at = Clock::System.now() + TimeDelta::hours(1);
        let token = self.tokens.issue(Grants::user(user), expires_at);
        let answer = self.client.post(&self.claims).bearer_auth(token).send().await?;
        let status = answer.status();
        // The connection is free once the body has been read.
        answer.bytes().await?;
        match status {
            StatusCode::ACCEPTED | StatusCode::CREATED => Ok(true),
            StatusCode::CONFLICT | StatusCode::GONE => Ok(false),
            status => bail!("no answer for this crowd: {status}"),
        }
    }

    async fn rest(&self) -> anyhow::Result<()> {
        self.service.running.rest().await
    }
}
