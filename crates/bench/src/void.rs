//! A run that says nothing about the service.

/// The run broke its own rules, or the service broke its promises.
#[derive(Debug, thiserror::Error)]
#[error("this run is void: {0}")]
pub struct Void(pub String);
