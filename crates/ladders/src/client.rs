//! A client of the service: one connection, over which one request is sent at a time.

use std::pin::Pin;

use anyhow::bail;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// An open connection, driven by the request that uses it.
pub struct Connection {
    send: SendRequest<Empty<Bytes>>,
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
}

impl Connection {
    /// Connects to this host and port.
    ///
    /// # Errors
    ///
    /// When no server listens there.
    pub async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (send, driver) = handshake(TokioIo::new(stream)).await?;
        Ok(Self { send, driver: Box::pin(driver) })
    }

    /// Sends a request, and reads the whole reply.
    ///
    /// # Errors
    ///
    /// When the server closes the connection.
    pub async fn exchange(&mut self, request: Request<Empty<Bytes>>) -> anyhow::Result<StatusCode> {
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
