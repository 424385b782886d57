//! Slices of load and their figures.

pub mod bench;

pub mod slice;

pub mod cost;

pub mod durable;

pub mod ceiling;

pub mod floor;

pub mod syncs;
