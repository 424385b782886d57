//! Mechanisms that have never heard of a coupon. Each could be lifted out and used elsewhere.

pub mod id;
pub mod jwt;
pub mod locks;
pub mod open_files;
pub mod postgres;
pub mod private_servers;
pub mod rate_limit;
pub mod redis;
pub mod redis_facts;
pub mod script;
pub mod signature;
