//! The two stores: connections, scripts, keys and ids, and the tables that several modules use.
//!
//! Refusals ("sold out") are values; a [`Failure`](crate::store::Failure) means that something is broken and the
//! outcome is unknown. A function has no section `# Errors` if its only error is that a store doesn't answer.

// Items that a job could not deal with, until their next try.
pub mod postponed;

// The audit log: changes that the staff has made.
pub mod audit;

// Names of the jobs.
pub mod job;

// Durability of confirmed claims, and whether Redis can keep it now.
pub mod durability;

// Lanes of an installation, and the identity of its Postgres.
pub mod installation;

// Migrations of the database.
pub mod schema;

// Rights in Redis that the service needs.
pub mod rights;

// Names of the keys in Redis.
pub mod keys;

mod failure;

// The Redis servers, by lane.
pub mod fleet;

// Ids of coupons, users, orders and others.
pub mod ids;

// Locks in Redis: the library `redisson-locks` over this service's connection.
pub mod locks;

// Lua scripts, called by their hash.
pub mod script;

// The connection to Redis, and the identity of its server.
pub mod redis;

// Pools, plans and errors of Postgres.
pub mod postgres;

pub use failure::in_plain_text;
pub use failure::{Failure, REMEDY_OTHER_INSTALLATION, repeated};

use sqlx::PgPool;

use self::fleet::Fleet;
use self::ids::Lane;
use crate::store::redis::Redis;

/// Both stores. A part of the service that must not use Postgres isn't given this.
#[derive(Clone)]
pub struct Stores {
    pub pool: PgPool,
    pub fleet: Fleet,
    pub keys: keys::Keys,
}

impl Stores {
    pub fn redis(&self, lane: Lane) -> &Redis {
        self.fleet.of(lane)
    }
}
