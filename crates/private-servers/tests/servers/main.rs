//! The crate alone: real servers in temporary folders, and keepers that are killed.

mod keeper;
mod pair;
mod support;
mod testing;
