//! Accepting connections. `axum::serve` has no time-out for slow heads, idle clients and clients that don't read, no bound
//! on connections and no end to its drain; this loop around hyper-util's connections has these.

// Bodies of replies, part by part.
pub mod reply;

// The bytes of a connection.
mod stream;

// Proxies that are trusted to name their clients.
pub mod proxies;

// Places of connections, and their end.
mod places;

use std::convert::Infallible;
use std::io;
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, Request, Response, Version, header};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use self::places::{Notes, Place, Places, UnderWay};
use self::proxies::Proxies;
use self::reply::{Reply, Shared};
use self::stream::Watched;
use super::Door;
use crate::base::config::Config;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::LogThrottle;

/// Settings of a listener.
#[derive(Clone, Debug)]
pub struct Settings {
    connections_max: usize,
    keep_alive: Duration,
    proxies: Proxies,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        Self {
            connections_max: usize::try_from(config.connections_max).unwrap_or(usize::MAX),
            keep_alive: config.keep_alive(),
            proxies: Proxies::from(config),
        }
    }
}

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
    // Its connections have the same room.
    socket.set_send_buffer_size(limits::SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(limits::LISTEN_BACKLOG)
}

/// Serves `door` on `listener` until the service stops. Then it takes in the connections in the kernel's queue,
/// accepts no more, finishes the requests that have begun, and closes the connections.
pub async fn run(listener: TcpListener, door: Door, settings: Settings, shutdown: Shutdown) {
    let Settings { connections_max, keep_alive, proxies } = settings;
    let places = Arc::new(Places::new(door.metrics(), connections_max, keep_alive));
    let stop = shutdown.stop_token().clone();
    shutdown.spawn(places.clone().watch(stop.clone()));
    let listening = Listening { door, proxies: Arc::new(proxies), shutdown };
    let mut failure_log = LogThrottle::default();
    // A token for each connection: the wait for one is polled, under its lock, each time the connection moves.
    let end = || stop.child_token();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                let place = stop.run_until_cancelled(places.place(end())).await;
                let place = place.unwrap_or_else(|| places.extra_place(end()));
                listening.take_in(stream, peer.ip(), place);
            }
            Err(error) => {
                // Most likely no file descriptor is free. Closing connections frees some.
                if failure_log.allows() {
                    tracing::warn!(%error, "a connection could not be accepted");
                }
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
    for (stream, peer) in queued(listener) {
        listening.take_in(stream, peer.ip(), places.extra_place(end()));
    }
}

/// The connections that the kernel has established and the process has not accepted. Closing the listener would reset
/// them, perhaps with requests in them. The kernel is asked, because the runtime may not have heard of the last ones
/// yet.
fn queued(listener: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    let listener = listener.into_std().into_iter();
    let streams = listener.flat_map(|listener| iter::from_fn(move || listener.accept().ok()));
    streams.take(limits::LISTEN_BACKLOG as usize).filter_map(|(stream, peer)| {
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, peer))
    })
}

/// All that the connections of one listener share.
struct Listening {
    door: Door,
    proxies: Arc<Proxies>,
    shutdown: Shutdown,
}

impl Listening {
    /// Starts the task of a new connection.
    fn take_in(&self, stream: TcpStream, from: IpAddr, place: Place) {
        let answers = Answers { door: self.door.clone(), proxies: self.proxies.clone(), from };
        let stop = self.shutdown.stop_token().clone();
        self.shutdown.spawn(serve(stream, place, answers, stop));
    }
}

/// All that the requests of a connection need.
struct Answers {
    door: Door,
    proxies: Arc<Proxies>,
    from: IpAddr,
}

async fn serve(stream: TcpStream, place: Place, answers: Answers, stop: CancellationToken) {
    // Of this connection alone: counts of users that all connections share would go from core to core.
    let answers = Arc::new(answers);
    let notes = place.notes.clone();
    let refusals = answers.clone();
    let refusal = move |status| refusals.door.refusal_of_bytes(refusals.from, status);
    let stream = Watched::new(stream, notes.clone(), refusal);
    let service = service_fn(|request: Request<Incoming>| {
        let (answers, notes) = (answers.clone(), notes.clone());
        async move { Ok::<_, Infallible>(answers.reply(&notes, request).await) }
    });
    let builder = builder();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // How a connection ended (reset, malformed) is the client's business.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = notes.end.cancelled() => {}
    }
    if notes.at_once.load(Ordering::Relaxed) {
        place.close_unread();
        return;
    }
    if !stop.is_cancelled() {
        // Overdue. An idle client of HTTP/2 is told so.
        connection.as_mut().graceful_shutdown();
        let _: Result<_, _> = tokio::time::timeout(limits::OVERDUE_CLOSE_MAX, connection).await;
        return;
    }
    // Requests under way are answered with `connection: close`; idle connections are closed then.
    if tokio::time::timeout(limits::LATE_REQUEST_MAX, connection.as_mut()).await.is_ok() {
        return;
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        _ = tokio::time::timeout(limits::DOOR_DRAIN_MAX, connection) => {}
        () = place.left_unread() => place.close_unread(),
    }
}

