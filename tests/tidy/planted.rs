//! Headers of planted bugs, and the table of CONTRIBUTING.md, which lists exactly these. `scripts/planted` finds out
//! whether the named tests notice them.

use super::source::{File, assert_complaints, files_of, no_complaints, read};

/// Document with the table of bugs.
const DOCUMENT: &str = "CONTRIBUTING.md";
const SECTION: &str = "## Planted bugs";

#[test]
fn the_table_of_planted_bugs_is_what_the_patches_say() {
    let patches = files_of(&["tests/planted/"], "patch");
    no_complaints(differences(&patches, &read(DOCUMENT)));
}

fn differences(patches: &[File], document: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut told = Vec::new();
    for patch in patches {
        match row(patch) {
            Ok(row) => told.push(row),
            Err(complaint) => complaints.push(complaint),
        }
    }
    let rows = rows(&document.text);
    let missing = told.iter().filter(|row| !rows.contains(&row.as_str()));
    complaints.extend(missing.map(|row| format!("{DOCUMENT} lacks this row: {row}")));
    let stale = rows.iter().filter(|row| !told.iter().any(|told| told == *row));
    complaints.extend(stale.map(|row| format!("{DOCUMENT} has a row that no patch has: {row}")));
    complaints
}

/// The patch's row of the table: its name, the harm, and the tests.
fn row(patch: &File) -> Result<String, String> {
    let path = &patch.path;
    let (header, _) = patch.text.split_once("\ndiff --git ").ok_or(format!("{path}: no diff"))?;
    let values = |name: &str| -> Vec<&str> {
        let lines = header.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        lines.collect()
    };
    for name in ["Bug", "Harm"] {
        let [sentence] = values(name)[..] else {
            return Err(format!("{path}: its header has one line `{name}: ...`"));
        };
        if !sentence.ends_with('.') {
            return Err(format!("{path}: `{name}:` is one sentence, with a full stop"));
        }
    }
    let tests = values("Tests");
    let names: Option<Vec<String>> = tests.iter().map(|test| name_of(test)).collect();
    match names {
        Some(names) if !names.is_empty() => {
            let bug = path.trim_start_matches("tests/planted/").trim_end_matches(".patch");
            Ok(format!("| `{bug}` | {} | {} |", values("Harm")[0], names.join(", ")))
        }
        _ => {
            Err(format!("{path}: its header has lines `Tests: --test <target> <name of one test>`"))
        }
    }
}

/// `--test it worker::x` is `worker::x`.
fn name_of(test: &str) -> Option<String> {
    let (target, name) = test.rsplit_once(' ')?;
    target.starts_with("--").then(|| format!("`{name}`"))
}

/// The rows of the section's table, without its head.
fn rows(document: &str) -> Vec<&str> {
    let section = document.split(SECTION).nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter(|line| line.starts_with("| `")).collect()
}

#[test]
fn the_checker_sees_what_patches_and_table_lack() {
    let patch = |path: &str, header: &str| File {
        path: format!("tests/planted/{path}.patch"),
        text: format!("{header}\ndiff --git a/a b/a\nHarm: no.\n"),
    };
    let good = "Bug: it does x.\nHarm: y is lost.\nTests: --test it a::b\nTests: --lib c\n";
    let patches = [
        patch("good", good),
        patch("no-harm", "Bug: it does x.\nTests: --lib a\n"),
        patch("no-stop", "Bug: it does x\nHarm: y.\nTests: --lib a\n"),
        patch("no-tests", "Bug: it does x.\nHarm: y.\n"),
        patch("no-target", "Bug: it does x.\nHarm: y.\nTests: a\n"),
    ];
    let document = |rows: &str| File {
        path: DOCUMENT.to_owned(),
        text: format!(
            "| `z` | |\n{SECTION}\n\n| bug | harm |\n|---|---|\n{rows}\n## Next\n| `x` | |"
        ),
    };
    let headers = ["no-harm.patch", "no-stop.patch", "no-tests.patch", "no-target.patch"];
    let right = document("| `good` | y is lost. | `a::b`, `c` |\n");
    assert_complaints(&differences(&patches, &right), &headers);

    let wrong = document("| `good` | z is lost. | `a::b`, `c` |\n");
    let complaints = differences(&patches[..1], &wrong);
    assert_complaints(
        &complaints,
        &["lacks this row: | `good` | y is lost.", "has a row that no patch has: | `good` | z"],
    );
}
