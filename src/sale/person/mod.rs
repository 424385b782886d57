//! Data of one user in all stores.
//!
//! # Model
//!
//! A user is a number that the shop's tokens name; neither name nor address stand here. That number is in the user's
//! orders, stock returns and dead letters, in words of comparisons and recoveries, and in Redis as long as a sale is
//! there. Payments, redemptions and entries of the book of changes belong to a user through the order.
//!
//! # Erasing
//!
//! The books keep their part without the person: orders with their prices and times, payments, redemptions, and changes
//! by the staff, none of which says whose they were. All else is deleted. docs/operate.md has the table.
//!
//! The number of a clerk or an administrator stays where that person acted: the book of changes has to name them.
//!
//! # What stands in the way
//!
//! A thing that is under way needs its user: an unpaid, paid or refunding order, an order or claim of which Redis has the buyer,
//! a unit or money on its way back, an open dead letter. Then nothing is erased, and each obstacle is named.
//!
//! # What is not promised
//!
//! A user who claims again is a user again; the shop ends the user's tokens first. Log files of the service, and
//! backups, are the operator's.

// All data of a user, as JSON.
pub mod export;

// Erasing a user.
pub mod erase;

// What Redis has of a user.
mod in_redis;

// What is under way, and keeps a user from being erased.
mod obstacles;
