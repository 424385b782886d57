//! Rung 19b: this service through HTTP, with a token for each request. Clients and service share the process.

use std::sync::Arc;

use anyhow::bail;
use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::kit::jwt::{Grants, Tokens};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use ladders::client::Connection;
use ladders::service::tokens;
use tokio::sync::Mutex;

use super::Service;
use crate::design::Design;
use crate::scene::Scene;

pub struct Http {
    service: Service,
    address: String,
    tokens: Tokens,
    /// Connections that no request uses.
    idle: Mutex<Vec<Connection>>,
}

impl Design for Http {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let service = Service::start(&scene).await?;
        let address = service.running.listen()?;
        Ok(Self { service, address, tokens: tokens(), idle: Mutex::default() })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let idle = self.idle.lock().await.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => Connection::open(&self.address).await?,
        };
        let status = connection.exchange(self.claim_of(user)?).await?;
        self.idle.lock().await.push(connection);
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

impl Http {
    fn claim_of(&self, user: i64) -> anyhow::Result<Request<Empty<Bytes>>> {
        let expires_at = Clock::System.now() + TimeDelta::hours(1);
        let token = self.tokens.issue(Grants::user(user), expires_at);
        let request = Request::post(format!("/v1/coupons/{}/claims", self.service.coupon))
            .header(header::HOST, &self.address)
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        Ok(request.body(Empty::new())?)
    }
}
