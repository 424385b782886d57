//! Accepting connections. `axum::serve` has no time-out for slow heads, no bound on connections and no end to its
//! drain; this loop has all three.

use std::convert::Infallible;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::rt::{Sleep, Timer};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

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
    // Of this connection alone: counts of users that all connections share would go from core to core.
    let door = Arc::new(door);
    let heads = Arc::new(HeadWait::begin());
    let builder = builder(HeadTimer(heads.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        heads.end();
        let door = door.clone();
        async move { Ok::<_, Infallible>(door.answer(request.map(Body::new)).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // A token of its own: each time the connection moves, the wait for it is polled, under a lock that they would all share.
    let stop = shutdown.stop_token().child_token();
    // How a connection ended (reset, timed out, malformed) is the client's business.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = heads.overdue() => return,
        () = stop.cancelled() => {}
    }
    // Requests under way are answered with `connection: close`; idle connections are closed then.
    if tokio::time::timeout(limits::LATE_REQUEST_MAX, connection.as_mut()).await.is_ok() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    let _: Result<_, _> = tokio::time::timeout(limits::DOOR_DRAIN_MAX, connection).await;
}

/// The wait of a connection for the head of its next request, from the first moment on: hyper's own time-out begins only
/// once hyper knows HTTP/1 from HTTP/2, and hyper waits for that as long as the client likes.
///
/// A connection has one timer. With its own one, hyper sets a timer of the runtime for each head, and removes it when the
/// head has come, both under a lock that all connections share.
struct HeadWait {
    began: Instant,
    /// End of the wait, in nanoseconds since `began`; 0 while no head is waited for.
    until_ns: AtomicU64,
}

impl HeadWait {
    fn begin() -> Self {
        Self { began: Instant::now(), until_ns: nanoseconds(limits::HEADER_READ_TIMEOUT).into() }
    }

    /// Waits until `deadline`. A wait that has begun keeps its end.
    fn wait_until(&self, deadline: Instant) {
        let until_ns = nanoseconds(deadline.saturating_duration_since(self.began));
        let _ = self.until_ns.compare_exchange(0, until_ns, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The head is there.
    fn end(&self) {
        self.until_ns.store(0, Ordering::Relaxed);
    }

    /// Ends when a head has not come in time. A wait that begins later ends later, so one look in that time is enough.
    async fn overdue(&self) {
        loop {
            let until = match self.until_ns.load(Ordering::Relaxed) {
                0 => Instant::now() + limits::HEADER_READ_TIMEOUT,
                until_ns => self.began + Duration::from_nanos(until_ns),
            };
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Tells the wait of a connection that hyper begins to wait for a head.
struct HeadTimer(Arc<HeadWait>);

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        self.0.wait_until(deadline.into());
        Box::pin(UntilOverdue)
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

/// Never ends, because [`HeadWait::overdue`] ends the connection. Without a field, its box takes no memory.
struct UntilOverdue;

impl Future for UntilOverdue {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Sleep for UntilOverdue {}

fn builder(heads: HeadTimer) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(heads)
        .header_read_timeout(limits::HEADER_READ_TIMEOUT)
        // Bodies are short: copied behind their heads, each reply is one write of one buffer.
        .writev(false)
        .max_buf_size(limits::HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits::HEADER_BYTES_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(Some(Duration::from_secs(20)));
    builder
}
