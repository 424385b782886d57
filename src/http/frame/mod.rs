//! The frame of every request, part by part: its bounds, the headers of its reply, its time and its line in the log.

// How often one client may ask.
pub mod bounds;

// Pages of other origins that may use the API.
pub mod cors;

// Headers that keep browsers from doing harm.
pub mod security;

// JSON replies.
pub mod reply;

// The token of a request.
pub mod bearer;

// Names of routes, and the times of each.
pub mod routes;

// Lines about requests.
pub mod access_log;
