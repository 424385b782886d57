//! The settings of a pair of servers: how much they sync, their name, and variables that they inherit.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::error::PrivateServersError;

/// Default name of a pair.
const NAME: &str = "private";
/// A socket below `/tmp/<name>-<uid>-<hash>/` has to fit into the kernel's limit for the path of a socket.
const NAME_BYTES_MAX: usize = 31;
/// Folder of the homes that root makes for another user.
const HOMES: &str = "/var/lib";

/// How much the servers do to survive a loss of power. Both survive the death of any process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Redis syncs its append-only file before each reply (`appendfsync always`), Postgres before each commit.
    Durable,
    /// For tests: nothing waits for the disk.
    Off,
}

/// How the servers of a folder are started.
///
/// ```
/// use private_servers::{Settings, Sync};
///
/// let settings = Settings::new(Sync::Off).named("web_shop").inheriting("CI_JOB_ID");
/// assert_eq!(settings.name(), "web_shop");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    sync: Sync,
    name: String,
    inherited: Vec<OsString>,
}

impl Settings {
    /// Settings with the name `private`, and servers that inherit no variable beside the usual ones.
    #[must_use]
    pub fn new(sync: Sync) -> Self {
        Self { sync, name: NAME.to_owned(), inherited: Vec::new() }
    }

    /// The same settings with another name: 1 to 31 lower-case letters, digits and underscores, the first one a letter.
    ///
    /// The name is that of the Postgres role and of its database. With hyphens in place of underscores, it begins the
    /// names of the folders outside of the data folder: `/tmp/<name>-<uid>-<hash>/`, `/var/lib/<name>/`.
    ///
    /// A folder keeps the name that its data was made with: [`PrivateServers::start`](crate::PrivateServers::start)
    /// refuses the data of another name, and any name of another form.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The same settings, with one more environment variable that the servers inherit if this process has it. It can be
    /// read by every process of the same user for as long as the servers live, so it must not hold a secret.
    #[must_use]
    pub fn inheriting(mut self, variable: impl AsRef<OsStr>) -> Self {
        self.inherited.push(variable.as_ref().to_owned());
        self
    }

    /// How much the servers sync.
    #[must_use]
    pub fn sync(&self) -> Sync {
        self.sync
    }

    /// Name of the Postgres role and of its database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Variables that the servers inherit beside the usual ones.
    pub(crate) fn inherited(&self) -> &[OsString] {
        &self.inherited
    }

    /// Beginning of the names of folders in `/tmp` that hold sockets.
    pub(crate) fn prefix(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Where root keeps homes that have to be reached by another user.
    pub(crate) fn homes(&self) -> PathBuf {
        PathBuf::from(HOMES).join(self.prefix())
    }

    /// Refuses a name that cannot stand in SQL, a path and a URL as it is.
    pub(crate) fn check_name(&self) -> Result<(), PrivateServersError> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let begins = self.name.starts_with(|c: char| c.is_ascii_lowercase());
        if begins && self.name.len() <= NAME_BYTES_MAX && self.name.chars().all(is_plain) {
            return Ok(());
        }
        Err(PrivateServersError::Name { name: self.name.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_in_sql_and_in_paths_as_it_is() {
        let is_good = |name: &str| Settings::new(Sync::Off).named(name).check_name().is_ok();
        for name in ["a", "private", "flash_sale", "x2", &"n".repeat(NAME_BYTES_MAX)] {
            assert!(is_good(name), "{name}");
        }
        for name in ["", "2x", "_x", "A", "a-b", "a b", "a;b", "ä", &"n".repeat(NAME_BYTES_MAX + 1)]
        {
            assert!(!is_good(name), "{name}");
        }
    }

    #[test]
    fn folders_outside_are_called_after_the_name_with_hyphens() {
        let settings = Settings::new(Sync::Durable).named("web_shop");
        assert_eq!(settings.prefix(), "web-shop");
        assert_eq!(settings.homes(), PathBuf::from("/var/lib/web-shop"));
    }
}
