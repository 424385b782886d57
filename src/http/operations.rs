//! For operators: liveness, readiness and metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::claim::readiness::{ReadyReport, ReadyStatus};
use crate::http::frame::reply::Json;

/// Whether the process runs.
///
/// Says nothing about the stores: restarting the process wouldn't repair them.
#[utoipa::path(get, path = "/livez", operation_id = "getLiveness", tag = "operations", responses((status = 200, description = "It runs", body = String)))]
pub async fn livez() -> &'static str {
    "ok\n"
}

/// Whether claims should be sent here.
///
/// Each check is ok, or says what is wrong.
#[utoipa::path(
    get, path = "/readyz", operation_id = "getReadiness", tag = "operations",
    responses(
        (status = 200, description = "Ready, or degraded: claims are taken, but something else isn't there", body = ReadyReport),
        (status = 503, description = "No claims, please; the failing checks say why", body = ReadyReport),
    ),
)]
pub async fn readyz(State(app): State<Arc<App>>) -> Response {
    let report = app.readiness.check().await;
    let status = match report.status {
        ReadyStatus::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ReadyStatus::Ready | ReadyStatus::Degraded => StatusCode::OK,
    };
    (status, Json(report)).into_response()
}

/// Metrics in Prometheus's text format.
///
/// docs/metrics.md explains each.
#[utoipa::path(
    get, path = "/metrics", operation_id = "getMetrics", tag = "operations",
    responses((status = 200, description = "Metrics in Prometheus's text format", body = String)),
)]
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], app.metrics.page()).into_response()
}
