//! Recovery: a lane of Redis that was closed is compared with Postgres, built anew where it differs, and opened.
//!
//! # Model
//!
//! One process of the installation keeps the lanes ([`keeper`](crate::recovery::keeper)). Once a second, and at once when a process suspects a
//! lane, the keeper compares each lane with its approved state ([`crate::fence`]). A lane that differs is closed
//! and recovered:
//!
//! 1. **Fence.** The epoch is raised in Postgres, then in Redis. Each attempt raises it, so two recoveries never work
//!    under one epoch.
//! 2. **Receipts.** Each living process hands in what it has promised and not seen committed.
//! 3. **Compare** (`reconcile/compare.rs`). Each sale is read in both stores, order by order. One that is the same is kept
//!    as it is, whatever waits in its log.
//! 4. **Log and harvest** (`harvest.rs`). Of a sale that differs, the workers first write what is in the order log. Then
//!    buyers and receipts that Postgres doesn't know become orders, and the sale is compared once more.
//! 5. **Build** (`build.rs`). Stock and buyers of each other sale are built from one snapshot of Postgres, under
//!    shards of their own, and take the place of the old ones in one step. The lists of unpaid orders always are.
//! 6. **Open.** Postgres first, then Redis. A row of `recoveries` says what was found and done.
//!
//! # Authority
//!
//! Postgres: what is a live order there is a buyer afterwards. Redis adds only claims that no row, no dead letter and
//! no newer order of the same user speaks against.
//!
//! # What each failure does
//!
//! Each step may be repeated. A process that dies leaves a closed lane; the next keeper begins again with step 1. A
//! recoverer that was paused, and wakes up after another one has begun, is refused by the scripts and by Postgres.
//!
//! * Postgres refuses a harvested claim: that claim becomes a dead letter, and the others become orders.
//! * A sale can't be built, or another session keeps its row locked while claims of it wait in the log: the sale is
//!   postponed, and stays closed alone, since it keeps the epoch before.
//! * Postgres refuses a change of one lane, or a receipt: that lane stays as it is, and closed lanes are recovered.
//!
//! # What is not promised
//!
//! A claim that was in Redis alone, and that Redis has lost, is not known to anyone: with an append-only file that is
//! synced once a second, that is up to the last second before a power cut.

// The process that looks after the lanes.
pub mod keeper;

// One recovery of one lane.
mod lane;

// Stores that don't belong together.
pub mod apart;

// Recoveries on an operator's word.
pub mod by_hand;

// Promises that Postgres doesn't know.
mod harvest;

// Sales built from Postgres.
mod build;

// Users' lists of unpaid orders, built from Postgres.
mod unpaid;

// Dead letters that are tried again.
pub mod retry;

// The record of recoveries.
pub mod records;

// Comparison of the two stores, and the gauges that show their difference.
pub mod reconcile;
