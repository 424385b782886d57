//! The bytes of a connection: noted as they pass, hyper's own refusals replaced by ones with a body, and clients that have
//! said their last word told apart from clients that are gone.
//!
//! # A client that closes its half
//!
//! A client may end its half of the connection behind a request and still wait for the reply (RFC 9112, section 9.6); a
//! client that is gone looks the same. hyper, told of the end, drops the request, or, told to bear it, looks at the socket
//! no more. So the end is kept from hyper until the reply is written, and an interim reply is sent (100, which each client
//! of HTTP/1.1 has to bear, RFC 9110, section 15.2). The kernel of a client that is gone answers that with a reset, and the
//! request is dropped at the next look at the socket. A request whose body has not come as a whole ends then, too. With
//! HTTP/1.0, which has no interim replies, and for streams, the end of the client's half ends the request at once.
//!
//! # A client that doesn't read
//!
//! The kernel takes what is written before the client does, and takes more and more of it. A stream of small events would
//! go into that room for hours. So the room for a stream is small: soon nothing more can be written, which is noted
//! (`watch.rs`), and the connection is closed.
//!
//! # Refusals of hyper
//!
//! hyper refuses what it can't parse by itself, with an empty body and without asking the service. Such a reply is
//! known by its form, at a moment in which no reply of the service is due, and another one is written in its place.
//! For hyper, a request line that alone fills its buffer is a head like others; here that is 414. Not replaced: a
//! refusal that stands in one buffer behind the reply to the request before (pipelining), and refusals of HTTP/2, which
//! are frames: its heads are measured at the door.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::StatusCode;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SndBuf;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Interval, interval_at};

use super::watch::Watch;
use crate::base::limits;

/// A connection that is watched.
pub struct Watched<Refusal> {
    stream: TcpStream,
    watch: Arc<Watch>,
    refusal: Refusal,
    replacing: Option<Replacement>,
    /// True while the first line of a head has not ended: if hyper's buffer is full then, the line has filled it.
    in_first_line: bool,
    /// Looks at the socket, once the client has closed its half and waits for a reply.
    half_closed: Option<Box<Interval>>,
    /// True if the kernel's room for the client is bounded: from the first reply on that goes on for ever.
    bounded: bool,
}

/// A reply that is written in place of one of hyper's.
struct Replacement {
    bytes: Vec<u8>,
    written: usize,
    /// Length of the other one.
    replaces: usize,
}

impl<Refusal> Watched<Refusal> {
    /// `refusal` is the whole reply in place of one of hyper's.
    pub fn new(stream: TcpStream, watch: Arc<Watch>, refusal: Refusal) -> Self {
        // A reply doesn't wait until the client has acknowledged the one before. If the system refuses this, the client is
        // gone, and reading says so.
        let _: io::Result<()> = stream.set_nodelay(true);
        Self {
            stream,
            watch,
            refusal,
            replacing: None,
            in_first_line: false,
            half_closed: None,
            bounded: false,
        }
    }

    /// True if the client may wait for a reply although it has closed its half. Sends the interim reply.
    fn may_wait(&self) -> bool {
        self.watch.owes_reply()
            && self.watch.is_between_replies()
            && self.stream.try_write(INTERIM).is_ok_and(|written| written == INTERIM.len())
    }

    /// The end of the client's half, as soon as no reply is owed any more; an error if the client is gone.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.watch.owes_reply() {
            let Some(looks) = &mut self.half_closed else { break };
            ready!(looks.poll_tick(context));
            if let Some(error) = self.stream.take_error()? {
                return Poll::Ready(Err(error));
            }
            if self.watch.body_is_awaited() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_noted(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.bounded && self.watch.streams() {
            self.bounded = true;
            // A system that refuses keeps more for the client, and no less.
            let _: Result<_, _> = setsockopt(&self.stream, SndBuf, &limits::STREAM_SEND_BUFFER);
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        match written {
            Poll::Pending => self.watch.blocked(),
            Poll::Ready(_) => self.watch.written(),
        }
        written
    }

    fn poll_replace(
        &mut self,
        context: &mut Context<'_>,
        mut replacement: Replacement,
    ) -> Poll<io::Result<usize>> {
        while replacement.written < replacement.bytes.len() {
            let rest = &replacement.bytes[replacement.written..];
            match self.poll_write_noted(context, rest) {
                Poll::Pending => {
                    self.replacing = Some(replacement);
                    return Poll::Pending;
                }
                Poll::Ready(written) => replacement.written += written?.max(1),
            }
        }
        Poll::Ready(Ok(replacement.replaces))
    }
}

impl<Refusal: Unpin> AsyncRead for Watched<Refusal> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.half_closed.is_some() {
            return self.poll_end(context);
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            if self.watch.received() || self.in_first_line {
                self.in_first_line = !buffer.filled()[before..].contains(&b'\n');
            }
        } else if buffer.remaining() > 0 && self.may_wait() {
            let period = limits::HALF_CLOSED_LOOK_PERIOD;
            self.half_closed = Some(Box::new(interval_at(Instant::now() + period, period)));
            return self.poll_end(context);
        }
        Poll::Ready(Ok(()))
    }
}

