//! Data that goes: a user's, on request, and old records by themselves.

// A user's data, handed out and erased.
mod persons;

// Records after their time.
mod records;
