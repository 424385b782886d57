//! The bench on real services: its figures are true, it leaves nothing behind, and it believes no figures of a service
//! whose stores disagree.

mod bad_input;
mod goals;
mod measured;
mod support;
