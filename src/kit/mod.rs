//! Mechanisms that have never heard of a coupon. Each could be lifted out and used elsewhere.
//!
//! A function whose only error is a `sqlx::Error` or a `RedisError` fails when its server doesn't answer; `# Errors`
//! stands where there is more to say.

pub mod id;
pub mod jwt;
pub mod lock;
pub mod open_files;
pub mod postgres;
pub mod private_servers;
pub mod rate_limit;
pub mod redis;
pub mod redis_facts;
pub mod script;
pub mod signature;
