//! Slices of load and their figures; the writer and the claim script by themselves.

pub mod bench;

pub mod slice;

pub mod cost;

pub mod durable;

pub mod script;

pub mod ceiling;

pub mod rows;

pub mod floor;

pub mod syncs;

pub mod weights;

pub mod probe;

pub mod progress;
