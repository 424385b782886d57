//! The HTTP door.

// Lists, bodies and documents when all is well.
mod api;

// Operation ids, pages of problems, and refusals that name every fault.
mod contract;

// Input that the API refuses.
pub mod bad_input;

// Pages for people, and their files.
pub mod pages;

// Access tokens.
mod tokens;

// Connections, byte by byte.
mod connections;

// Clients that are slow, silent or gone.
mod slow_clients;

// Lines and metrics about requests.
mod access_log;

// Browsers, and what is on which listener.
mod browsers;

// Clients that ask too often.
mod bounds;

// Clients that hold connections.
pub mod hoarders;

// What replies that nobody reads and requests that are refused cost.
mod costs;

// The book of changes that the staff has made.
mod audit;
