//! The environment of every program that is started here.
//!
//! `/proc/<pid>/environ` tells a process's environment for as long as it lives, and Postgres may run as another user.
//! The service's own environment holds its secrets. So programs inherit the variables below and no others.

use std::ffi::{OsStr, OsString};

/// Variables that a program needs to find its way on the machine, beside those that begin with `LC_`.
const INHERITED: [&str; 10] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "TZ",
    // Programs that are installed outside of the system's folders find their libraries by these.
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    // `.ci/run` finds processes that were left behind by this one.
    "FLASH_SALE_CI_RUN",
];

/// What programs inherit of our environment. Clear theirs first.
pub(super) fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| is_inherited(name))
}

fn is_inherited(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    name.starts_with("LC_") || INHERITED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_names_are_inherited() {
        for name in ["PATH", "HOME", "LC_ALL", "LC_TIME", "TZ", "FLASH_SALE_CI_RUN"] {
            assert!(is_inherited(OsStr::new(name)), "{name}");
        }
        for name in ["FLASH_SALE_TOKEN_SECRET", "PGPASSWORD", "PATHS", "path", "", "XLC_ALL"] {
            assert!(!is_inherited(OsStr::new(name)), "{name}");
        }
    }
}
