//! The body of a reply on its way: under way until the client has taken it, and handed over in parts, so that what hyper
//! and HTTP/2 keep for a client that doesn't read is a part and not a body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::places::{Notes, Untaken};
use crate::base::limits;

/// Marks a reply, among its extensions, whose body is one that all clients share.
#[derive(Clone, Copy)]
pub struct Shared;

/// A body that is noted until it has been taken.
pub struct Reply {
    body: Body,
    /// The part of a frame that has not been handed over.
    rest: Bytes,
    untaken: Option<Untaken>,
}

impl Reply {
    /// The body of a reply on this connection.
    pub fn new(body: Body, notes: &Arc<Notes>, is_shared: bool) -> Self {
        let hint = body.size_hint();
        let bytes = if is_shared { 0 } else { usize::try_from(hint.lower()).unwrap_or(usize::MAX) };
        let untaken = Untaken::begins(notes, bytes, hint.exact().is_none());
        Self { untaken: (!body.is_end_stream()).then_some(untaken), body, rest: Bytes::new() }
    }

    fn part(&mut self, mut bytes: Bytes) -> Bytes {
        let part = bytes.split_to(bytes.len().min(limits::REPLY_PART_BYTES));
        self.rest = bytes;
        if let Some(untaken) = &mut self.untaken {
            untaken.goes_on(part.len());
        }
        part
    }
}

impl HttpBody for Reply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(Frame::data(self.part(rest)))));
        }
        if let Some(untaken) = &mut self.untaken {
            // hyper asks for more once it could hand on what it had.
            untaken.goes_on(0);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(Ok(match frame.into_data() {
                Ok(bytes) => Frame::data(self.part(bytes)),
                Err(trailers) => trailers,
            })),
            Some(Err(error)) => Some(Err(error)),
            None => {
                self.untaken = None;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut with_rest = SizeHint::new();
        with_rest.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            with_rest.set_upper(upper + rest);
        }
        with_rest
    }
}
