//! The kit: parts that know nothing of sales.

// Tokens that public keys of an issuer's URL verify.
mod key_urls;

// The same by https.
mod key_urls_https;

// Redis by TLS.
mod redis_tls;

// Tokens that public keys verify.
pub mod public_keys;

// The connection to Redis.
mod redis;

// Locks of a batch.
pub mod locks;

// Facts about Postgres.
mod postgres;

// Transactions whose callers are dropped.
mod transactions;
