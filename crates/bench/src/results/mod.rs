//! All figures of a run, a comparison and a drain: data that the tables show and `--json` writes.

pub mod goals;

pub mod run;

pub mod budget;

pub mod compare;

pub mod drain;

pub mod overload;

pub mod machine;
