//! The scripts one by one: each row of a table has what Redis holds, what is called, the reply, and all that changed.

// Keys of one test, and what a script does to them.
mod stage;

// What a stream holds, in words.
mod streams;

// The claim script.
mod claim;

// Order ids of the claim script.
mod order_ids;
