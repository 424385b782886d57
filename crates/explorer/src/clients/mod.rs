//! Users and an operator: honest clients over HTTP, which keep a history.

// The crowd: users that claim, ask, pay and cancel.
mod crowd;

// The operator: changes of sales.
mod operator;

// Requests and their answers.
mod http;

pub use crowd::{Crowd, ask_all};
pub use http::{Answer, Http};
pub use operator::{Created, Operator};
