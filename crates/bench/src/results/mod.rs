//! All figures of a run, a comparison and a drain: data that the report shows and `--json` writes.

pub mod run;

pub mod compare;

pub mod drain;

pub mod overload;

pub mod machine;
