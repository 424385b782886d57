//! The business: all SQL, all scripts of the sale, and every word of the glossary in ARCHITECTURE.md.
//!
//! Refusals ("sold out") are values; a [`Failure`](crate::sale::Failure) means a fault whose outcome is unknown. A
//! function whose only error is that a store doesn't answer has no section `# Errors`.
//!
//! The rooms stand in reading order, and each uses only those below it (`tests/tidy` checks that).

// The board: all that an operator looks at, over all processes.
pub mod board;

// Data of one user in all stores: handed out, or erased.
pub mod person;

// Old records are deleted.
pub mod retention;

// Operations: all that waits for an operator.
pub mod operations;

// Settled sales leave Redis.
pub mod archive;

// Recovery: a closed lane is compared with Postgres, built anew where it differs, and opened.
pub mod recovery;

// Comparison of the two stores, repairs, and the gauges that show their difference.
pub mod reconcile;

// Statistics of a day.
pub mod statistics;

// Payments, refunds and the gateway.
pub mod payment;

// Storms of a demo: a crowd, and the verdict on what it was told.
pub mod storm;

// Live states of sales, for clients that watch.
pub mod live;

// Claims: from a request to the script's decision.
pub mod claim;

// One claim, followed through this process.
pub mod trace;

// Receipts: claims that this process has promised, until they are committed.
pub mod receipts;

// Orders: from an entry of the log to the end of their life.
pub mod order;

// Coupons and their sales: creation, changes, and the load into Redis.
pub mod coupon;

// The order log: accepted claims on their way to Postgres.
pub mod log;

// Buyers of a sale in Redis, in shards.
pub mod buyers;

// Items that a pass could not deal with.
pub mod postponed;

// Changes that the staff has made.
pub mod audit;

// JSON as Postgres has it, on its way out.
mod stored_json;

// Names of the passes.
pub mod pass;

// Alarm for a sale that Redis has lost.
pub mod loss;

// Fence: epochs of the lanes, which are open or recovering.
pub mod fence;

// Durability of confirmed claims, and whether Redis can keep it now.
pub mod durability;

// Lanes and epoch of an installation.
pub mod installation;

// The schema's version.
pub mod schema;

// Names of the keys in Redis.
pub mod keys;

mod failure;

// Ids of the business.
pub mod ids;

pub use failure::in_plain_text;
pub use failure::{Failure, REMEDY_OTHER_INSTALLATION};

use sqlx::PgPool;

use crate::kit::redis::Redis;

/// The stores. A part that must not see Postgres isn't given this.
#[derive(Clone)]
pub struct Stores {
    /// Postgres.
    pub pool: PgPool,
    /// Redis.
    pub redis: Redis,
    /// Names of the keys in Redis.
    pub keys: keys::Keys,
}
