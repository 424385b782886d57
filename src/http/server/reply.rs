//! The body of a reply on its way to the client. It is handed over in parts, so that hyper and HTTP/2 hold one part,
//! and not the whole body, for a client that doesn't read. Each part that is taken counts as activity of the
//! connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::places::Exchange;
use crate::base::limits;

/// A body that records its progress.
pub struct Reply {
    body: Body,
    /// The part of a frame that has not been handed over.
    rest: Bytes,
    exchange: Exchange,
}

impl Reply {
    pub fn new(body: Body, mut exchange: Exchange) -> Self {
        exchange.is_answered(body.size_hint().exact().is_none());
        Self { body, rest: Bytes::new(), exchange }
    }
}

impl HttpBody for Reply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // hyper polls again once it could pass on the last part.
        self.exchange.moves();
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context))
                .map(|it| it.map(Frame::into_data))
            {
                Some(Ok(Ok(bytes))) => self.rest = bytes,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.rest.len().min(limits::REPLY_PART_BYTES);
        let part = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    /// Doesn't count `rest`: hyper asks for the size before it takes the first part.
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
