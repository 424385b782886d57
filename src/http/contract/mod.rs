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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part of the finished document that no attribute of a handler says.
    #[test]
    fn a_document_is_finished_in_all_its_parts() {
        let reply = json!({"description": "It", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Run"}}}});
        let operation = json!({"operationId": "getComparison", "responses": {"200": reply}, "x-problems": ["run_not_found"]});
        let new_coupon = json!({"type": "object", "required": ["kind"], "properties": {}});
        let run =
            json!({"type": "object", "properties": {"finished_at": {"type": ["string", "null"]}}});
        let openapi: OpenApi = serde_json::from_value(json!({
            "openapi": "3.1.0",
            "info": {"title": "t", "version": "1"},
            "paths": {"/v1/runs": {"get": operation}},
            "components": {"schemas": {"Run": run, "NewCoupon": new_coupon}},
        }))
        .expect("a document");
        let document = document(&openapi);
        let components = &document["components"];
        let schemes = components["securitySchemes"].as_object().expect("schemes");
        let names: Vec<&str> = schemes.keys().map(String::as_str).collect();
        assert_eq!(names, ["admin", "clerk", "operator", "signature", "user"]);
        assert_eq!(components["headers"]["RetryAfter"]["schema"]["type"], "integer");
        assert_eq!(components["schemas"]["NewCoupon"]["discriminator"]["propertyName"], "kind");
        assert_eq!(components["schemas"]["Run"]["required"], json!(["finished_at"]));
        assert!(components["responses"]["RunNotFound"].is_object(), "{components}");
        let operation = &document["paths"]["/v1/runs"]["get"];
        assert_eq!(operation["security"], json!([]));
        let example = &operation["responses"]["200"]["content"]["application/json"]["example"];
        assert!(example["run_id"].is_string(), "{example}");
    }
}
