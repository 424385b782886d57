//! Streams of server-sent events: their reply, their end, and the refusal of a watcher too many.

use std::convert::Infallible;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt, once};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::base::limits;
use crate::http::problem::Problem;

/// nginx would keep the events back.
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// The last event of a stream: connect again.
#[derive(Serialize, ToSchema)]
struct Bye {
    /// Always `stopping`: the process ends.
    reason: &'static str,
}

/// The reply with these events, which end with `bye` when the process stops.
pub fn reply(
    app: &App,
    events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    let stop = app.shutdown.stop_token().clone();
    let events = events.take_until(stop.cancelled_owned()).chain(bye());
    ([NO_BUFFERING], Sse::new(events)).into_response()
}

/// The problem of a client for which there is no place, and its remedy.
pub fn too_many_watchers(detail: &'static str) -> Problem {
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_watchers", detail);
    problem.retry_after(limits::WATCHERS_RETRY_AFTER)
}

fn bye() -> impl Stream<Item = Result<Event, Infallible>> {
    once(async {
        let bye = Event::default().event("bye").json_data(Bye { reason: "stopping" });
        Ok(bye.expect("a word can be written as JSON"))
    })
}
