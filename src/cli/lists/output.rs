//! Output of a list: JSON, or words; and words of the staff in arguments.

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

/// A reason or a note: at most 1,000 characters that say something.
pub fn words(text: &str) -> Result<String, String> {
    match !text.trim().is_empty() && text.chars().count() <= 1_000 {
        true => Ok(text.to_owned()),
        false => Err("say it in words, in at most 1,000 characters".to_owned()),
    }
}
