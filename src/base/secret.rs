//! Secrets in settings: given in place, or as `@/path`, a file that is read again while the service runs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use secrecy::{ExposeSecret, SecretString};

/// A secret, and the file that it comes from, if any.
#[derive(Clone, Debug)]
pub struct Secret {
    text: SecretString,
    file: Option<PathBuf>,
}

impl Secret {
    /// The secret of a setting with this value, or in the file that the value names.
    ///
    /// # Errors
    ///
    /// When the value names a file that can't be read, or that another user may change.
    pub fn of(value: &str) -> Result<Self, String> {
        match value.strip_prefix('@').filter(|path| path.starts_with('/')) {
            Some(path) => Self::in_file(path.into()),
            None => Ok(value.into()),
        }
    }

    fn in_file(file: PathBuf) -> Result<Self, String> {
        let text = text_of(&file)?;
        Ok(Self { text: text.trim_end_matches(['\r', '\n']).into(), file: Some(file) })
    }

    /// Reads the file again, if there is one. True if the secret has changed.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of); the last secret then stays.
    pub fn read_again(&mut self) -> Result<bool, String> {
        let Some(file) = &self.file else { return Ok(false) };
        let now = Self::in_file(file.clone())?;
        let is_another = now.expose_secret() != self.expose_secret();
        *self = now;
        Ok(is_another)
    }
}

impl ExposeSecret<str> for Secret {
    fn expose_secret(&self) -> &str {
        self.text.expose_secret()
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self { text: text.into(), file: None }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self { text: text.into(), file: None }
    }
}

/// Text of a file that only trusted users may change.
///
/// # Errors
///
/// When the file can't be read, or a user other than root and the process's own may change it.
pub fn text_of(file: &Path) -> Result<String, String> {
    let found = || Ok((fs::metadata(file)?, fs::read_to_string(file)?));
    let (about, text) = found()
        .map_err(|error: std::io::Error| format!("{} can't be read: {error}", file.display()))?;
    let is_ours = about.uid() == 0 || about.uid() == geteuid().as_raw();
    if !is_ours || about.mode() & 0o022 != 0 {
        return Err(format!(
            "{} is a file that another user may change: give it to root or to the user of the service, with mode 0600 (or 0444)",
            file.display()
        ));
    }
    Ok(text)
}
