//! A client that costs little: one HTTP/1.1 connection over TCP, kept alive, driven by the task that uses it.

use std::net::SocketAddr;
use std::pin::Pin;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderValue;
use hyper::{Method, Request, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Where a service listens.
#[derive(Clone, Debug)]
pub struct Address {
    socket: SocketAddr,
    host: HeaderValue,
}

/// An open connection.
pub struct Connection {
    send: SendRequest<Full<Bytes>>,
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
}

/// The parts of an answer that are looked at, beside its body.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub status: u16,
    /// Whether it says when to come back.
    pub retry_after: bool,
}

/// Why there is no answer; whether the request was executed is unknown.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    #[error("the connection failed: {0}")]
    Failed(#[from] hyper::Error),
    #[error("the service closed the connection")]
    Closed,
}

impl Address {
    /// Understands `http://host:port`.
    pub async fn of(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            bail!("{url} can't be measured: give a URL like http://127.0.0.1:8080");
        };
        let port = authority.port_u16().unwrap_or(80);
        let mut sockets = tokio::net::lookup_host((authority.host(), port)).await?;
        let socket = sockets.next().with_context(|| format!("{url} has no address"))?;
        Ok(Self { socket, host: HeaderValue::from_str(authority.as_str())? })
    }

    /// A connection that nothing has been sent on.
    pub async fn connect(&self) -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(self.socket).await.context("no service listens there")?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A request to it, without a body.
    pub fn request(
        &self,
        method: &Method,
        path: &Uri,
        token: Option<HeaderValue>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = method.clone();
        *request.uri_mut() = path.clone();
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, token);
        }
        request
    }

    /// One request on a connection of its own, for what is prepared before the clock starts.
    pub async fn ask(
        &self,
        method: &Method,
        path: &Uri,
        token: HeaderValue,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let mut request = self.request(method, path, Some(token));
        if let Some(body) = body {
            *request.body_mut() = Full::from(body.to_string());
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        let mut answer = Vec::new();
        let status = Connection::open(self).await?.exchange(request, &mut answer).await?.status;
        Ok((status, serde_json::from_slice(&answer).unwrap_or(Value::Null)))
    }
}

impl Connection {
    pub async fn open(address: &Address) -> anyhow::Result<Self> {
        let stream = address.connect().await?;
        let (send, driver) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { send, driver: Box::pin(driver) })
    }

    /// Sends a request and reads the whole answer, whose body is in `body` then.
    ///
    /// After an error, or when its future is dropped half-way, the connection is good for nothing.
    pub async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        body: &mut Vec<u8>,
    ) -> Result<Answer, NoAnswer> {
        body.clear();
        let send = &mut self.send;
        let exchange = async {
            send.ready().await?;
            let mut response = send.send_request(request).await?;
            while let Some(frame) = response.body_mut().frame().await {
                if let Ok(data) = frame?.into_data() {
                    body.extend_from_slice(&data);
                }
            }
            let retry_after = response.headers().contains_key(header::RETRY_AFTER);
            Ok(Answer { status: response.status().as_u16(), retry_after })
        };
        // No task of its own for the connection: both are woken together, in the order of their work.
        tokio::select! {
            biased;
            answer = exchange => answer,
            ended = &mut self.driver => match ended {
                Ok(()) => Err(NoAnswer::Closed),
                Err(error) => Err(error.into()),
            },
        }
    }
}
