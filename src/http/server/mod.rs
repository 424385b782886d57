//! Accepting connections. `axum::serve` has no time-out for slow heads and idle clients, no bound on connections and no
//! end to its drain; this loop has all four.

// The table of the connections of a listener.
pub mod connections;

// The bytes of a connection.
mod stream;

// Notes of a connection: busy, silent, not reading.
pub mod watch;

// Proxies that are trusted to name their clients.
pub mod proxies;

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
use axum::http::{HeaderMap, HeaderValue, Request, Response, Version, header};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use self::connections::{Connections, Place};
use self::proxies::Proxies;
use self::stream::Watched;
use self::watch::{Streaming, UnderWay, Watch};
use super::Door;
use super::contract::paths;
use crate::base::config::Config;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::ConnectionEnd;

/// Settings of a listener.
#[derive(Clone, Debug)]
pub struct Settings {
    connections_max: usize,
    per_address_max: Option<usize>,
    /// True if loopback addresses have the bound, too. A proxy on this machine has one address for all clients.
    bounds_loopback: bool,
    keep_alive: Duration,
    proxies: Proxies,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            connections_max: count(config.connections_max),
            per_address_max: config.address_connections_max().map(count),
            bounds_loopback: config.address_connections_max.is_some(),
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
    socket.bind(address)?;
    socket.listen(limits::LISTEN_BACKLOG)
}

/// Serves `door` on `listener` until the service stops. Then it takes in the connections in the kernel's queue,
/// accepts no more, finishes the requests that have begun, and closes the connections.
pub async fn run(listener: TcpListener, door: Door, settings: Settings, shutdown: Shutdown) {
    let connections = Arc::new(Connections::new(
        door.metrics(),
        settings.connections_max,
        settings.per_address_max,
        settings.keep_alive,
    ));
    let Settings { proxies, bounds_loopback, .. } = settings;
    let proxies = Arc::new(proxies);
    let listening = Listening { connections, proxies, bounds_loopback, door, shutdown };
    let stop = listening.shutdown.stop_token().clone();
    let mut looks = tokio::time::interval(limits::CONNECTION_LOOK_PERIOD);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = looks.tick() => listening.connections.close_overdue(),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => listening.take_in(stream, peer),
                Err(error) => {
                    // Most likely no file descriptor is free. Closing connections frees some.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(limits::ACCEPT_PAUSE).await;
                }
            },
        }
    }
    for (stream, peer) in queued(listener) {
        listening.take_in(stream, peer);
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
    connections: Arc<Connections>,
    proxies: Arc<Proxies>,
    bounds_loopback: bool,
    door: Door,
    shutdown: Shutdown,
}

impl Listening {
    /// The address that a connection counts for, if it counts. Those behind a proxy are counted when it has named them.
    fn counted(&self, peer: IpAddr) -> Option<IpAddr> {
        let is_bounded = self.bounds_loopback || !peer.to_canonical().is_loopback();
        (is_bounded && !self.proxies.trusts(peer)).then_some(peer)
    }

    /// Starts the task of a new connection, if there is room.
    fn take_in(&self, stream: TcpStream, peer: SocketAddr) {
        let address = self.counted(peer.ip());
        // A token of its own: each time the connection moves, the wait for it is polled, under a lock that they would
        // all share.
        let end = self.shutdown.stop_token().child_token();
        if let Some(place) = self.connections.admit(address, end) {
            let (proxies, door) = (self.proxies.clone(), self.door.clone());
            let shutdown = self.shutdown.clone();
            self.shutdown.spawn(async move {
                if let Some((stream, from)) = named(stream, peer.ip(), &proxies, &place).await {
                    serve(stream, place, Answers { door, proxies, from }, shutdown).await;
                }
            });
        }
    }
}

/// The connection and the address that it is from, once a proxy has named it if it has to. `None` if it has not, or if
/// the client has too many connections.
async fn named(
    mut stream: TcpStream,
    peer: IpAddr,
    proxies: &Proxies,
    place: &Place,
) -> Option<(TcpStream, IpAddr)> {
    if proxies.speaks_first(peer) {
        let client = proxies::client_of(&mut stream);
        let client = tokio::time::timeout(limits::HEADER_READ_TIMEOUT, client);
        // Its place may be needed, and a stop waits for no header.
        let client = place.watch.end.run_until_cancelled(client).await?.ok()?.ok()?;
        if let Some(client) = client {
            return place.counts_for(client).then_some((stream, client));
        }
    }
    Some((stream, peer))
}

