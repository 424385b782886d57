//! The files of the repository, and the copy of it that is changed.

use std::collections::BTreeSet;
use std::fs;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path from the root of the repository.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// Reads a file below `root`.
    ///
    /// # Errors
    ///
    /// When it can't be read as text.
    pub fn read(root: &Path, path: &str) -> Result<Self> {
        let text =
            fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// Line of a byte, from 1.
    pub fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    /// Lines of a range.
    pub fn lines(&self, range: &Range<usize>) -> RangeInclusive<usize> {
        self.line(range.start)..=self.line(range.end.saturating_sub(1).max(range.start))
    }
}

/// Paths of all files that git knows or would add.
///
/// # Errors
///
/// When git can't say.
pub fn listed(root: &Path) -> Result<BTreeSet<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args([
        "-c",
        "core.quotePath=false",
        "ls-files",
        "-co",
        "--exclude-standard",
    ]);
    // A hook of git may not decide which files are meant.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        git.env_remove(name);
    }
    let output = git.output().context("running git")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let paths = String::from_utf8(output.stdout)?;
    Ok(paths.lines().filter(|path| root.join(path).is_file()).map(str::to_owned).collect())
}

/// Makes `copy` what `root` is, apart from the files that `changed` gives another text. Only what differs is written:
/// cargo builds again what has changed since it last built there, and nothing else.
///
/// # Errors
///
/// When a file can't be read, written or removed.
pub fn copy(root: &Path, copy: &Path, changed: &[Source]) -> Result<()> {
    let listed = listed(root)?;
    for path in &listed {
        if !changed.iter().any(|source| source.path == *path) {
            let (from, to) = (root.join(path), copy.join(path));
            write(&to, &fs::read(&from).with_context(|| format!("reading {path}"))?)?;
            // Tests run scripts.
            fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
        }
    }
    for source in changed {
        write(&copy.join(&source.path), source.text.as_bytes())?;
    }
    for path in files_below(copy, copy)? {
        let is_changed = changed.iter().any(|source| source.path == path);
        if !listed.contains(&path) && !is_changed {
            fs::remove_file(copy.join(&path)).with_context(|| format!("removing {path}"))?;
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let folder = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))?;
    Ok(())
}

fn files_below(root: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            files.extend(files_below(root, &path)?);
        } else if let Some(path) = path.strip_prefix(root)?.to_str() {
            files.push(path.to_owned());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_script_of_the_copy_can_be_run() {
        let folder = std::env::temp_dir().join(format!("mutants-copy-{}", std::process::id()));
        let (root, to) = (folder.join("root"), folder.join("copy"));
        fs::create_dir_all(&root).expect("a folder can be made");
        let made = Command::new("git").current_dir(&root).args(["init", "--quiet"]).status();
        assert!(made.expect("git is there").success());
        for (name, mode) in [("script", 0o755), ("text", 0o644)] {
            fs::write(root.join(name), name).expect("it can be written");
            fs::set_permissions(root.join(name), Permissions::from_mode(mode)).expect("it is ours");
        }
        copy(&root, &to, &[]).expect("all can be read");
        let mode = |name| fs::metadata(to.join(name)).expect("it is there").permissions().mode();
        assert_eq!([mode("script") & 0o777, mode("text") & 0o777], [0o755, 0o644]);
        fs::remove_dir_all(folder).expect("it is there");
    }

    #[test]
    fn lines_are_counted_from_one() {
        let source = Source { path: "a".into(), text: "x\ny\nz".into() };
        assert_eq!(source.lines(&(0..1)), 1..=1);
        assert_eq!(source.lines(&(0..2)), 1..=1);
        assert_eq!(source.lines(&(2..5)), 2..=3);
    }
}
