//! The two stores: their connections, scripts, keys and ids, and what each room keeps there in the same form.
//!
//! Refusals ("sold out") are values; a [`Failure`](crate::store::Failure) means a fault whose outcome is unknown. A
//! function whose only error is that a store doesn't answer has no section `# Errors`.

// Items that a pass could not deal with.
pub mod postponed;

// Changes that the staff has made.
pub mod audit;

// Names of the passes.
pub mod pass;

// Durability of confirmed claims, and whether Redis can keep it now.
pub mod durability;

// Lanes and epoch of an installation.
pub mod installation;

// The schema's version.
pub mod schema;

// Rights in Redis that the service needs.
pub mod rights;

// Names of the keys in Redis.
pub mod keys;

mod failure;

// The servers of Redis, by lane.
pub mod fleet;

// Ids of the business.
pub mod ids;

// Locks in Redis: the library `redisson-locks` over the connection of this service.
pub mod locks;

// Lua scripts, by their hash.
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

/// The stores. A part that must not see Postgres isn't given this.
#[derive(Clone)]
pub struct Stores {
    /// Postgres.
    pub pool: PgPool,
    /// The servers of Redis.
    pub fleet: Fleet,
    /// Names of the keys in Redis.
    pub keys: keys::Keys,
}

impl Stores {
    /// The server of Redis that a lane is on.
    pub fn redis(&self, lane: Lane) -> &Redis {
        self.fleet.of(lane)
    }
}
