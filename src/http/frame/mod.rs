//! The frame of every request, part by part: its bounds, and the headers of its reply.

// How often one client may ask.
pub mod bounds;

// Pages of other origins that may use the API.
pub mod cors;

// Headers that keep browsers from doing harm.
pub mod security;
