//! Storms of a demo: start one, stop it, watch it. Only `demo` serves this, to its administrators on loopback, with the
//! guards of `here.rs`. The crowd goes to the address at which the page was requested, which is on this machine.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::here::Here;
use crate::base::limits;
use crate::demo::storm::{Frame, Plan, Trouble, Watching};
use crate::http::auth::Admin;
use crate::http::events;
use crate::http::extract::Valid;
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::http::state::HttpState;

#[derive(Serialize)]
pub struct Started {
    /// Its id in the events.
    id: String,
}

/// The trouble to make.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    #[garde(skip)]
    trouble: Trouble,
}

pub async fn start(
    Here(authority): Here,
    State(http): State<HttpState>,
    Admin(_): Admin,
    Valid(plan): Valid<Plan>,
) -> Result<Response, Problem> {
    let (signer, now) = (http.clone(), http.app().clock.now());
    let issue = Arc::new(move |grants, until| signer.front().tokens.issue(grants, until));
    if !http.app().storms.start(&authority, issue, plan, now) {
        let detail =
            "one storm at a time: wait for its verdict, or stop it by DELETE /demo/storms/current";
        return Err(Problem::of("storm_under_way", detail));
    }
    Ok((StatusCode::ACCEPTED, Json(Started { id: now.timestamp_millis().to_string() }))
        .into_response())
}

pub async fn stop(
    Here(_): Here,
    State(http): State<HttpState>,
    Admin(_): Admin,
) -> Result<StatusCode, Problem> {
    if http.app().storms.stop() {
        return Ok(StatusCode::ACCEPTED);
    }
    Err(Problem::of("no_storm", "no storm is under way"))
}

/// Makes trouble in the storm that is under way, on servers that this demo has started itself.
pub async fn trouble(
    Here(_): Here,
    State(http): State<HttpState>,
    Admin(_): Admin,
    Valid(wanted): Valid<Wanted>,
) -> Result<StatusCode, Problem> {
    if http.app().storms.make(wanted.trouble) {
        return Ok(StatusCode::ACCEPTED);
    }
    let detail = "no storm is under way, the last trouble lasts, or somebody else runs the servers";
    Err(Problem::of("no_storm", detail))
}

/// Watches storms: sends the state of the last one, and each later state.
pub async fn watch(
    Here(_): Here,
    State(http): State<HttpState>,
    Admin(_): Admin,
) -> Result<Response, Problem> {
    let Some(watching) = http.app().storms.watch() else {
        let detail = "as many pages watch storms as may; ask for /demo/storms/last instead";
        let problem = Problem::of("too_many_watchers", detail);
        return Err(problem.retry_after(limits::WATCHERS_RETRY_AFTER));
    };
    Ok(events::reply(states(watching), http.app().shutdown.stop_token()))
}

/// The newest state of the last storm, null before the first: for a page that found no place to watch.
pub async fn last(
    Here(_): Here,
    State(http): State<HttpState>,
    Admin(_): Admin,
) -> Result<Json<Option<Frame>>, Problem> {
    Ok(Json(http.app().storms.last().map(Arc::unwrap_or_clone)))
}

fn states(watching: Watching) -> impl Stream<Item = Event> {
    unfold(watching, |mut watching| async {
        // Without a storm the state is null.
        let frame = watching.next().await?;
        Some((events::told(Event::default().event("storm"), &frame.as_deref()), watching))
    })
}
