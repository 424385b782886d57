//! Data that goes: old orders and records.

// Old orders are deleted, and nothing brings them back.
mod orders;

// Records after their time.
mod records;
