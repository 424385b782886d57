//! Receipts: claims that this process has promised, until they are committed in Postgres.
//!
//! # Model
//!
//! A 202 exists in Redis alone until a worker has written its row. So each process remembers what it has promised
//! ([`book`]). When a lane is closed, each process hands its receipts in ([`hand_in`]), and the recovery makes orders
//! of those that neither Postgres nor Redis has. So a second that Redis has lost is repaired as long as one of the
//! processes lives that promised it.
//!
//! A receipt is noted before the answer, and the answer is given only if the lane still has the epoch of the call.
//! Otherwise the claim is unknown to its user, who asks again.
//!
//! # When a receipt is dropped
//!
//! A look at the order log finds the last entry; a later look finds that all entries up to it are acknowledged. Then
//! all receipts that were noted before the first look are committed. A look at a Redis that isn't the approved one, or
//! whose lane is closed or gone, asked afterwards, counts for nothing.
//!
//! # What is not promised
//!
//! A process that dies takes its receipts with it. A process that is paused for longer than a recovery waits hands in
//! late; its claims are looked at then, and get what units are left.

// The way from the memory of a process to Postgres.
pub mod hand_in;

// Receipts of all processes, in Postgres.
pub mod table;

// Receipts of this process, in memory.
pub mod book;
