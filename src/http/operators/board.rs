//! The board, as a stream of events and as it is now, for operators and administrators.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream::{Stream, StreamExt, iter, unfold};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::http::auth::Operator;
use crate::http::events;
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;
use crate::sale::board::Watching;
use crate::sale::board::event::BoardEvent;
use crate::sale::board::figures::Past;

/// The state that an event tells.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Told<'a> {
    /// Of `past`.
    Past(&'a Past),
    /// Of `board`.
    Board(&'a BoardEvent),
}

/// Watch the board: all processes, both stores, and all that waits.
///
/// Server-sent events. The event `past` comes once, as soon as Redis has told the last five minutes, which is before the
/// first board as a rule; each event `board` is the whole state, once a second. A fact that isn't known is null. The event `bye` ends the stream.
#[utoipa::path(
    get, path = "/v1/board/live", operation_id = "watchBoard", tag = "operations", security(("operator" = [])),
    responses(
        (status = 200, description = "Events: `past` once and `board` without an end; at last `bye`", body = Told, content_type = "text/event-stream"),
    ),
    extensions(("x-problems" = json!(["too_many_watchers"])), ("x-events" = json!(["past", "board"]))),
)]
pub async fn live(State(app): State<Arc<App>>, _: Operator) -> Result<Response, Problem> {
    let Some(watching) = app.board.watch() else {
        return Err(events::too_many_watchers(
            "as many clients watch as may; ask for /v1/board every 10 to 20 seconds instead",
        ));
    };
    Ok(events::reply(boards(watching), app.shutdown.stop_token()))
}

/// The board now.
///
/// The same as the event `board` of `/v1/board/live`, at most a second old, for a client that found no place there. The
/// first one takes a second more. Ask every 10 to 20 seconds.
#[utoipa::path(
    get, path = "/v1/board", operation_id = "getBoard", tag = "operations", security(("operator" = [])),
    responses(
        (status = 200, description = "The board", body = BoardEvent),
    ),
)]
pub async fn show(State(app): State<Arc<App>>, _: Operator) -> Result<Json<BoardEvent>, Problem> {
    let board = app.board.now().await.ok_or_else(Problem::unavailable)?;
    Ok(Json(Arc::unwrap_or_clone(board)))
}

/// Boards, and once the past, before the first board that knows it.
fn boards(watching: Watching) -> impl Stream<Item = Event> {
    let told = unfold((watching, false), |(mut watching, is_past_told)| async move {
        let (past, board) = watching.next().await?;
        let past = past.filter(|_| !is_past_told);
        let is_past_told = is_past_told || past.is_some();
        let past = past.map(|past| event("past", &Told::Past(&past)));
        let events: Vec<Event> = past.into_iter().chain([event_of(&board)]).collect();
        Some((iter(events), (watching, is_past_told)))
    });
    told.flatten()
}

/// The id grows with time, so a client that has several streams one after the other can drop an older event.
fn event_of(board: &BoardEvent) -> Event {
    event("board", &Told::Board(board)).id(board.now.to_string())
}

fn event(name: &str, told: &Told<'_>) -> Event {
    events::told(Event::default().event(name), told)
}
