//! Tables, and their places in an essay.
//!
//! A run writes its tables between two comments of a document, so that no figure is typed in. A check compares what the
//! document has there.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// A document with places that a program writes.
pub struct Essay {
    path: PathBuf,
    text: String,
}

impl Essay {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// When there is no such file.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("{} can't be read: give the path of the essay", path.display())
        })?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// Fails if the document has anything else at this place.
    ///
    /// # Errors
    ///
    /// Names the first line that differs.
    pub fn check(&self, place: &str, content: &str) -> anyhow::Result<()> {
        let (begin, end) = self.place(place)?;
        let shown = self.text[begin..end].trim();
        let differs =
            shown.lines().zip(content.trim().lines()).find(|(shown, found)| shown != found);
        let path = self.path.display();
        if let Some((shown, found)) = differs {
            anyhow::bail!(
                "{path} says\n  {shown}\nand the run found\n  {found}\nrun with --write {path} if the run is right"
            );
        }
        ensure!(
            shown.lines().count() == content.trim().lines().count(),
            "{path} has another number of lines in {place}"
        );
        Ok(())
    }

    /// Leaves out the lines there that begin so: what they tell was not tried.
    ///
    /// # Errors
    ///
    /// When the document lacks the place.
    pub fn leave_out(&mut self, place: &str, start: &str) -> anyhow::Result<()> {
        let (begin, end) = self.place(place)?;
        let kept: Vec<&str> =
            self.text[begin..end].lines().filter(|line| !line.starts_with(start)).collect();
        self.put(place, &kept.join("\n"))
    }

    /// Puts this content there.
    ///
    /// # Errors
    ///
    /// When the document lacks the place.
    pub fn put(&mut self, place: &str, content: &str) -> anyhow::Result<()> {
        let (begin, end) = self.place(place)?;
        self.text.replace_range(begin..end, &format!("\n{}\n", content.trim()));
        Ok(())
    }

    /// Writes the document.
    ///
    /// # Errors
    ///
    /// When the file can't be written.
    pub fn save(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(&self.path, &self.text)?)
    }

    fn place(&self, name: &str) -> anyhow::Result<(usize, usize)> {
        let begin = format!("<!-- {name}: written by the run -->");
        let end = format!("<!-- end of {name} -->");
        let missing = || format!("{} lacks the line `{begin}` or `{end}`", self.path.display());
        let begin_at = self.text.find(&begin).with_context(missing)? + begin.len();
        let end_at = self.text[begin_at..].find(&end).with_context(missing)? + begin_at;
        Ok((begin_at, end_at))
    }
}

/// A table in Markdown.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows.iter().map(|row| line(row)).collect();
    line(&head) + &rule + &rows
}

/// A number as a reader wants it: 12,345, or 1.2 where it is small.
pub fn figure(number: f64) -> String {
    if number.abs() < 10.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{:.0}", number.abs());
    let grouped: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{}", grouped.join(","))
}

/// Date, machine, build and commit of a run, in a sentence.
pub fn provenance() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let build = build();
    let commit = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = commit.ok().filter(|output| output.status.success());
    let commit = commit.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    let date = flash_sale::base::clock::Clock::System.now().format("%Y-%m-%d");
    format!(
        "One run of {date}: {build} of commit {commit},\n{cores} cores for the crowd, the program and both stores, load average {load} at the end."
    )
}

/// The build of this program, in words. Cargo puts a program into a folder that has the name of its profile.
fn build() -> &'static str {
    let program = std::env::current_exe().ok();
    let folder = program.as_deref().and_then(Path::parent).and_then(Path::file_name);
    if cfg!(debug_assertions) {
        "a build without optimisation"
    } else if folder.is_some_and(|folder| folder == "figures") {
        "an optimised build without link-time optimisation"
    } else {
        "an optimised build"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let all = [0.0, 9.94, 10.0, 999.6, 12_345.0, 1_234_567.0, -1_800.0].map(figure);
        assert_eq!(all, ["0.0", "9.9", "10", "1,000", "12,345", "1,234,567", "-1,800"]);
    }

    #[test]
    fn a_place_is_replaced_and_compared_to_the_line() {
        let text = "a\n<!-- x: written by the run -->\nold\n<!-- end of x -->\nb\n".to_owned();
        let mut essay = Essay { path: PathBuf::from("a.md"), text };
        assert!(essay.check("x", "old").is_ok());
        let told = essay.check("x", "new").unwrap_err().to_string();
        assert!(told.contains("old") && told.contains("new"), "{told}");
        assert!(essay.check("x", "old\nmore").is_err());
        essay.put("x", "new\n").unwrap();
        assert!(essay.check("x", "new").is_ok());
        assert!(essay.text.starts_with("a\n") && essay.text.ends_with("\nb\n"));
        assert!(essay.put("y", "").unwrap_err().to_string().contains("a.md lacks"));
    }
}
