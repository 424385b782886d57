//! Ids.

