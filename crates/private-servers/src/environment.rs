//! The environment of every program that is started here.
//!
//! `/proc/<pid>/environ` tells a process's environment for as long as it lives, and Postgres may run as another user.
//! The own environment may hold secrets. So programs inherit the variables below, those of [`Settings`](crate::Settings), and no others.

use std::ffi::{OsStr, OsString};

/// Variables that a program needs to find its way on the machine, beside those that begin with `LC_`.
const INHERITED: [&str; 9] = [
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
];

/// Variables that every program inherits; `more` are inherited as well. The program's own environment is cleared first.
pub(crate) fn inherited(more: &[OsString]) -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| is_inherited(name) || more.contains(name))
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
        for name in ["PATH", "HOME", "LC_ALL", "LC_TIME", "TZ"] {
            assert!(is_inherited(OsStr::new(name)), "{name}");
        }
        for name in ["A_TOKEN_SECRET", "PGPASSWORD", "PATHS", "path", "", "XLC_ALL"] {
            assert!(!is_inherited(OsStr::new(name)), "{name}");
        }
    }
}
