//! Lines that have changed since a commit.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Lines of the working tree that differ from a commit.
#[derive(Debug, Default)]
pub struct Changed(HashMap<String, Vec<RangeInclusive<usize>>>);

impl Changed {
    /// The lines that `git diff` names.
    ///
    /// # Errors
    ///
    /// When git doesn't know the commit.
    pub fn since(root: &Path, commit: &str) -> Result<Self> {
        let mut git = Command::new("git");
        git.current_dir(root).args(["diff", "--no-color", "--no-ext-diff", "--no-renames", "-U0"]);
        git.args([commit, "--", "src", "lua", "crates"]);
        let output = git.output().context("running git")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git diff {commit}: {errors}");
        Ok(Self::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    fn parse(diff: &str) -> Self {
        let mut changed = Self::default();
        let mut file = String::new();
        for line in diff.lines() {
            if let Some(path) = line.strip_prefix("+++ b/") {
                path.clone_into(&mut file);
            } else if let Some(lines) = line.strip_prefix("@@ ").and_then(new_lines) {
                changed.0.entry(file.clone()).or_default().push(lines);
            }
        }
        changed
    }

    /// Whether any of these lines has changed.
    pub fn touches(&self, file: &str, lines: &RangeInclusive<usize>) -> bool {
        let overlaps = |changed: &RangeInclusive<usize>| {
            changed.start() <= lines.end() && lines.start() <= changed.end()
        };
        self.0.get(file).is_some_and(|changed| changed.iter().any(overlaps))
    }
}

/// The new lines of `-7,2 +7,3 @@`. Where lines were only taken out, those on both sides of the gap.
fn new_lines(header: &str) -> Option<RangeInclusive<usize>> {
    let new = header.split(' ').nth(1)?.strip_prefix('+')?;
    let (begin, count) = new.split_once(',').unwrap_or((new, "1"));
    let (begin, count): (usize, usize) = (begin.parse().ok()?, count.parse().ok()?);
    Some(if count == 0 { begin..=begin + 1 } else { begin..=begin + count - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_name_lines() {
        let diff = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1 @@ fn f() {\n-a\n+b\n@@ -9,2 +9,3 @@\n\
            +++ c\n@@ -30,2 +31,0 @@\n--- a/lua/b.lua\n+++ b/lua/b.lua\n@@ -0,0 +1,2 @@\n";
        let changed = Changed::parse(diff);
        for (file, lines, expected) in [
            ("src/a.rs", 1..=1, true),
            ("src/a.rs", 2..=8, false),
            ("src/a.rs", 8..=20, true),
            ("src/a.rs", 12..=30, false),
            ("src/a.rs", 32..=40, true),
            ("lua/b.lua", 2..=2, true),
            ("lua/c.lua", 2..=2, false),
        ] {
            assert_eq!(changed.touches(file, &lines), expected, "{file} {lines:?}");
        }
    }
}
