//! Paths in the data folder, and folders that only their owner may enter.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::{PrivateServersError, io_error};

/// The log file of a program, by its short name.
pub(crate) fn log_file(dir: &Path, program: &str) -> PathBuf {
    dir.join(format!("{program}.log"))
}

/// Makes `path` a folder that only its owner may enter, if there is nothing yet.
pub(crate) fn private_folder(path: &Path) -> Result<(), PrivateServersError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(io_error("create", path)(error))
        }
        _ => Ok(()),
    }
}