/// All that the requests of a connection need.
struct Answers {
    door: Door,
    proxies: Arc<Proxies>,
    from: IpAddr,
}

async fn serve(stream: TcpStream, place: Place, answers: Answers, shutdown: Shutdown) {
    // Of this connection alone: counts of users that all connections share would go from core to core.
    let answers = Arc::new(answers);
    let watch = place.watch.clone();
    let refusals = answers.clone();
    let refusal = move |status| refusals.door.refusal_of_bytes(status);
    let stream = Watched::new(stream, watch.clone(), refusal);
    let service = service_fn(|request: Request<Incoming>| {
        let (answers, watch) = (answers.clone(), watch.clone());
        // Before hyper looks at the socket again: behind the request may stand the end of the client's half.
        let under_way = watch.request(request.version());
        async move {
            let reply = answers.reply(&watch, under_way, place.reserved, request).await;
            Ok::<_, Infallible>(reply)
        }
    });
    let builder = builder();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // How a connection ended (reset, malformed) is the client's business.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = watch.end.cancelled() => {}
    }
    if !shutdown.stop_token().is_cancelled() {
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
        () = watch.left_unread() => place.close(ConnectionEnd::Unread),
    }
}

impl Answers {
    async fn reply(
        &self,
        watch: &Arc<Watch>,
        under_way: UnderWay,
        reserved: bool,
        request: Request<Incoming>,
    ) -> Response<Reply> {
        let Self { door, proxies, from } = self;
        let version = request.version();
        let client = proxies.client(*from, request.headers());
        let probes = [paths::LIVEZ, paths::READYZ];
        let mut response = if !has_one_host(version, request.headers()) {
            door.refuse(client, &request, super::host_missing())
        } else if version == Version::HTTP_2
            && let Some(problem) = super::oversized(&request)
        {
            door.refuse(client, &request, problem)
        } else if reserved && !probes.contains(&request.uri().path()) {
            door.refuse(client, &request, super::no_connection_free())
        } else {
            let has_body = !request.body().is_end_stream();
            let awaited = has_body.then(Arc::<AtomicBool>::default);
            let request = request.map(|body| match awaited.clone() {
                Some(awaited) => Body::new(Received { body, watch: watch.clone(), awaited }),
                None => Body::empty(),
            });
            let is_awaited = || awaited.as_ref().is_some_and(|it| it.load(Ordering::Relaxed));
            door.answer(client, request, is_awaited).await
        };
        if reserved {
            // For the next one.
            watch.end.cancel();
            if version <= Version::HTTP_11 {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
        }
        under_way.replied();
        response.map(|body| {
            let unknown_length = body.size_hint().exact().is_none();
            Reply { body, streaming: unknown_length.then(|| watch.stream()) }
        })
    }
}

/// HTTP/1.1 wants exactly one (RFC 9112, section 3.2); of two, a proxy in front may have obeyed the other one.
fn has_one_host(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let given = hosts.next().is_some();
    (given || version != Version::HTTP_11) && hosts.next().is_none()
}

/// The body of a request. It notes when its reader waits for the client: for the connection, whose client may take its
/// time, and for the request, whose client is at fault then if no reply comes in time.
struct Received {
    body: Incoming,
    watch: Arc<Watch>,
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
        let awaits = frame.is_pending();
        self.watch.awaits_body(awaits);
        self.awaited.store(awaits, Ordering::Relaxed);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a reply. One of unknown length is under way until it ends.
struct Reply {
    body: Body,
    streaming: Option<Streaming>,
}

impl HttpBody for Reply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(streaming) = &self.streaming {
            // hyper asks for more once it could hand on what it had.
            streaming.is_read();
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The time-outs of hyper are off: those of the table need no timer for each request.
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
        // Larger ones are refused at the door, with a body; beyond this, by a frame alone.
        .max_header_list_size(u32::try_from(limits::HTTP2_HEADER_BYTES_READ).unwrap_or(u32::MAX));
    builder
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::future::join;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use private_servers::testing::{bound_this_test, bounded};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;

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

    /// For the connection and for its request.
    #[tokio::test]
    async fn a_received_body_is_awaited_while_its_bytes_have_not_come() {
        bound_this_test();
        let watch = Arc::new(Watch::new(Arc::default(), CancellationToken::new()));
        let waits = Arc::new(Notify::new());
        let service = service_fn(|request: Request<Incoming>| {
            received_in_two_parts(request, watch.clone(), waits.clone())
        });
        let (mut client, server) = duplex(1_000);
        let builder = builder();
        let connection = builder.serve_connection(TokioIo::new(server), service);
        let acts = async {
            let head =
                b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n";
            client.write_all(head).await.expect("the service is there");
            waits.notified().await;
            client.write_all(b"ab").await.expect("the service is there");
            let mut reply = String::new();
            client.read_to_string(&mut reply).await.expect("it is closed in peace");
            assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        };
        let (served, ()) = bounded("the end", join(connection, acts)).await;
        served.expect("it ends in peace");
    }

