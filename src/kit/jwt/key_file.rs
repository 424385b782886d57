//! A key set in a file.
//!
//! The file is read again and again, so keys can be changed while the service runs: the issuer's key set is put there by
//! a program that fetches it. A file that can't be used changes nothing, and is logged once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use arc_swap::ArcSwap;

use super::key_set::KeySet;
use crate::base::secret::text_of;

/// The keys of a file.
pub struct KeyFile {
    file: PathBuf,
    /// Text of the file when it was last looked at, or the fault of that look.
    seen: Mutex<Result<String, String>>,
    keys: ArcSwap<KeySet>,
}

impl KeyFile {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// When the file can't be read, or another user may change it, or it has no key for RS256, ES256 or EdDSA.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = text_of(file).map_err(anyhow::Error::msg)?;
        let keys = KeySet::parse(text.as_bytes()).with_context(|| format!("{}", file.display()))?;
        Ok(Self {
            file: file.into(),
            seen: Mutex::new(Ok(text)),
            keys: ArcSwap::from_pointee(keys),
        })
    }

    /// The keys.
    pub fn keys(&self) -> Arc<KeySet> {
        self.keys.load_full()
    }

    /// Reads the file again. If that fails, the last keys stay.
    pub fn read_again(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let found = text_of(&self.file);
        if found == *seen {
            return;
        }
        match found.as_deref().map(|text| KeySet::parse(text.as_bytes())) {
            Ok(Ok(keys)) => {
                tracing::info!(file = %self.file.display(), "the file with the keys of tokens has been read again; {keys}");
                self.keys.store(Arc::new(keys));
            }
            Ok(Err(error)) => self.tell(&format!("{error:#}")),
            Err(error) => self.tell(error),
        }
        *seen = found;
    }

    fn tell(&self, error: &str) {
        tracing::warn!(file = %self.file.display(), error, "the public keys of tokens can't be read; the last ones stay");
    }
}
