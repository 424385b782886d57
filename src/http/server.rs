//! Accepting connections. `axum::serve` has no time-out for slow heads, no bound on connections and no end to its
//! drain; this loop has all three.

use std::convert::Infallible;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Door;
use crate::base::limits;
use crate::base::shutdown::Shutdown;

/// Binds the address. Connections queue in the kernel from now on.
///
/// # Errors
///
/// When the address is in use or belongs to another machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Lets a restart bind while connections of the last run are in TIME_WAIT; a second live listener is refused all
    // the same.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(limits::LISTEN_BACKLOG)
}

/// Serves `door` on `listener` until the service stops. Then it takes in the connections in the kernel's queue,
/// accepts no more, finishes the requests that have begun, and closes the connections.
pub async fn run(listener: TcpListener, door: Door, connections_max: u32, shutdown: Shutdown) {
    let slots = Arc::new(Semaphore::new(usize::try_from(connections_max).unwrap_or(usize::MAX)));
    let stop = shutdown.stop_token().clone();
    loop {
        let (stream, slot) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        shutdown.spawn(serve(stream, slot, door.clone(), shutdown.clone()));
    }
    for stream in queued(listener) {
        let Ok(slot) = slots.clone().try_acquire_owned() else { return };
        shutdown.spawn(serve(stream, slot, door.clone(), shutdown.clone()));
    }
}

/// The connections that the kernel has established and the process has not accepted. Closing the listener would reset
/// them, perhaps with requests in them. The kernel is asked, because the runtime may not have heard of the last ones
/// yet.
fn queued(listener: TcpListener) -> impl Iterator<Item = TcpStream> {
    let listener = listener.into_std().into_iter();
    let streams = listener.flat_map(|listener| iter::from_fn(move || listener.accept().ok()));
    streams.take(limits::LISTEN_BACKLOG as usize).filter_map(|(stream, _)| {
        stream.set_nonblocking(true).ok()?;
        TcpStream::from_std(stream).ok()
    })
}

/// The next connection, once there is room for it. Until then connections wait in the kernel's queue.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, OwnedSemaphorePermit) {
    let slot = slots.clone().acquire_owned().await.expect("this semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) => {
                // Most likely no file descriptor is free. Closing connections frees some.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, slot: OwnedSemaphorePermit, door: Door, shutdown: Shutdown) {
    let _slot = slot;
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let builder = builder();
    let heard = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        heard.store(true, Ordering::Relaxed);
        let door = door.clone();
        async move { Ok::<_, Infallible>(door.answer(request.map(Body::new)).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // A token of its own: each time the connection moves, the wait for it is polled, under a lock that they would all share.
    let stop = shutdown.stop_token().child_token();
    // How a connection ended (reset, timed out, malformed) is the client's business.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = no_request(&heard) => return,
        () = stop.cancelled() => {}
    }
    // Requests under way are answered with `connection: close`; idle connections are closed then.
    if tokio::time::timeout(limits::LATE_REQUEST_MAX, connection.as_mut()).await.is_ok() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _: Result<_, _> = tokio::time::timeout(limits::DOOR_DRAIN_MAX, connection).await;
}

/// Ends when a new connection brings no request in time. hyper's own time-out begins only once hyper knows HTTP/1
/// from HTTP/2, and hyper waits for that as long as the client likes.
async fn no_request(heard: &AtomicBool) {
    tokio::time::sleep(limits::HEADER_READ_TIMEOUT).await;
    if heard.load(Ordering::Relaxed) {
        std::future::pending().await
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEADER_READ_TIMEOUT)
        .max_buf_size(limits::HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits::HEADER_BYTES_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(Some(Duration::from_secs(20)));
    builder
}
