//! The live state of a sale, as a stream of events.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream::{Stream, unfold};

use crate::app::App;
use crate::coupon::live::{SaleEvent, Watch, Watching};
use crate::http::claims::coupon_not_found;
use crate::http::events;
use crate::http::extract::Id;
use crate::http::frame::caller::Caller;
use crate::http::problem::Problem;
use crate::store::ids::CouponId;

/// Watch a sale: its state now, and whenever it changes.
///
/// Server-sent events. Each event `sale` is the whole state. There is at most one a second, and at least one every five
/// seconds. The event `bye` ends the stream.
#[utoipa::path(
    get, path = "/v1/coupons/{id}/live", operation_id = "watchSale", tag = "coupons",
    params(("id" = CouponId, Path, description = "Id of the coupon")),
    responses(
        (status = 200, description = "Events `sale` with the state, without an end; at last `bye`", body = SaleEvent, content_type = "text/event-stream"),
    ),
    extensions(("x-problems" = json!(["coupon_not_found", "no_sale", "too_many_watchers"])), ("x-events" = json!(["sale"]))),
)]
pub async fn live(
    State(app): State<Arc<App>>,
    Id(coupon): Id<CouponId>,
    Extension(Caller { client, .. }): Extension<Caller>,
) -> Result<Response, Problem> {
    match app.live.watch(coupon, Some(client)).await? {
        Watch::Watching(watching) => Ok(events::reply(states(watching), app.shutdown.stop_token())),
        Watch::NoCoupon => Err(coupon_not_found()),
        Watch::NoSale => {
            let detail = "a regular coupon has no sale, so its state doesn't change by itself";
            Err(Problem::of("no_sale", detail))
        }
        Watch::Full => Err(events::too_many_watchers(
            "as many clients watch as may; ask for the coupon every 10 to 20 seconds instead",
        )),
    }
}

fn states(watching: Watching) -> impl Stream<Item = Event> {
    unfold(watching, |mut watching| async {
        let event = watching.next().await?;
        Some((sale(&event), watching))
    })
}

/// The id grows with time, so a client that reconnects can drop an older event.
fn sale(event: &SaleEvent) -> Event {
    let named = Event::default().event("sale");
    let named = match event.now {
        Some(now) => named.id(now.to_string()),
        None => named,
    };
    events::told(named, event)
}
