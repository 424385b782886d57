//! All that waits for an operator, in one list.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Operator;
use crate::http::extract::Params;
use crate::http::frame::reply::Json;
use crate::http::page::{cut_page, page_limit};
use crate::http::problem::Problem;
use crate::sale::operations::matter::{Matter, MatterKind, Position, PositionText};

/// Filter and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// Only matters of this kind.
    #[param(inline, nullable = false)]
    kind: Option<MatterKind>,
    /// `next_cursor` of the page before; nothing for the first.
    #[param(inline, value_type = Option<PositionText>, nullable = false)]
    cursor: Option<Position>,
    /// Matters on a page, 1 to 100; 20 if not given.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// A page of open matters, by kind, and within a kind newest first.
#[derive(Serialize, ToSchema)]
pub struct MatterPage {
    matters: Vec<Matter>,
    /// `cursor` of the next page; null on the last.
    #[schema(value_type = Option<PositionText>)]
    next_cursor: Option<Position>,
}

/// All that waits for an operator.
///
/// Each matter with its age, its harm, and the steps that settle it. Settled ones are in the lists of their kinds.
#[utoipa::path(
    get, path = "/v1/operations", operation_id = "listOperations", tag = "operations", params(Asked), security(("operator" = [])),
    responses(
        (status = 200, description = "A page of open matters", body = MatterPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Operator,
    Params(asked): Params<Asked>,
) -> Result<Json<MatterPage>, Problem> {
    let limit = page_limit(asked.limit, limits::PAGE_MATTERS_MAX)?;
    let found = app.operations.list(asked.kind, asked.cursor, limit + 1).await?;
    let (matters, next_cursor) = cut_page(found, limit, |matter| matter.position);
    Ok(Json(MatterPage { matters, next_cursor }))
}
