//! Planted bugs: each names its harm and its tests, and stands in the table of CONTRIBUTING.md beside a promise.
//! `scripts/planted` finds out whether the named tests notice them.

use std::collections::BTreeSet;

use super::source::{assert_complaints, files_of, no_complaints, read};

const DOCUMENT: &str = "CONTRIBUTING.md";
const SECTION: &str = "## What holds each promise";

#[test]
fn each_planted_bug_stands_beside_a_promise() {
    let patches = files_of(&["tests/planted/"], "patch");
    let names: BTreeSet<String> = patches.iter().map(|patch| name(&patch.path)).collect();
    let mut complaints = differences(&names, &read(DOCUMENT).text);
    for patch in &patches {
        let head = patch.text.split("\ndiff --git ").next().unwrap_or_default();
        for line in ["Bug: ", "Harm: ", "Tests: "] {
            if !head.lines().any(|head| head.starts_with(line)) {
                complaints.push(format!("{}: its head lacks a line `{line}`", patch.path));
            }
        }
    }
    no_complaints(complaints);
}

fn name(path: &str) -> String {
    path.trim_start_matches("tests/planted/").trim_end_matches(".patch").to_owned()
}

/// Names in backquotes with a hyphen are those of bugs.
fn differences(names: &BTreeSet<String>, document: &str) -> Vec<String> {
    let section = document.split(SECTION).nth(1).and_then(|rest| rest.split("\n## ").next());
    let section = section.unwrap_or_default();
    let told: BTreeSet<String> = section
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.contains('-'))
        .map(str::to_owned)
        .collect();
    let missing = names.difference(&told).map(|name| format!("{DOCUMENT} lacks `{name}`"));
    let stale = told.difference(names).map(|name| format!("{DOCUMENT}: no patch `{name}`"));
    missing.chain(stale).collect()
}

#[test]
fn the_checker_sees_missing_and_stale_names() {
    let names = BTreeSet::from(["one-bug".to_owned()]);
    let document = format!("{SECTION}\n| promise | `other-bug` |\n\n## Next\n`one-bug`\n");
    assert_complaints(
        &differences(&names, &document),
        &["lacks `one-bug`", "no patch `other-bug`"],
    );
}
