//! Accepts connections. `axum::serve` bounds neither the number of connections nor the time of its drain, and never
//! closes a connection whose client sends or reads nothing. This loop around hyper-util's connections does.

// Bodies of replies, part by part.
mod reply;

// The places of connections, and when connections are closed.
mod places;

use std::convert::Infallible;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::places::{Connection, Exchange, Places};
use self::reply::Reply;
use crate::app::App;
use crate::base::limits;
use crate::base::telemetry::LogThrottle;

/// Binds the address. Connections queue in the kernel from now on.
///
/// # Errors
///
/// When the address is in use or belongs to another machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Lets a restart bind while connections of the last run are in TIME_WAIT. A second live listener is refused all the
    // same.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit this size.
    socket.set_send_buffer_size(limits::SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(limits::LISTEN_BACKLOG)
}

/// Serves the routes on `listener` until the service stops. Then accepts what is in the kernel's queue and nothing
/// more, finishes the requests that have begun, and closes the connections.
pub async fn run(listener: TcpListener, routes: Router, connections_max: u32, app: Arc<App>) {
    let places = Places::new(app.metrics.clone(), connections_max);
    let stop = app.shutdown.stop_token().clone();
    app.shutdown.spawn(places.clone().watch(stop.clone()));
    let routes = TowerToHyperService::new(routes);
    let take_in = |stream, peer, place| {
        // Each connection has a token of its own: a wait is polled, under the lock of its token, each time the
        // connection does something.
        let connection = places.connection(place, stop.child_token());
        app.shutdown.spawn(serve(stream, peer, connection, routes.clone(), stop.clone()));
    };
    let mut failure_log = LogThrottle::default();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                take_in(stream, peer, stop.run_until_cancelled(places.free()).await);
            }
            Err(error) => {
                // Most likely no file descriptor is free. Connections that close free some.
                if failure_log.allows() {
                    tracing::warn!(%error, "a connection could not be accepted");
                }
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
    for (stream, peer) in queued(listener) {
        take_in(stream, peer, None);
    }
}

/// The connections that the kernel has established and the process has not accepted. Closing the listener would reset
/// them, perhaps with requests in them. Asks the kernel itself, because the runtime may not have heard of the last ones
/// yet.
fn queued(listener: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    let listener = listener.into_std().into_iter();
    let streams = listener.flat_map(|listener| iter::from_fn(move || listener.accept().ok()));
    streams.take(limits::LISTEN_BACKLOG as usize).filter_map(|(stream, peer)| {
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, peer))
    })
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    connection: Arc<Connection>,
    routes: TowerToHyperService<Router>,
    stop: CancellationToken,
) {
    // Sends a reply before the client has acknowledged the one before. If this fails, the client is gone, and the next
    // read reports that.
    let _: io::Result<()> = stream.set_nodelay(true);
    let service = service_fn(|request: Request<Incoming>| {
        let exchange = Exchange::begins(&connection);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let reply = routes.call(request);
        async move { Ok::<_, Infallible>(reply.await?.map(|body| Reply::new(body, exchange))) }
    });
    let builder = builder();
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // How a connection ended (reset, malformed) is the client's business.
    tokio::select! {
        biased;
        _ = served.as_mut() => return,
        () = connection.end.cancelled() => {}
    }
    let mut patience = limits::OVERDUE_CLOSE_MAX;
    if stop.is_cancelled() {
        // Requests that arrive in this time are still answered, with `connection: close`. Connections that are idle at
        // its end are closed.
        if timeout(limits::LATE_REQUEST_MAX, served.as_mut()).await.is_ok() {
            return;
        }
        patience = limits::DOOR_DRAIN_MAX;
    }
    served.as_mut().graceful_shutdown();
    let _: Result<_, _> = timeout(patience, served).await;
}

/// hyper's time-outs are off: one check of all connections (`places.rs`) needs no timer for each request.
fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .header_read_timeout(None)
        // Bodies are short. Copied behind their heads, each reply is one buffer and one write.
        .writev(false)
        .max_buf_size(limits::HEADER_BYTES_MAX);
    builder
        .http2()
        .max_concurrent_streams(limits::HTTP2_STREAMS_MAX)
        .max_send_buf_size(limits::REPLY_PART_BYTES)
        .initial_stream_window_size(limits::HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(limits::HTTP2_CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(limits::HEADER_BYTES_MAX).unwrap_or(u32::MAX));
    builder
}
