//! Rung 19b: this service through HTTP, with a token for each request. Clients and service share the process.

use std::pin::Pin;
use std::sync::Arc;

use anyhow::bail;
use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::http::state::HttpState;
use flash_sale::http::{self, server};
use flash_sale::kit::jwt::{Grants, Tokens};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use secrecy::SecretString;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::Service;
use crate::design::Design;
use crate::scene::Scene;

const SECRET: &str = "a secret that is only good for the ladder";

pub struct Http {
    service: Service,
    address: String,
    tokens: Tokens,
    /// Connections that no request uses.
    idle: Mutex<Vec<Connection>>,
}

/// An open connection, driven by the request that uses it.
struct Connection {
    send: SendRequest<Empty<Bytes>>,
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
}

impl Design for Http {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let service = Service::start(&scene).await?;
        let listener = server::bind(([127, 0, 0, 1], 0).into())?;
        let address = listener.local_addr()?.to_string();
        let secret = SecretString::from(SECRET);
        let (app, config) = (&service.running.app, &service.running.config);
        let state = HttpState::new(app.clone(), config, Tokens::new(&secret));
        let (settings, shutdown) = (config.into(), app.shutdown.clone());
        let served = server::run(listener, http::api(&state, true), settings, shutdown.clone());
        shutdown.spawn(served);
        Ok(Self { service, address, tokens: Tokens::new(&secret), idle: Mutex::default() })
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

impl Connection {
    async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (send, driver) = handshake(TokioIo::new(stream)).await?;
        Ok(Self { send, driver: Box::pin(driver) })
    }

    async fn exchange(&mut self, request: Request<Empty<Bytes>>) -> anyhow::Result<StatusCode> {
        let send = &mut self.send;
        let exchange = async {
            send.ready().await?;
            let response = send.send_request(request).await?;
            let status = response.status();
            response.into_body().collect().await?;
            anyhow::Ok(status)
        };
        tokio::select! {
            biased;
            status = exchange => status,
            ended = &mut self.driver => bail!("the service closed the connection: {ended:?}"),
        }
    }
}
