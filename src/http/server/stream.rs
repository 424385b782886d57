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
    use super::*;

    #[test]
    fn a_refusal_without_a_body_is_known_by_its_form() {
        let refusal = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: now\r\n\r\n";
        assert_eq!(refused_by_hyper(refusal.as_bytes()).map(|status| status.as_u16()), Some(431));
        for (from, to) in [
            ("431", "200"),
            ("length: 0", "length: 01"),
            ("\r\n\r\n", "\r\n\r\nx"),
            ("HTTP/1.1", "HTTP/2"),
        ] {
            let other = refusal.replace(from, to);
            assert_eq!(refused_by_hyper(other.as_bytes()), None, "{other}");
        }
    }
}
