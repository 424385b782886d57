//! The bytes of a connection: whether the kernel takes what is written, and hyper's own refusals replaced by ones with a
//! body.
//!
//! hyper refuses what it can't parse by itself, with an empty body and without asking the service. Such a reply is known
//! by its form, and because it has no request id; another one is written in its place. For hyper, a request line that
//! alone fills its buffer is a head like others; here that is 414. Not replaced: a refusal that stands in one buffer
//! behind the reply to the request before (pipelining), and refusals of HTTP/2, which are frames: its heads are measured
//! at the door.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::places::Notes;

/// A connection that is watched.
pub struct Watched<Refusal> {
    stream: TcpStream,
    notes: Arc<Notes>,
    refusal: Refusal,
    replacing: Option<Replacement>,
    /// True while no line has ended since the last reply: if hyper's buffer is full then, the first line has filled it.
    in_first_line: bool,
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
    pub fn new(stream: TcpStream, notes: Arc<Notes>, refusal: Refusal) -> Self {
        // A reply doesn't wait until the client has acknowledged the one before. If the system refuses this, the client is
        // gone, and reading says so.
        let _: io::Result<()> = stream.set_nodelay(true);
        Self { stream, notes, refusal, replacing: None, in_first_line: true }
    }

    fn poll_write_noted(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.notes.blocked(written.is_pending());
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
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.in_first_line = self.in_first_line && !buffer.filled()[before..].contains(&b'\n');
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
        if let Some(status) = refused_by_hyper(bytes) {
            let status = match status {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE if self.in_first_line => {
                    StatusCode::URI_TOO_LONG
                }
                status => status,
            };
            let replaces = bytes.len();
            let bytes = (self.refusal)(status);
            return self.poll_replace(context, Replacement { bytes, written: 0, replaces });
        }
        self.in_first_line = true;
        self.poll_write_noted(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The status, if this is a whole refusal of hyper's, which has neither a body nor a request id.
fn refused_by_hyper(bytes: &[u8]) -> Option<StatusCode> {
    const LONGEST: usize = 256;
    if bytes.len() > LONGEST || !bytes.starts_with(b"HTTP/1.") {
        return None;
    }
    let (first, rest) =
        std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?.split_once("\r\n")?;
    let status = StatusCode::from_bytes(first.as_bytes().get(9..12)?).ok()?;
    let is_empty = rest.split("\r\n").any(|header| header == "content-length: 0");
    (status.is_client_error() && is_empty && !rest.contains("x-request-id")).then_some(status)
}
