//! Events for other systems.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::base::limits;
use crate::events::feed::{CloudEvent, EventId, Told};
use crate::http::auth::Integrator;
use crate::http::claims::PreferWait;
use crate::http::extract::Params;
use crate::http::operators::webhooks::events_off;
use crate::http::problem::Problem;

/// Place in the feed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Place {
    /// `id` of the last event that was processed; leave it out to begin with the oldest event that is kept.
    #[param(value_type = Option<String>, nullable = false, pattern = "^[0-9]{1,18}-[0-9]{1,18}-[0-9]{1,18}$")]
    after: Option<EventId>,
    /// Largest number of events in the reply, 1 to 100; 100 if not given. One event has all claims of a batch.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

const BATCH: &str = "application/cloudevents-batch+json";

/// What happened since an event, oldest first.
///
/// With `Prefer: wait=N` (at most 10 s), the reply waits for the first event. Each event is delivered at least once.
/// Events of one order may come out of order: drop one whose `move` is not higher than the last one of its order.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "readEvents", tag = "operations", params(Place), security(("integrator" = [])),
    responses(
        (status = 200, description = "Events behind `after`; an empty list if there are none yet", body = Vec<CloudEvent>, content_type = "application/cloudevents-batch+json"),
    ),
    extensions(("x-problems" = json!(["cursor_unknown", "events_off"]))),
)]
pub async fn read(
    State(app): State<Arc<App>>,
    _: Integrator,
    PreferWait(wait): PreferWait,
    Params(Place { after, limit }): Params<Place>,
) -> Result<Response, Problem> {
    let limit = limit.unwrap_or(limits::PAGE_MAX);
    if !(1..=limits::PAGE_MAX).contains(&limit) {
        return Err(Problem::of("invalid_query", "`limit` is a number from 1 to 100"));
    }
    match app.feed.read(after, limit, wait.unwrap_or_default()).await? {
        Told::Events(events) => {
            let body = serde_json::to_vec(&events).expect("an event can be written as JSON");
            Ok(([(header::CONTENT_TYPE, BATCH)], body).into_response())
        }
        Told::Unknown => Err(Problem::of(
            "cursor_unknown",
            "the event that `after` names isn't there any more, and events behind it may be missing; begin again without `after`",
        )),
        Told::Off => Err(events_off()),
    }
}
