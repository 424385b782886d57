//! The scripts one by one: each row of a table has what Redis holds, what is called, the reply, and all that changed.

// Keys of one test, and what a script does to them.
mod stage;

// What a stream holds, in words.
mod streams;

// The state of a lane.
mod lanes;

// The claim script.
mod claim;

// Units that come and go without a claim.
mod units;

// The sale in Redis.
mod sales;

// The order log of a lane, its group and its consumers.
mod log;

// Numbers of orders.
mod ids;

// Lists of unpaid orders that a recovery builds.
mod unpaid;
