//! Locks in Redis, and what can and can't be expected of them; `docs/locks.md` climbs there step by step.
//!
//! | module | a lock | for |
//! |---|---|---|
//! | [`reentrant`] | a hash, laid out as by Redisson: entered more than once, woken up, fenced, in batches | the service |
//! | [`owner`] | a key with a random value | teaching, and each server of the next one |
//! | [`redlock`] | the same key on most of several servers | when one Redis must not be the only one to know |
//!
//! # Model
//!
//! A lock is a key that names its holder and expires after its *lease*. Who created it holds it; it is renewed at a
//! third of the lease, and every change to it is a script that acts only while the key still names that holder.
//!
//! # Authority
//!
//! Redis decides who holds a lock. The local, monotonic clock is trusted for one thing: to tell when
//! the holder can no longer be *sure*, counted from before the last renewal was sent. At that moment
//! the guard's token is cancelled, whether Redis answers or not.
//!
//! # What each failure does
//!
//! * The holder dies: the lease runs out, and the next one gets the lock.
//! * The holder is paused past its lease: somebody else may hold the lock by then. It learns of it when
//!   it wakes up, but what it had already sent can't be called back. A fencing token lets the resource refuse it.
//! * Redis is away: nobody gets a lock, and holders are told in time that they can't be sure.
//! * Redis forgets (a restart without its data, a fail-over): two may hold one lock.
//!
//! # What is not promised
//!
//! Exclusion under every fault: the list above says where it ends. So a lock here spares double work,
//! and whatever must be right rests on constraints in Postgres.

pub mod owner;
pub mod redlock;
pub mod reentrant;
mod watchdog;
