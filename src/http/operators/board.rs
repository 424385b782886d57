//! The board, as a stream of events and as it is now, for operators and administrators.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream::{Stream, unfold};

use crate::app::App;
use crate::demo::board::Watching;
use crate::demo::board::event::BoardEvent;
use crate::http::auth::Operator;
use crate::http::events;
use crate::http::frame::reply::Json;
use crate::http::problem::Problem;

/// Watch the board: all processes, both stores, and everything that waits.
///
/// Server-sent events. Each event `board` is the whole state; there is one a second. A fact that isn't known is null.
/// The event `bye` ends the stream.
#[utoipa::path(
    get, path = "/v1/board/live", operation_id = "watchBoard", tag = "operations", security(("operator" = [])),
    responses(
        (status = 200, description = "Events `board` with the state, without an end; at last `bye`", body = BoardEvent, content_type = "text/event-stream"),
    ),
    extensions(("x-problems" = json!(["too_many_watchers"])), ("x-events" = json!(["board"]))),
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
/// first reply takes a second more. Ask every 10 to 20 seconds.
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

fn boards(watching: Watching) -> impl Stream<Item = Event> {
    unfold(watching, |mut watching| async move {
        let board = watching.next().await?;
        // The id grows with time, so a client that reconnects can drop an older event.
        let event = Event::default().event("board").id(board.now.to_string());
        Some((events::told(event, &*board), watching))
    })
}
