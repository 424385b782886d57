//! Mechanisms that have never heard of a coupon. Each could be lifted out and used elsewhere.
//!
//! A function whose only error is a `sqlx::Error` or a `RedisError` fails when its server doesn't answer; `# Errors`
//! stands where there is more to say.

// Access tokens.
pub mod jwt;

// Requests to another server, signed.
pub mod signed_http;

// Requests to another server, bounded.
pub mod http_client;

// Signatures of callbacks.
pub mod signature;

// JSON bodies with their entity tags.
pub mod tagged;

// Bounds per key and second.
pub mod rate_limit;

// Private servers for trying and testing.
pub mod private_servers;

// The limit on open files.
pub mod open_files;
