//! The data folder: its lock, its paths, and the folders outside of it.

mod postgres_home;

pub(crate) mod sockets;

mod lock;

mod paths;

pub(crate) use lock::{Folder, Notice, has_owner, read_notice};
pub use lock::{ProcessIds, make_private};
pub(crate) use paths::{log_file, private_folder};
pub(crate) use postgres_home::{PostgresHome, ServerUser};