impl<Refusal: Fn(StatusCode) -> Vec<u8> + Unpin> AsyncWrite for Watched<Refusal> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(replacement) = self.replacing.take() {
            return self.poll_replace(context, replacement);
        }
        if !self.watch.takes_reply()
            && let Some(status) = refused_by_hyper(bytes)
        {
            let status = match status {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE if self.in_first_line => {
                    StatusCode::URI_TOO_LONG
                }
                status => status,
            };
            let replacement =
                Replacement { bytes: (self.refusal)(status), written: 0, replaces: bytes.len() };
            return self.poll_replace(context, replacement);
        }
        self.poll_write_noted(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// An interim reply.
const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The status, if this is a whole refusal without a body.
fn refused_by_hyper(bytes: &[u8]) -> Option<StatusCode> {
    const LONGEST: usize = 256;
    let head = std::str::from_utf8(bytes).ok().filter(|head| head.len() <= LONGEST)?;
    let (first, rest) = head.strip_suffix("\r\n\r\n")?.split_once("\r\n")?;
    let (version, status) = first.split_once(' ')?;
    let status = StatusCode::from_bytes(status.as_bytes().get(..3)?).ok()?;
    let empty = rest.split("\r\n").any(|header| header == "content-length: 0");
    (version.starts_with("HTTP/1.") && status.is_client_error() && empty).then_some(status)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::Version;
    use futures_util::FutureExt;
    use nix::sys::socket::getsockopt;
    use private_servers::testing::{bound_this_test, bounded};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    /// A refusal as hyper writes it.
    const OF_HYPER: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: now\r\n\r\n";

    type Refusal = fn(StatusCode) -> Vec<u8>;

    /// Both ends of a connection: that of the client, and the watched one of the service.
    async fn connection(refusal: Refusal) -> (TcpStream, Watched<Refusal>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let client = TcpStream::connect(address).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("a client");
        let watch = Arc::new(Watch::new(Arc::default(), CancellationToken::new()));
        (client, Watched::new(stream, watch, refusal))
    }

    fn named(status: StatusCode) -> Vec<u8> {
        format!("refused: {}", status.as_u16()).into_bytes()
    }

    fn long(_: StatusCode) -> Vec<u8> {
        (0..10_000_000_u32).map(|number| u8::try_from(number % 251).expect("a byte")).collect()
    }

    /// Reads until the client has got all; the service's end is closed by that.
    async fn all(mut client: TcpStream, stream: Watched<Refusal>) -> Vec<u8> {
        drop(stream);
        let mut bytes = Vec::new();
        let read = bounded("the end", client.read_to_end(&mut bytes)).await;
        read.expect("it is closed in peace");
        bytes
    }

    async fn read(stream: &mut Watched<Refusal>, room: usize) -> io::Result<usize> {
        let mut bytes = vec![0; room];
        bounded("the bytes, or the end", stream.read(&mut bytes)).await
    }

    async fn write(stream: &mut Watched<Refusal>, bytes: &[u8]) {
        let written = bounded("room for the bytes", stream.write_all(bytes)).await;
        written.expect("the client is there");
    }

    #[test]
    fn a_refusal_without_a_body_is_known_by_its_form() {
        let status = |bytes: &str| refused_by_hyper(bytes.as_bytes()).map(|status| status.as_u16());
        assert_eq!(status(OF_HYPER), Some(431));
        for (from, to) in [
            ("431", "200"),
            ("431", "500"),
            ("length: 0", "length: 01"),
            ("content-length: 0\r\n", ""),
            ("\r\n\r\n", "\r\n\r\nx"),
            ("HTTP/1.1", "HTTP/2"),
        ] {
            let other = OF_HYPER.replace(from, to);
            assert_eq!(status(&other), None, "{other}");
        }
        assert_eq!(status(&OF_HYPER.replace("431", "400")), Some(400));
        // It is short.
        for (length, expected) in [(255, Some(431)), (256, Some(431)), (257, None), (258, None)] {
            let padding = "x".repeat(length - OF_HYPER.len());
            let padded = OF_HYPER.replace("now", &format!("now{padding}"));
            assert_eq!((padded.len(), status(&padded)), (length, expected));
        }
    }

    /// Parts of a head as they come, and the status of the refusal that the client gets in place of hyper's 431.
    #[tokio::test]
    async fn a_refusal_of_hyper_is_replaced_and_told_by_the_line_that_was_too_long() {
        bound_this_test();
        for (parts, told) in [
            (&[][..], "refused: 431"),
            (&["GET /aaa"], "refused: 414"),
            (&["GET /aaa", "aaa"], "refused: 414"),
            (&["GET /aaa", "a HTTP/1.1\r\n"], "refused: 431"),
            (&["GET /aaa", "a HTTP/1.1\r\n", "x-a: "], "refused: 431"),
            (&["GET / HTTP/1.1\r\nx-a:"], "refused: 431"),
            (&["GET / HTTP/1.1\r\nx-a:", "aaa"], "refused: 431"),
        ] {
            let (mut client, mut stream) = connection(named).await;
            for part in parts {
                client.write_all(part.as_bytes()).await.expect("the service is there");
                assert_eq!(read(&mut stream, 100).await.expect("bytes"), part.len());
            }
            let written = bounded("room for it", stream.write(OF_HYPER.as_bytes())).await;
            let written = written.expect("the client is there");
            assert_eq!(written, OF_HYPER.len(), "{parts:?}");
            assert_eq!(all(client, stream).await, told.as_bytes(), "{parts:?}");
        }
    }

    #[tokio::test]
    async fn replies_of_the_service_are_written_as_they_are() {
        bound_this_test();
        let (mut client, mut stream) = connection(named).await;
        client.write_all(HEAD).await.expect("the service is there");
        assert_eq!(read(&mut stream, 100).await.expect("bytes"), HEAD.len());
        stream.watch.request(Version::HTTP_11).replied();
        write(&mut stream, OF_HYPER.as_bytes()).await;
        write(&mut stream, b"other").await;
        // The next one is hyper's again.
        write(&mut stream, OF_HYPER.as_bytes()).await;
        let expected = [OF_HYPER, "other", "refused: 431"].concat();
        assert_eq!(all(client, stream).await, expected.as_bytes());
    }

    /// While the client reads nothing, the connection is noted as blocked; each byte is sent once.
    #[tokio::test]
    async fn a_refusal_that_the_client_takes_bit_by_bit_is_sent_as_a_whole_and_once() {
        bound_this_test();
        let (mut client, mut stream) = connection(long).await;
        let bytes = OF_HYPER.as_bytes();
        let waits = timeout(Duration::from_millis(50), stream.write(bytes)).await;
        assert!(waits.is_err(), "the kernel has no room for so much");
        assert!(!stream.watch.is_between_replies(), "it is noted as blocked");
        let mut got = Vec::new();
        let reads = async {
            let expected = long(StatusCode::OK);
            let mut part = vec![0; 100_000];
            while got.len() < expected.len() {
                let read = client.read(&mut part).await.expect("more");
                assert_ne!(read, 0, "after {} bytes", got.len());
                got.extend_from_slice(&part[..read]);
            }
            assert!(got == expected, "other bytes than those of the refusal");
        };
        let both = futures_util::future::join(stream.write(bytes), reads);
        let (written, ()) = bounded("all bytes at the client", both).await;
        assert_eq!(written.expect("the client is there"), bytes.len());
        assert!(stream.watch.is_between_replies(), "nothing waits any more");
        assert_eq!(all(client, stream).await, b"");
    }

    #[tokio::test]
    async fn a_reply_is_sent_at_once_whatever_has_not_been_acknowledged() {
        bound_this_test();
        let (_client, stream) = connection(named).await;
        assert!(stream.stream.nodelay().expect("a flag"));
    }

    /// The kernel notes twice as many bytes as are asked for (`man 7 socket`).
    #[tokio::test]
    async fn the_room_for_a_stream_is_bounded_at_its_first_bytes_and_once() {
        bound_this_test();
        let (_client, mut stream) = connection(named).await;
        let room =
            |stream: &Watched<Refusal>| getsockopt(&stream.stream, SndBuf).expect("a number");
        let bounded = 2 * limits::STREAM_SEND_BUFFER;
        let under_way = stream.watch.request(Version::HTTP_11);
        write(&mut stream, b"a reply").await;
        assert_ne!(room(&stream), bounded, "no stream");
        let _streaming = stream.watch.stream();
        under_way.replied();
        write(&mut stream, b"an event").await;
        assert_eq!(room(&stream), bounded);
        let other = limits::STREAM_SEND_BUFFER / 2;
        setsockopt(&stream.stream, SndBuf, &other).expect("the system lets us");
        write(&mut stream, b"an event").await;
        assert_eq!(room(&stream), 2 * other, "it isn't asked for again");
    }

    /// The end of the client's half is kept back while a reply is owed, and then told.
    #[tokio::test]
    async fn a_client_that_closes_its_half_is_sent_one_interim_reply_and_waited_for() {
        bound_this_test();
        let (mut client, mut stream) = connection(named).await;
        client.write_all(HEAD).await.expect("the service is there");
        assert_eq!(read(&mut stream, 100).await.expect("bytes"), HEAD.len());
        let under_way = stream.watch.request(Version::HTTP_11);
        client.shutdown().await.expect("its half can be closed");
        let mut interim = [0; INTERIM.len()];
        let mut room = [0; 1];
        tokio::select! {
            read = stream.read(&mut room) => panic!("told {read:?} while a reply is owed"),
            got = bounded("an interim reply", client.read_exact(&mut interim)) => {
                got.expect("the service is there");
            }
        }
        assert_eq!(interim, INTERIM);
        let more = timeout(limits::HALF_CLOSED_LOOK_PERIOD * 3, stream.read(&mut room)).await;
        assert!(more.is_err(), "a reply is owed: {more:?}");
        under_way.replied();
        write(&mut stream, b"reply").await;
        assert_eq!(read(&mut stream, 100).await.expect("the end"), 0);
        assert_eq!(all(client, stream).await, b"reply");
    }

    #[tokio::test]
    async fn a_client_that_is_gone_breaks_its_connection_while_a_reply_is_owed() {
        bound_this_test();
        let (mut client, mut stream) = connection(named).await;
        client.write_all(HEAD).await.expect("the service is there");
        assert_eq!(read(&mut stream, 100).await.expect("bytes"), HEAD.len());
        let _under_way = stream.watch.request(Version::HTTP_11);
        drop(client);
        let told = read(&mut stream, 100).await;
        assert!(told.is_err(), "{told:?}");
    }

    /// With a request whose body has not come as a whole, the end of the client's half is the end of the request.
    #[tokio::test]
    async fn the_end_of_half_a_body_is_told() {
        bound_this_test();
        let (mut client, mut stream) = connection(named).await;
        client.write_all(HEAD).await.expect("the service is there");
        assert_eq!(read(&mut stream, 100).await.expect("bytes"), HEAD.len());
        let _under_way = stream.watch.request(Version::HTTP_11);
        stream.watch.awaits_body(true);
        client.shutdown().await.expect("its half can be closed");
        assert_eq!(read(&mut stream, 100).await.expect("the end"), 0);
        assert_eq!(all(client, stream).await, INTERIM);
    }

    /// Without an interim reply, a client that waits can't be told from one that is gone.
    #[tokio::test]
    async fn a_client_whose_interim_reply_has_no_room_may_not_wait() {
        bound_this_test();
        let (mut client, mut stream) = connection(named).await;
        client.write_all(HEAD).await.expect("the service is there");
        assert_eq!(read(&mut stream, 100).await.expect("bytes"), HEAD.len());
        let _under_way = stream.watch.request(Version::HTTP_11);
        client.shutdown().await.expect("its half can be closed");
        let mut room = [0; 1];
        let end = bounded("the end", stream.stream.peek(&mut room)).await;
        assert_eq!(end.expect("it is closed in peace"), 0);
        let writable = bounded("room", stream.stream.writable()).await;
        writable.expect("it is open");
        let mut filled = 0;
        let full = loop {
            match stream.stream.try_write(&[b'x'; 65_536]) {
                Ok(bytes) => filled += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        // Nothing has been awaited since, so no room has been noticed.
        let told = stream.read(&mut room).now_or_never().expect("told at once");
        assert_eq!(told.expect("the end"), 0);
        assert_eq!(all(client, stream).await, vec![b'x'; filled]);
    }

    /// States in which the end of the client's half is told at once, and no interim reply is sent.
    #[tokio::test]
    async fn a_client_that_waits_for_nothing_gets_no_interim_reply() {
        bound_this_test();
        for what in ["no request", "HTTP/1.0", "a reply that is due", "no room to read"] {
            let (mut client, mut stream) = connection(named).await;
            client.write_all(HEAD).await.expect("the service is there");
            assert_eq!(read(&mut stream, 100).await.expect("bytes"), HEAD.len());
            let version = if what == "HTTP/1.0" { Version::HTTP_10 } else { Version::HTTP_11 };
            let mut request = (what != "no request").then(|| stream.watch.request(version));
            if what == "a reply that is due" {
                request.take().expect("one").replied();
            }
            client.shutdown().await.expect("its half can be closed");
            let room = if what == "no room to read" { 0 } else { 100 };
            assert_eq!(read(&mut stream, room).await.expect("the end"), 0, "{what}");
            assert_eq!(all(client, stream).await, b"", "{what}");
        }
    }
}
