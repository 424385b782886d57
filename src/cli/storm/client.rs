//! Requests of a crowd, over a bounded number of connections.

use std::time::Duration;

use anyhow::{Context, bail};
use axum::body::{Body, to_bytes};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::timeout;

use crate::base::limits;
use crate::sale::ids::CouponId;
use crate::sale::ids::OrderId;

/// Sends requests to one service.
pub struct Client {
    client: legacy::Client<HttpConnector, Body>,
    url: String,
    /// Requests that may be under way.
    pub connections: usize,
}

/// Answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This order.
    Order(OrderId),
    /// Sold out.
    SoldOut,
    /// Come back after so long. The claim was not carried out.
    ComeBack(Duration),
    /// None, or none that says whether the claim was carried out.
    Unknown(Duration),
    /// A refusal for another reason.
    Refused,
}

/// Pause before a request without an answer is repeated.
const PAUSE: Duration = Duration::from_millis(250);

impl Client {
    pub fn new(authority: &Authority, connections: u16) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let connections = usize::from(connections);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(connections)
            .build(connector);
        Self { client, url: format!("http://{authority}"), connections }
    }

    /// Creates a coupon.
    pub async fn create(&self, token: &str, coupon: &Value) -> anyhow::Result<CouponId> {
        let token = HeaderValue::try_from(format!("Bearer {token}"))?;
        let sent = self.send("/v1/coupons", token, (coupon.to_string(), false)).await;
        let (status, body) = sent.with_context(|| format!("no service answers at {}", self.url))?;
        if status != StatusCode::CREATED {
            bail!("the sale could not be made: {status} {}", body["detail"]);
        }
        Ok(serde_json::from_value(body["id"].clone())?)
    }

    /// Claims a unit of a coupon; `is_traced` asks for the times of the claim.
    pub async fn claim(&self, path: &str, token: HeaderValue, is_traced: bool) -> Answer {
        let Ok((status, body)) = self.send(path, token, (String::new(), is_traced)).await else {
            return Answer::Unknown(PAUSE);
        };
        if let Ok(order) = serde_json::from_value(body["order_id"].clone()) {
            return Answer::Order(order);
        }
        let again = body["retry_after_ms"].as_u64().map_or(PAUSE, Duration::from_millis);
        let again = again.min(limits::STORM_PAUSE_MAX);
        match (status.as_u16(), body["code"].as_str().unwrap_or_default()) {
            (_, "sold_out") => Answer::SoldOut,
            (_, "overloaded" | "rate_limited" | "sale_not_started") => Answer::ComeBack(again),
            (500.., _) => Answer::Unknown(again),
            _ => Answer::Refused,
        }
    }

    async fn send(
        &self,
        path: &str,
        token: HeaderValue,
        (body, is_traced): (String, bool),
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.url))
            .header(header::AUTHORIZATION, token);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if is_traced {
            request = request.header("x-trace", "1");
        }
        let request = request.body(Body::from(body))?;
        timeout(limits::STORM_REQUEST_MAX, async {
            let reply = self.client.request(request).await?;
            let status = reply.status();
            let bytes = to_bytes(Body::new(reply.into_body()), limits::BODY_BYTES_MAX).await?;
            Ok((status, serde_json::from_slice(&bytes)?))
        })
        .await?
    }
}
