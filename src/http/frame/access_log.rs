//! The access log: one line for each of the requests that the setting picks.
//!
//! A request only hands its facts over. A task of its own finds out who asked, and writes the line; if it can't keep up,
//! lines are left out and counted, and no request waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::http::{HeaderValue, Method};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

use crate::base::limits;

/// Picks requests, and hands their facts to the task that writes.
pub struct AccessLog {
    one_in: u32,
    count: AtomicU32,
    lines: Sender<Access>,
}

/// The facts of a request and its reply.
pub struct Access {
    /// Method of the request.
    pub method: Method,
    /// Name of the route.
    pub route: String,
    /// Status of the reply.
    pub status: u16,
    /// Code of the problem, if the reply is one.
    pub code: Option<&'static str>,
    /// Time from the head of the request to the head of the reply.
    pub took: Duration,
    /// The header with the token.
    pub authorization: Option<HeaderValue>,
    /// Name of the request.
    pub request_id: HeaderValue,
}

impl AccessLog {
    /// For one request in so many, and the queue of its lines; `None` for 0.
    pub fn new(one_in: u32) -> Option<(Self, Receiver<Access>)> {
        let (lines, queue) = channel(limits::ACCESS_LINES_MAX);
        (one_in > 0).then(|| (Self { one_in, count: AtomicU32::new(0), lines }, queue))
    }

    /// Whether the next request is written.
    pub fn picks(&self) -> bool {
        self.one_in == 1 || self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in)
    }

    /// Hands the facts over. False if the queue is full.
    pub fn hand_over(&self, access: Access) -> bool {
        self.lines.try_send(access).is_ok()
    }
}

/// Writes the lines until the service stops. `actor_of` names the user of a token.
pub async fn write(
    mut queue: Receiver<Access>,
    stop: CancellationToken,
    actor_of: impl Fn(&HeaderValue) -> String,
) {
    loop {
        let access = tokio::select! {
            biased;
            access = queue.recv() => access,
            () = stop.cancelled() => None,
        };
        let Some(access) = access else { return };
        let actor = access.authorization.as_ref().map_or_else(|| "none".to_owned(), &actor_of);
        tracing::info!(
            target: "access",
            method = access.method.as_str(),
            route = access.route,
            status = access.status,
            code = access.code.unwrap_or("ok"),
            took_us = u64::try_from(access.took.as_micros()).unwrap_or(u64::MAX),
            actor,
            request_id = access.request_id.to_str().unwrap_or_default(),
            "request"
        );
    }
}
