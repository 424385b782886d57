//! Locks that a holder may enter more than once, laid out as by Redisson: a Java service on the same Redis sees them,
//! waits for them, and is waited for.
//!
//! # Model
//!
//! A lock is a hash of one field: the *holder*, and how often the holder has the lock. A holder is a task, or another unit
//! of work that may enter twice; [`ReentrantLocks::holder`] makes one. Every [`Guard`] is one entry, and ends when it is
//! released or dropped. A waiter tries, subscribes, **tries again now that no message can be missed**, and then sleeps
//! until a message comes or the lease in its way has ended.
//!
//! # Authority
//!
//! Redis decides which holder has a lock, in one script for each change. The local, monotonic clock decides one thing: how
//! long a holder can be *sure*, which is one lease after its last good renewal was sent. Then, or when a renewal says that
//! the lock is no longer the holder's, the guard's token is cancelled. (Redisson's holders aren't told.)
//!
//! # Effect of each failure
//!
//! * The reply to an unlock is lost: the request is sent again, and a latch in Redis makes it repeat its first answer.
//! * The reply to an acquire is lost: an error. If the acquire was executed, the lock is free again when the lease ends,
//!   since no task renews it; a retry by the same holder enters twice and behaves the same.
//! * The future of an acquire is dropped: each try is a task that ends in any case, and a guard without a taker is
//!   dropped, which releases the lock.
//! * The connection that listens breaks: all waiters try again and subscribe anew.
//! * The holder dies: the lease ends. Waiters wake up then by themselves.
//! * The server's clock is set back: the rest of a lease grows by as much. Where a longest lease is set, a client that
//!   finds more left cuts the lease to one of its own; a holder that lives renews it.
//!
//! # What is not promised
//!
//! Fairness, and the exclusion that the crate doesn't promise either. A holder that has lost a lock and enters it again
//! while an earlier guard is still around may leave the lock held until its lease ends; to be safe, ask as a new holder.

// The map, in reading order: each module uses only modules below it.

// The scripts one by one.
#[cfg(test)]
mod scripts;

mod locks;

mod lock;

mod batch;

mod client;

mod renewal;

mod wake;

mod layout;

mod names;

mod settings;

pub use batch::{Batch, BatchGuard};
pub use layout::{Holder, Released, channel, latch_key, token_key};
pub use lock::{Guard, Lock};
pub use locks::ReentrantLocks;
pub use names::Names;
pub use settings::Settings;
