//! Claims over HTTP and by the script.

// A crowd that claims at every door at once.
mod crowd;

// Claims on flash coupons, and their repeats.
mod flash;

// Claims on regular coupons, which Postgres decides.
mod regular;

// The claim script against a model.
mod model;

// Claims of the same moment in one call of the script.
mod shared_calls;

// Claims that would only wait are refused.
mod overload;

// Sold-out sales in the memory of a process.
mod sold_out;

// Orders of buyers in the memory of a process.
mod accepted;

// A process that can't hear of units that come back.
mod returns;

// One claim, followed.
mod traced;

// The bound on a user's unpaid orders.
mod hoarding;