impl Answers {
    async fn reply(&self, notes: &Arc<Notes>, request: Request<Incoming>) -> Response<Reply> {
        let under_way = UnderWay::begins(notes);
        let Self { door, proxies, from } = self;
        let version = request.version();
        let client = proxies.client(*from, request.headers());
        let response = if !has_one_host(version, request.headers()) {
            door.refuse(client, &request, super::host_missing())
        } else if version == Version::HTTP_2
            && let Some(problem) = super::oversized(&request)
        {
            door.refuse(client, &request, problem)
        } else {
            let has_body = !request.body().is_end_stream();
            let awaited = has_body.then(Arc::<AtomicBool>::default);
            let request = request.map(|body| match awaited.clone() {
                Some(awaited) => Body::new(Received { body, awaited }),
                None => Body::empty(),
            });
            let is_awaited = || awaited.as_ref().is_some_and(|it| it.load(Ordering::Relaxed));
            door.answer(client, request, is_awaited).await
        };
        let is_shared = response.extensions().get::<Shared>().is_some();
        // Before the request is over: a reply is under way without a moment between.
        let response = response.map(|body| Reply::new(body, notes, is_shared));
        drop(under_way);
        response
    }
}

/// HTTP/1.1 wants exactly one (RFC 9112, section 3.2); of two, a proxy in front may have obeyed the other one.
fn has_one_host(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let given = hosts.next().is_some();
    (given || version != Version::HTTP_11) && hosts.next().is_none()
}

/// The body of a request. It notes when its reader waits for the client, who is at fault then if no reply comes in time.
struct Received {
    body: Incoming,
    awaited: Arc<AtomicBool>,
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.awaited.store(frame.is_pending(), Ordering::Relaxed);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The time-outs of hyper are off: one look at all connections (`places.rs`) needs no timer for each request.
fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .header_read_timeout(None)
        // Bodies are short: copied behind their heads, each reply is one write of one buffer.
        .writev(false)
        .max_buf_size(limits::HEADER_BYTES_MAX);
    builder
        .http2()
        .max_concurrent_streams(limits::HTTP2_STREAMS_MAX)
        .max_send_buf_size(limits::REPLY_PART_BYTES)
        .initial_stream_window_size(limits::HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(limits::HTTP2_CONNECTION_WINDOW)
        // Larger ones are refused at the door, with a body; beyond this, by a frame alone.
        .max_header_list_size(u32::try_from(limits::HTTP2_HEADER_BYTES_READ).unwrap_or(u32::MAX));
    builder
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use futures_util::future::join;
    use private_servers::testing::{bound_this_test, bounded};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// Lets a client act on a connection without a network, while the service answers `ok` to each request.
    async fn with_client<T>(act: impl AsyncFnOnce(DuplexStream) -> T) -> T {
        let (client, server) = duplex(limits::HEADER_BYTES_MAX * 2);
        let service = service_fn(|_: Request<Incoming>| async {
            Ok::<_, Infallible>(Response::new(Body::from("ok")))
        });
        let builder = builder();
        let connection = builder.serve_connection(TokioIo::new(server), service);
        let (_, acted) = bounded("the end", join(connection, act(client))).await;
        acted
    }

    /// A client of HTTP/2 is told how many bytes of headers are read (RFC 9113, section 6.5.2).
    #[tokio::test]
    async fn the_builder_of_connections_tells_the_bytes_of_headers_that_it_reads() {
        bound_this_test();
        let settings = with_client(async |mut client| {
            let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
            client.write_all(begin).await.expect("the service is there");
            let mut head = [0; 9];
            client.read_exact(&mut head).await.expect("a frame");
            assert_eq!(head[..4], [0, 0, head[2], 4], "the first frame has the settings");
            let mut settings = vec![0; head[2].into()];
            client.read_exact(&mut settings).await.expect("the settings");
            settings
        });
        let settings = settings.await;
        let size = settings.chunks(6).find(|it| it[..2] == [0, 6]).expect("it is bounded");
        let size: [u8; 4] = size[2..].try_into().expect("four bytes");
        assert_eq!(u32::from_be_bytes(size) as usize, limits::HTTP2_HEADER_BYTES_READ);
    }

    /// No more of a head that fills its room is waited for.
    #[tokio::test]
    async fn the_builder_of_connections_bounds_the_room_for_a_head() {
        bound_this_test();
        for (bytes, status) in
            [(limits::HEADER_BYTES_MAX, " 431 "), (limits::HEADER_BYTES_MAX - 1, " 200 ")]
        {
            let reply = with_client(async |mut client| {
                let begin = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-a: ";
                let end = if status == " 200 " { "\r\n\r\n" } else { "" };
                let rest = bytes - begin.len() - end.len();
                let head = [begin, &"a".repeat(rest), end].concat();
                client.write_all(head.as_bytes()).await.expect("there is room");
                let mut reply = [0; 13];
                client.read_exact(&mut reply).await.expect("a reply");
                reply
            });
            let reply = String::from_utf8_lossy(&reply.await).into_owned();
            assert!(reply.contains(status), "{bytes} bytes: {reply}");
        }
    }

    #[test]
    fn a_request_over_http11_names_one_host_and_others_at_most_one() {
        for (version, hosts, has_one) in [
            (Version::HTTP_11, &[][..], false),
            (Version::HTTP_11, &["x"], true),
            (Version::HTTP_11, &[""], true),
            (Version::HTTP_11, &["x", "x"], false),
            (Version::HTTP_10, &[], true),
            (Version::HTTP_10, &["x"], true),
            (Version::HTTP_10, &["x", "y"], false),
            (Version::HTTP_2, &[], true),
            (Version::HTTP_2, &["x", "y"], false),
        ] {
            let hosts = hosts.iter().map(|host| (header::HOST, HeaderValue::from_static(host)));
            let headers: HeaderMap = hosts.collect();
            assert_eq!(has_one_host(version, &headers), has_one, "{version:?} {headers:?}");
        }
    }
}
