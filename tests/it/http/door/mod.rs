//! The door without a network: requests are handed to it one by one, as a listener does it.

// Scopes of tokens, and a listener that answers no administrator.
mod auth;

// The frame of every request: its limits, its name, the headers of its reply.
mod frame;

// Bounds on how often one client may ask.
mod bounds;

// Counts, times and lines about requests.
mod counts;

// Claims that wait for their rows.
mod claims;

// Orders, and moves of the staff.
mod orders;

// Lists of operators, page by page.
mod lists;

// Operations of the staff on single things.
mod operators;

// The board, as a stream.
mod board;

// Pages for people, and parts of a demo.
mod pages;

use std::net::IpAddr;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, header};
use flash_sale::base::config::Config;
use flash_sale::http::state::HttpState;
use flash_sale::http::{self, Door};
use serde_json::Value;

use crate::support::{Reply, TestApp, bounded, http_state};

/// Address of clients, where no other one is given.
const CLIENT: &str = "192.0.2.7";

/// State that the doors of the service of `app` share, by these settings.
fn state(app: &TestApp, config: &Config) -> HttpState {
    http_state(app.app.clone(), config)
}

/// A door to the service of `app`, by its settings, and changes of them.
fn door(app: &TestApp, change: impl FnOnce(&mut Config)) -> Door {
    let mut config = app.config.clone();
    change(&mut config);
    http::api(&state(app, &config), true)
}

/// A request without a body; "" is no token.
fn request(method: &str, path: &str, token: &str) -> Request<Body> {
    with_text(method, path, token, "")
}

/// A request with a JSON body, unless that is null.
fn with_body(method: &str, path: &str, token: &str, body: &Value) -> Request<Body> {
    match body {
        Value::Null => request(method, path, token),
        body => with_text(method, path, token, &body.to_string()),
    }
}

fn with_text(method: &str, path: &str, token: &str, body: &str) -> Request<Body> {
    let method: Method = method.parse().expect("a method");
    let mut request = Request::builder().method(method).uri(path);
    if !token.is_empty() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    request.body(Body::from(body.to_owned())).expect("a request")
}

/// The same request with one more header.
fn with_header(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().append(name, value.parse().expect("a value"));
    request
}

/// The reply to a client.
async fn told(door: &Door, request: Request<Body>) -> Reply {
    told_to(door, CLIENT, request).await
}

/// The reply to the client with this address.
async fn told_to(door: &Door, client: &str, request: Request<Body>) -> Reply {
    let client: IpAddr = client.parse().expect("an address");
    let reply = bounded("the reply", door.answer(client, request, || false)).await;
    let (parts, body) = reply.into_parts();
    let bytes = bounded("the body", to_bytes(body, usize::MAX)).await.expect("it comes");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Reply { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// The code of a refusal; "" of a success.
fn code(reply: &Reply) -> &str {
    let is_success = (200..300).contains(&reply.status);
    let code = reply.body["code"].as_str().unwrap_or_default();
    assert_eq!(code.is_empty(), is_success, "{reply:?}");
    code
}
