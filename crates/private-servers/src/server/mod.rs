//! The servers: brought up from a plan, asked, and stopped.

pub(crate) mod bring_up;

pub(crate) mod redis;

pub(crate) mod postgres;

mod launch;

pub(crate) mod process;

pub(crate) mod plan;
