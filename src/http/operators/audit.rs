//! The audit log: changes by the staff, for administrators.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::http::auth::Admin;
use crate::http::frame::reply::Json;
use crate::http::page::{List, PageParams};
use crate::http::problem::Problem;
use crate::store::audit::{Action, AuditEntry, Filter};
use crate::store::ids::{AuditId, SubjectId};

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
}

/// A page of the audit log, newest first.
#[derive(Serialize, ToSchema)]
pub struct AuditPage {
    entries: Vec<AuditEntry>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<AuditId>,
}

/// Changes by the staff, newest first.
///
/// Changes over HTTP and by commands, each with the values before and after. Kept for `--records-days`.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "listAudit", tag = "operations", params(Asked, PageParams<AuditId>), security(("admin" = [])),
    responses(
        (status = 200, description = "A page of entries", body = AuditPage),
    ),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    List(asked, page): List<Asked, AuditId>,
) -> Result<Json<AuditPage>, Problem> {
    let Asked { action, subject } = asked;
    let found = app.audit.list(&Filter { action, subject }, page.cursor, page.read_max()).await?;
    let (entries, next_cursor) = page.cut(found, |entry| entry.id);
    Ok(Json(AuditPage { entries, next_cursor }))
}
