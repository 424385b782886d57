//! Replies that are streams of events and last until the service stops, and the refusal of one watcher too many.

use std::convert::Infallible;

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt, once};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::base::limits;
use crate::http::problem::Problem;

/// nginx would buffer the events.
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// The last event of a stream. The client should connect again.
#[derive(Serialize, ToSchema)]
struct Bye {
    /// Always `stopping`: the process ends.
    reason: &'static str,
}

/// A reply that streams these events, and `bye` at the end.
pub fn reply(
    events: impl Stream<Item = Event> + Send + 'static,
    stop: &CancellationToken,
) -> Response {
    let events = events.take_until(stop.clone().cancelled_owned()).chain(bye());
    ([NO_BUFFERING], Sse::new(events.map(Ok::<_, Infallible>))).into_response()
}

/// The problem of a client for which there is no place; `detail` names the remedy.
pub fn too_many_watchers(detail: &'static str) -> Problem {
    let problem = Problem::of("too_many_watchers", detail);
    problem.retry_after(limits::WATCHERS_RETRY_AFTER)
}

/// The event with this value as its data, in JSON.
pub fn told(event: Event, value: &impl Serialize) -> Event {
    event.json_data(value).expect("a state can be written as JSON")
}

fn bye() -> impl Stream<Item = Event> {
    once(async { told(Event::default().event("bye"), &Bye { reason: "stopping" }) })
}
