//! The table of promises in docs/guarantees.md names tests, faults and planted bugs that exist, and all planted bugs; and
//! each of their patches applies. `scripts/planted` finds out whether the named tests notice them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::source::{assert_complaints, exists, files_of, no_complaints, read};

const DOCUMENT: &str = "docs/guarantees.md";
const SECTION: &str = "## What holds each promise";
/// Where the faults of the explorer are explained.
const FAULTS: &str = "docs/explorer.md";

#[test]
fn the_table_of_promises_names_what_is_there() {
    let document = read(DOCUMENT).text;
    let section = document.split(SECTION).nth(1).and_then(|rest| rest.split("\n## ").next());
    let patches = files_of(&["tests/planted/"], "patch");
    let bugs: Vec<&str> = patches
        .iter()
        .map(|patch| patch.path.trim_start_matches("tests/planted/").trim_end_matches(".patch"))
        .collect();
    let faults = read(FAULTS).text;
    no_complaints(complaints(section.unwrap_or_default(), &bugs, &faults));
}

/// Of the rows `promise | tests | faults | planted bugs`.
fn complaints(section: &str, bugs: &[&str], faults: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut told = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [_, tests, causes, planted] = cells[..] else {
            complaints.push(format!("{DOCUMENT}: no four cells: {row}"));
            continue;
        };
        let causes = names(causes).filter(|name| !faults.contains(&format!("`{name}`")));
        complaints.extend(names(tests).chain(causes).filter(|name| !is_test(name)).map(stale));
        complaints.extend(names(planted).filter(|name| !bugs.contains(name)).map(stale));
        told.extend(names(planted));
    }
    let untold = bugs.iter().filter(|bug| !told.contains(*bug));
    complaints.extend(untold.map(|bug| format!("{DOCUMENT} lacks `{bug}`")));
    complaints
}

fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn stale(name: &str) -> String {
    format!("{DOCUMENT} names `{name}`, which isn't there")
}

/// `claim::flash` is tests/it/claim/flash.rs, or a folder. A path is looked at by its own law.
fn is_test(name: &str) -> bool {
    let path = format!("tests/it/{}", name.replace("::", "/"));
    name.contains('/') || exists(&format!("{path}.rs")) || exists(&path)
}

#[test]
fn each_planted_bug_applies_and_says_what_it_does() {
    let patches = files_of(&["tests/planted/"], "patch");
    let sources = files_of(&["tests/", "src/", "crates/"], "rs");
    let mut complaints = Vec::new();
    for patch in &patches {
        let head = patch.text.split("\ndiff --git ").next().unwrap_or_default();
        for line in ["Bug: ", "Harm: ", "Tests: "] {
            if !head.lines().any(|head| head.starts_with(line)) {
                complaints.push(format!("{}: its head lacks a line `{line}`", patch.path));
            }
        }
        for test in head.lines().filter(|line| line.starts_with("Tests: ")) {
            let declared = format!("fn {}(", test.rsplit([':', ' ']).next().unwrap_or_default());
            if !sources.iter().any(|file| file.text.contains(&declared)) {
                complaints.push(format!("{}: there is no test {test}", patch.path));
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut apply = Command::new("git");
        apply.args(["apply", "--check", &patch.path]).current_dir(root);
        // Without git, nobody has changed anything.
        if let Ok(output) = apply.output()
            && !output.status.success()
        {
            complaints.push(String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    no_complaints(complaints);
}

#[test]
fn the_checker_sees_missing_and_stale_names() {
    let section = "| promise | tests | faults | planted |\n|---|---|---|---|\n\
        | One | `claim::flash`, `claim::gone` | `redis-kill`, `sun-gone` | `one`, `other` |\n| Two | three |\n";
    let found = complaints(section, &["one", "two"], "| `redis-kill` |");
    let words = ["`claim::gone`", "`sun-gone`", "names `other`", "no four cells", "lacks `two`"];
    assert_complaints(&found, &words);
}
