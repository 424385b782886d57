//! Everything that waits for an operator, in one list.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::http::auth::Operator;
use crate::http::frame::reply::Json;
use crate::http::page::{List, PageParams};
use crate::http::problem::Problem;
use crate::operator::operations::{OpenItem, OpenKind, OpenPlace, OpenPlaceText};

/// Filter and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// Only items of this kind.
    #[param(inline, nullable = false)]
    kind: Option<OpenKind>,
}

/// A page of what waits, kind by kind; within a kind, newest first.
#[derive(Serialize, ToSchema)]
pub struct OpenPage {
    items: Vec<OpenItem>,
    /// `cursor` of the next page; null on the last.
    #[schema(value_type = Option<OpenPlaceText>)]
    next_cursor: Option<OpenPlace>,
}

/// Everything that waits for an operator.
///
/// Each item has its age and advice. An item that has been dealt with leaves the list.
#[utoipa::path(
    get, path = "/v1/operations", operation_id = "listOperations", tag = "operations", params(Asked, PageParams<OpenPlaceText>), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of what waits", body = OpenPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    List(asked, page): List<Asked, OpenPlace>,
) -> Result<Json<OpenPage>, Problem> {
    let found = app.operations.list(asked.kind, page.cursor, page.read_max()).await?;
    let (items, next_cursor) = page.cut(found, |item| item.place);
    Ok(Json(OpenPage { items, next_cursor }))
}
