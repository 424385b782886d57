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

// Locks in Redis: the library `redisson-locks` over the connection of this service.
pub mod locks;

// Lua scripts, by their hash.
pub mod script;

// Facts about a Redis server: version, role and persistence.
pub mod redis_facts;

// Rights in Redis.
mod redis_rights;

// The connection to Redis, and the identity of its server.
pub mod redis;

// Advisory locks of Postgres, held by a session of their own.
pub mod session_lock;

// Pools, plans and errors of Postgres.
pub mod postgres;

// What is set on each session of Postgres, and sessions that can't be used any more.
mod postgres_sessions;

// Private servers for trying and testing.
pub mod private_servers;

// The limit on open files.
pub mod open_files;
