//! Mechanisms that have never heard of a coupon. Each could be used in another program.
//!
//! A function whose only error is a `sqlx::Error` or a `RedisError` fails when its server doesn't answer. It has a
//! section `# Errors` only if there is more to say.

// Bearer tokens.
pub mod jwt;

// Signed requests to another server.
pub mod signed_http;

// Bounded requests to another server.
pub mod http_client;

// Hosts that requests may go to.
pub mod public_hosts;

// Signatures of callbacks.
pub mod signature;

// JSON bodies with their entity tags.
pub mod tagged;

// Limits per key and second.
pub mod rate_limit;

// Private servers for demos and tests.
pub mod private_servers;

// The limit on open files.
pub mod open_files;
