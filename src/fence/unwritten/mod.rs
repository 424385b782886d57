//! Unwritten claims: claims that this process has accepted, until they are committed in Postgres.
//!
//! # Model
//!
//! An accepted claim exists in Redis alone until a worker has written its row. So each process remembers the claims
//! that it has accepted ([`book`]). When a lane is closed, each process hands its unwritten claims in ([`hand_in`]),
//! and the recovery makes orders of those that neither Postgres nor Redis has. So claims that Redis has lost are
//! restored as long as a process that accepted them lives.
//!
//! An unwritten claim is noted before the answer, and the answer is given only if the lane still has the epoch of the
//! call. Otherwise the outcome is unknown to the user, who asks again.
//!
//! # When an unwritten claim is dropped
//!
//! A check of the order log notes its last entry. Once a later check finds that all entries up to that one are
//! acknowledged, all unwritten claims from before the first check are committed. After each check, Redis is asked about
//! the lane: if the lane is closed or gone, or the server isn't the approved one, no check so far counts.
//!
//! # What is not promised
//!
//! A process that dies takes its unwritten claims with it. A process that is paused for longer than a recovery waits
//! hands in late. Its claims are dealt with then, and get what units are left.

// Hands unwritten claims in, and drops those that are committed.
pub mod hand_in;

// Unwritten claims of all processes, in Postgres.
pub mod table;

// Unwritten claims of this process, in memory.
pub mod book;
