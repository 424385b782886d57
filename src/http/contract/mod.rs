//! The contract: what `/openapi.json` says beyond the attributes of the handlers, and the same rules held against bodies.

// Problems, headers and codes of each operation.
mod operations;

// Examples of replies.
mod examples;

// Bodies, held against their schemas.
pub mod check;

// Bodies as they are read: the rules of JSON that hold for every type.
pub mod json;

// Schemas, beyond what their types say.
mod schemas;

// Paths with a rule of their own.
pub mod paths;

use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

/// The finished document.
pub fn document(openapi: &OpenApi) -> Value {
    let mut document = serde_json::to_value(openapi).expect("a document is JSON");
    document["components"]["securitySchemes"] = security_schemes();
    document["components"]["headers"] = operations::headers();
    operations::complete(&mut document);
    schemas::complete(&mut document["components"]["schemas"]);
    schemas::complete_replies(&mut document["components"]["schemas"]);
    examples::add(&mut document);
    document
}

fn security_schemes() -> Value {
    let token = |description: &str| json!({"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": description});
    json!({
        "user": token("A token of any user: `sub` is the user's id."),
        "clerk": token("A token with `role: \"clerk\"`, or `operator` or `admin`."),
        "operator": token("A token with `role: \"operator\"`, or `admin`."),
        "admin": token("A token with `role: \"admin\"`."),
        "signature": {
            "type": "apiKey", "in": "header", "name": "X-Signature",
            "description": "HMAC-SHA256 of the bytes of the body with the secret that gateway and service share, in hexadecimal.",
        },
    })
}
