//! A document with places for tables: each between two markers. All lines between them are the tool's own, and are written
//! anew by each run.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::cells::Rows;
use flash_sale::base::config::InvalidConfig;

/// Begin and end of a place.
pub type Markers = [&'static str; 2];

/// A document that has places for tables.
pub struct Document {
    path: PathBuf,
    text: String,
}

impl Document {
    /// Reads the document that was named with this flag.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`] if it can't be read, or lacks a marker.
    pub fn read(path: &Path, flag: &str, places: &[Markers]) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            InvalidConfig::new(format!(
                "{}, named with {flag}, can't be read: {error}",
                path.display()
            ))
        })?;
        for markers in places {
            if let Err(missing) = between(&text, *markers) {
                let [begin, end] = markers;
                let message = format!(
                    "{} has no line `{missing}`: a table stands between `{begin}` and `{end}`",
                    path.display()
                );
                return Err(InvalidConfig::new(message).into());
            }
        }
        Ok(Self { path: path.to_owned(), text })
    }

    /// Writes these tables.
    pub fn write(self, tables: &[(Markers, String)]) -> anyhow::Result<()> {
        let put =
            |text: String, (markers, table): &(Markers, String)| replaced(&text, *markers, table);
        let text = tables.iter().fold(self.text, put);
        std::fs::write(&self.path, text)
            .with_context(|| format!("{} can't be written to", self.path.display()))
    }
}

/// A table as documents have it, without padding.
pub fn markdown(rows: &Rows) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if at == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
        }
    }
    text
}

/// The place between two markers, without them; or the marker that is missing.
pub fn between(text: &str, [begin, end]: Markers) -> Result<&str, &'static str> {
    let from = text.find(begin).ok_or(begin)? + begin.len();
    let length = text[from..].find(end).ok_or(end)?;
    Ok(&text[from..from + length])
}

fn replaced(text: &str, markers: Markers, with: &str) -> String {
    match between(text, markers) {
        Ok(old) => {
            let from = old.as_ptr() as usize - text.as_ptr() as usize;
            format!("{}\n\n{with}\n{}", &text[..from], &text[from + old.len()..])
        }
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Markers = ["<!-- begin -->", "<!-- end -->"];

    #[test]
    fn what_stands_between_the_markers_is_replaced_and_nothing_else() {
        let [begin, end] = PLACE;
        let text = format!("before\n{begin}\nold\n{end}\nafter\n");
        let once = replaced(&text, PLACE, "| new |\n");
        assert_eq!(once, format!("before\n{begin}\n\n| new |\n\n{end}\nafter\n"));
        assert_eq!(replaced(&once, PLACE, "| new |\n"), once);
        assert_eq!(between("nothing", PLACE), Err(begin));
        assert_eq!(between(begin, PLACE), Err(end));
    }
}
