//! The book of changes that the staff has made, for administrators.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::base::limits;
use crate::http::auth::Admin;
use crate::http::extract::Params;
use crate::http::frame::reply::Json;
use crate::http::page::{cut_page, page_limit};
use crate::http::problem::Problem;
use crate::sale::audit::{Action, AuditEntry, Filter};
use crate::sale::ids::{AuditId, SubjectId};

/// Filter and position in the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// Only changes of this kind.
    #[param(inline, nullable = false)]
    action: Option<Action>,
    /// Only changes of the coupon, order, dead letter, payment, postponed item or comparison with this id.
    #[param(inline, nullable = false)]
    subject: Option<SubjectId>,
    /// `next_cursor` of the page before; nothing for the first.
    #[param(inline, nullable = false)]
    cursor: Option<AuditId>,
    /// Entries on a page, 1 to 100; 20 if not given.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// A page of the book of changes, newest first.
#[derive(Serialize, ToSchema)]
pub struct AuditPage {
    entries: Vec<AuditEntry>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<AuditId>,
}

/// Changes by the staff, newest first.
///
/// Over HTTP and by commands, each with the values before and after. Kept for `--records-days`.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "listAudit", tag = "operations", params(Asked), security(("admin" = [])),
    responses(
        (status = 200, description = "A page of entries", body = AuditPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(asked): Params<Asked>,
) -> Result<Json<AuditPage>, Problem> {
    let limit = page_limit(asked.limit, limits::PAGE_AUDIT_MAX)?;
    let Asked { action, subject, cursor, .. } = asked;
    let filter = Filter { action, subject };
    let found = app.audit.list(&filter, cursor, limit + 1).await?;
    let (entries, next_cursor) = cut_page(found, limit, |entry| entry.id);
    Ok(Json(AuditPage { entries, next_cursor }))
}
