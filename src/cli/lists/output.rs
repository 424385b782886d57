//! Output of a list: JSON, or words.

use std::io::{StdoutLock, Write};

use serde::Serialize;

/// Prints what was found: as JSON, one object a line, or in words; `none` says in words that nothing was.
pub fn print_all<T: Serialize>(
    found: &[T],
    json: bool,
    none: &str,
    print: impl Fn(&mut StdoutLock<'_>, &T) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for one in found {
        match json {
            true => writeln!(out, "{}", serde_json::to_string(one)?)?,
            false => print(&mut out, one)?,
        }
    }
    if found.is_empty() && !json {
        writeln!(out, "{none}")?;
    }
    Ok(())
}
