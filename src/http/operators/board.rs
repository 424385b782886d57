//! The board, as a stream of events, for operators and administrators.

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
use crate::http::problem::Problem;
use crate::sale::board::Watching;
use crate::sale::board::event::BoardEvent;
use crate::sale::board::figures::Past;
use crate::sale::ids::public::PublicIds;

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
/// Server-sent events. The event `past` comes once, with the last five minutes; each event `board` is the whole state,
/// once a second. A fact that isn't known is null. The event `bye` ends the stream.
#[utoipa::path(
    get, path = "/v1/board/live", operation_id = "watchBoard", tag = "operations", security(("operator" = [])),
    responses(
        (status = 200, description = "Events: `past`, then `board` without an end; at last `bye`", body = Told, content_type = "text/event-stream"),
    ),
    extensions(("x-problems" = json!(["too_many_watchers"])), ("x-events" = json!(["past", "board"]))),
)]
pub async fn live(State(app): State<Arc<App>>, _: Operator) -> Result<Response, Problem> {
    let Some(watching) = app.board.watch() else {
        return Err(events::too_many_watchers(
            "as many clients watch as may; come back after Retry-After seconds",
        ));
    };
    Ok(events::reply(boards(watching, app.public_ids.clone()), app.shutdown.stop_token()))
}

/// The past with the first board, then boards.
fn boards(watching: Watching, ids: PublicIds) -> impl Stream<Item = Event> {
    let first_and_then =
        unfold((watching, ids, true), |(mut watching, ids, is_first)| async move {
            let events = if is_first {
                let (before, board) = watching.next().await?;
                vec![event("past", &Told::Past(&before), &ids), event_of(&board, &ids)]
            } else {
                vec![event_of(&*watching.next_newer().await?, &ids)]
            };
            Some((iter(events), (watching, ids, false)))
        });
    first_and_then.flatten()
}

/// The id grows with time, so a client that has several streams one after the other can drop an older event.
fn event_of(board: &BoardEvent, ids: &PublicIds) -> Event {
    event("board", &Told::Board(board), ids).id(board.now.to_string())
}

fn event(name: &str, told: &Told<'_>, ids: &PublicIds) -> Event {
    events::told(Event::default().event(name), ids, told)
}