    /// Reads a body of two bytes, which come once `waits` is notified.
    async fn received_in_two_parts(
        request: Request<Incoming>,
        watch: Arc<Watch>,
        waits: Arc<Notify>,
    ) -> Result<Response<Body>, Infallible> {
        let awaited = Arc::<AtomicBool>::default();
        let notes = || (watch.body_is_awaited(), awaited.load(Ordering::Relaxed));
        let (body, watch, awaited) = (request.into_body(), watch.clone(), awaited.clone());
        let mut body = Received { body, watch, awaited };
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(2), false));
        assert_eq!(notes(), (false, false), "its reader has not asked");
        let first =
            poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context).is_pending()));
        assert!(first.await, "nothing has come");
        assert_eq!(notes(), (true, true));
        waits.notify_one();
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let bytes = frame.expect("a frame").expect("bytes").into_data().expect("data");
        assert_eq!((bytes, notes()), ("ab".into(), (false, false)));
        assert!(poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.is_none());
        assert!(body.is_end_stream() && notes() == (false, false));
        Ok(Response::new(Body::empty()))
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

    #[tokio::test]
    async fn each_kind_of_address_can_be_bound_and_no_second_time() {
        bound_this_test();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may have no address of IPv6.
            if std::net::TcpListener::bind(address).is_err() {
                continue;
            }
            let listener = bind(address.parse().expect("an address")).expect("a free port");
            let bound = listener.local_addr().expect("it is bound");
            assert_ne!(bound.port(), 0, "{bound}");
            assert!(bind(bound).is_err(), "{bound} has a listener");
            let both = join(TcpStream::connect(bound), listener.accept());
            let (client, accepted) = bounded("a connection", both).await;
            let (client, (_, peer)) = (client.expect("it listens"), accepted.expect("a client"));
            assert_eq!(peer, client.local_addr().expect("an address"));
            drop(listener);
            // Its last connections are still about to end.
            bind(bound).expect("a restart finds the port free");
        }
    }

    #[tokio::test]
    async fn connections_that_wait_in_the_queue_of_the_kernel_are_taken_in() {
        bound_this_test();
        let listener = bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut clients = Vec::new();
        for _ in 0..3 {
            let client = bounded("a connection", TcpStream::connect(address)).await;
            clients.push(client.expect("it listens"));
        }
        let taken: Vec<(TcpStream, SocketAddr)> = queued(listener).collect();
        let peers: Vec<SocketAddr> = taken.iter().map(|(_, peer)| *peer).collect();
        let own = clients.iter().map(|client| client.local_addr().expect("an address"));
        assert_eq!(peers, own.collect::<Vec<_>>());
        // A read that waits must not hold up the thread.
        for (stream, _) in &taken {
            let flags = fcntl(stream, FcntlArg::F_GETFL).expect("it is open");
            assert!(OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK));
        }
    }

    /// hyper asks for more once the client has taken what it had.
    #[tokio::test(start_paused = true)]
    async fn a_reply_that_goes_on_is_read_by_each_look_for_more_of_it() {
        bound_this_test();
        let clock = Arc::new(watch::CoarseClock::default());
        let watch = Arc::new(Watch::new(clock.clone(), CancellationToken::new()));
        let under_way = watch.request(Version::HTTP_11);
        let mut reply = Reply { body: Body::from("x"), streaming: Some(watch.stream()) };
        under_way.replied();
        tokio::time::advance(limits::STREAM_TIMEOUT).await;
        clock.set();
        let keep_alive = Duration::from_secs(75);
        assert_eq!(watch.overdue(keep_alive), Some(ConnectionEnd::Unread));
        assert!(!reply.is_end_stream());
        let frame = poll_fn(|context| Pin::new(&mut reply).poll_frame(context));
        let frame = bounded("a frame", frame).await;
        assert_eq!(frame.expect("a frame").expect("bytes").into_data().expect("data"), "x");
        assert_eq!(watch.overdue(keep_alive), None);
        drop(reply);
        assert!(!watch.streams());
        let whole = Reply { body: Body::empty(), streaming: None };
        assert!(whole.is_end_stream() && whole.size_hint().exact() == Some(0));
    }
}
