#![doc = include_str!("../README.md")]
#![warn(missing_docs, clippy::unwrap_used)]

#[cfg(feature = "testing")]
pub mod testing;

mod keeper;

mod pair;

mod server;

mod programs;

mod folder;

mod environment;

mod settings;

mod error;

pub use error::PrivateServersError;
pub use folder::{ProcessIds, make_private};
pub use keeper::{Place, keep};
pub use pair::{PrivateServers, Sight};
pub use settings::{Settings, Sync};
