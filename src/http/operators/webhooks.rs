//! Endpoints that events are sent to: operators read them, administrators change them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::events::webhooks::Changed;
use crate::events::webhooks::model::{Delivery, NewWebhook, Webhook, WebhookChange};
use crate::http::auth::{Admin, Operator};
use crate::http::extract::{Id, ValidWithLists};
use crate::http::frame::reply::Json;
use crate::http::page::{All, List, PageParams};
use crate::http::problem::Problem;
use crate::store::ids::{DeliveryId, WebhookId};

/// All endpoints, newest first.
#[derive(Serialize, ToSchema)]
pub struct WebhookList {
    webhooks: Vec<Webhook>,
}

/// A page of tries to deliver events, newest first.
#[derive(Serialize, ToSchema)]
pub struct DeliveryPage {
    deliveries: Vec<Delivery>,
    /// `cursor` of the next page; null on the last.
    next_cursor: Option<DeliveryId>,
}

/// Result of a test.
#[derive(Serialize, ToSchema)]
pub struct WebhookTest {
    /// Status of the reply; null if there was none.
    status: Option<u16>,
    /// What was wrong; null if the event was delivered.
    error: Option<String>,
}

/// Endpoints that events are sent to.
///
/// There are 100 at most.
#[utoipa::path(
    get, path = "/v1/webhooks", operation_id = "listWebhooks", tag = "operations", security(("operator" = [])),
    responses(
        (status = 200, description = "All endpoints", body = WebhookList),
    ),
)]
pub async fn list(State(app): State<Arc<App>>, _: Operator) -> Result<Json<WebhookList>, Problem> {
    Ok(Json(WebhookList { webhooks: app.webhooks.list().await? }))
}

/// Send events to an endpoint, from now on.
///
/// They are signed as Standard Webhooks 1.0 says, with the secret in the reply.
#[utoipa::path(
    post, path = "/v1/webhooks", operation_id = "createWebhook", tag = "operations", security(("admin" = [])),
    request_body = NewWebhook,
    responses(
        (status = 201, description = "The endpoint, with its secret", body = Webhook, headers(("location" = String, description = "URL of the endpoint"))),
    ),
    extensions(("x-problems" = json!(["events_off", "too_many_webhooks"]))),
)]
pub async fn create(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    ValidWithLists(new): ValidWithLists<NewWebhook>,
) -> Result<Response, Problem> {
    if !app.feed.is_on() {
        return Err(events_off());
    }
    let webhook = changed(app.webhooks.create(new, &by.actor).await?)?;
    let location = format!("/v1/webhooks/{}", webhook.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(webhook)).into_response())
}

/// One endpoint.
///
/// Its secret isn't told.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}", operation_id = "getWebhook", tag = "operations", security(("operator" = [])),
    params(("id" = WebhookId, Path, description = "Id of the endpoint")),
    responses(
        (status = 200, description = "The endpoint", body = Webhook),
    ),
    extensions(("x-problems" = json!(["webhook_not_found"]))),
)]
pub async fn show(
    State(app): State<Arc<App>>,
    _: Operator,
    Id(webhook): Id<WebhookId>,
) -> Result<Json<Webhook>, Problem> {
    app.webhooks.show(webhook).await?.map(Json).ok_or_else(webhook_not_found)
}

/// Change an endpoint.
///
/// If it is active then, it is tried at once. `resend_from` sends again what was delivered since then, or all events
/// that are kept if nothing was delivered before.
#[utoipa::path(
    patch, path = "/v1/webhooks/{id}", operation_id = "changeWebhook", tag = "operations", security(("admin" = [])),
    params(("id" = WebhookId, Path, description = "Id of the endpoint")),
    request_body = WebhookChange,
    responses(
        (status = 200, description = "The endpoint, with its secret if that is new", body = Webhook),
    ),
    extensions(("x-problems" = json!(["webhook_not_found"]))),
)]
pub async fn change(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(webhook): Id<WebhookId>,
    ValidWithLists(change): ValidWithLists<WebhookChange>,
) -> Result<Json<Webhook>, Problem> {
    changed(app.webhooks.change(webhook, change, &by.actor).await?).map(Json)
}

/// Delete an endpoint.
///
/// The list of its deliveries goes with it.
#[utoipa::path(
    delete, path = "/v1/webhooks/{id}", operation_id = "deleteWebhook", tag = "operations", security(("admin" = [])),
    params(("id" = WebhookId, Path, description = "Id of the endpoint")),
    responses(
        (status = 204, description = "It is deleted"),
    ),
    extensions(("x-problems" = json!(["webhook_not_found"]))),
)]
pub async fn delete(
    State(app): State<Arc<App>>,
    Admin(by): Admin,
    Id(webhook): Id<WebhookId>,
) -> Result<StatusCode, Problem> {
    match app.webhooks.delete(webhook, &by.actor).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(webhook_not_found()),
    }
}

/// Try an endpoint.
///
/// It is sent an event of the type `webhook.test`. The reply says what became of it, within 10 s.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/test", operation_id = "testWebhook", tag = "operations", security(("admin" = [])),
    params(("id" = WebhookId, Path, description = "Id of the endpoint")),
    responses(
        (status = 200, description = "What became of it", body = WebhookTest),
    ),
    extensions(("x-problems" = json!(["webhook_not_found"]))),
)]
pub async fn test(
    State(app): State<Arc<App>>,
    _: Admin,
    Id(webhook): Id<WebhookId>,
) -> Result<Json<WebhookTest>, Problem> {
    let tried = app.webhooks.test(webhook).await?.ok_or_else(webhook_not_found)?;
    Ok(Json(WebhookTest { status: tried.status, error: tried.error }))
}

/// Tries to deliver events to an endpoint, newest first.
///
/// Kept as long as events.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}/deliveries", operation_id = "listWebhookDeliveries", tag = "operations", security(("operator" = [])),
    params(("id" = WebhookId, Path, description = "Id of the endpoint"), PageParams<DeliveryId>),
    responses(
        (status = 200, description = "A page of tries", body = DeliveryPage),
    ),
    extensions(("x-problems" = json!(["webhook_not_found"]))),
)]
pub async fn deliveries(
    State(app): State<Arc<App>>,
    _: Operator,
    Id(webhook): Id<WebhookId>,
    List(All {}, page): List<All, DeliveryId>,
) -> Result<Json<DeliveryPage>, Problem> {
    let found = app.webhooks.deliveries(webhook, page.cursor, page.read_max()).await?;
    let (deliveries, next_cursor) = page.cut(found.ok_or_else(webhook_not_found)?, |it| it.id);
    Ok(Json(DeliveryPage { deliveries, next_cursor }))
}

fn changed(outcome: Changed) -> Result<Webhook, Problem> {
    match outcome {
        Changed::Done(webhook) => Ok(*webhook),
        Changed::NotFound => Err(webhook_not_found()),
        Changed::Refused(reason) => Err(Problem::wrong_member("/url", reason)),
        Changed::TooMany => Err(Problem::of(
            "too_many_webhooks",
            "there are 100 endpoints, which is all there may be; delete one that nobody needs",
        )),
    }
}

fn webhook_not_found() -> Problem {
    Problem::of("webhook_not_found", "there is no endpoint with this id")
}

/// The problem of a service without events.
pub fn events_off() -> Problem {
    Problem::of("events_off", "this service writes no events: --events")
}
