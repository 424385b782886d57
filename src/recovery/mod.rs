//! Recovery: compares a closed lane of Redis with Postgres, rebuilds what differs, and opens the lane.
//!
//! # Model
//!
//! One process of the installation leads each server's lanes ([`leader`](crate::recovery::leader)). Once a second, and
//! at once when a process suspects a lane, the leader compares each lane with its approved state ([`crate::fence`]). A
//! lane that differs is closed and recovered:
//!
//! 1. **Fence.** The epoch is raised in Postgres, then in Redis. Each attempt raises it, so two recoveries never work
//!    under the same epoch.
//! 2. **Unwritten claims.** Each living process hands in what it has accepted and not seen committed.
//! 3. **Compare** (`reconcile/compare.rs`). Each sale is read from both stores, order by order. A sale that agrees is
//!    kept; its claims in the log are written later.
//! 4. **Log and harvest** (`harvest.rs`). If a sale differs, the workers first write what is in the order log. Then
//!    buyers and unwritten claims that Postgres doesn't know become orders, and the sale is compared once more.
//! 5. **Build** (`build.rs`). If it still differs, its stock and buyers are built from one snapshot of Postgres, under
//!    new shards, and replace the old ones in one step. The lists of unpaid orders are always rebuilt.
//! 6. **Open.** Postgres first, then Redis. A row of `recoveries` says what was found and done.
//!
//! # Authority
//!
//! Postgres: each of its live orders is a buyer after a recovery. Redis adds only claims for which Postgres has no row,
//! no dead letter, and no newer order of the same user.
//!
//! # What each failure does
//!
//! Each step may be repeated. If the process dies, the lane stays closed, and the next leader starts over with the
//! fence. If a process is paused and wakes up after another recovery has begun, the scripts and Postgres refuse it.
//!
//! * Postgres refuses a harvested claim: the claim becomes a dead letter, and the others become orders.
//! * A sale can't be built, or another session holds its row locked while claims of it wait in the log: the sale is
//!   postponed. It alone stays closed, because it keeps the old epoch.
//! * Postgres refuses a change of one lane, or an unwritten claim: that lane stays as it is, and the leader goes on
//!   with the others.
//!
//! # What is not promised
//!
//! A claim that Redis has lost before it had a row, and whose process has died, is known to nobody. The recovery counts
//! such claims (`unknown`) up to the leader's last check, and can't name them. With an append-only file that is synced
//! once a second, and a process on the same machine, that is up to the last second before a power cut.

// Checks the lanes, and has them recovered.
pub mod leader;

// One recovery of one lane.
mod lane;

// Finds stores that don't belong together.
pub mod apart;

// Recoveries ordered by an operator.
pub mod by_hand;

// Accepted claims that Postgres doesn't know.
mod harvest;

// Builds sales from Postgres.
mod build;

// Builds users' lists of unpaid orders from Postgres.
mod unpaid;

// Retries dead letters.
pub mod retry;

// The record of recoveries.
pub mod records;

// Compares the two stores, and shows gauges of both.
pub mod reconcile;
