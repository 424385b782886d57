//! The essays keep step with the programs: each quoted line stands in the file that its section names, and each design has
//! a quotation.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of the programs; the essays may name their files without them.
const PROGRAMS: [&str; 3] = [
    "crates/ladders/src/bin/sale_ladder",
    "crates/ladders/src/bin/id_ladder",
    "crates/ladders/src/bin/cache_ladder",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A quotation of an essay: its lines, and the files that its section names. A section begins with bold text.
#[derive(Debug)]
struct Quotation {
    files: Vec<String>,
    lines: Vec<String>,
}

fn quotations(essay: &str) -> Vec<Quotation> {
    essay.split("\n**").flat_map(of_section).collect()
}

fn of_section(section: &str) -> Vec<Quotation> {
    let parts: Vec<&str> = section.split("```").collect();
    let words = parts.iter().step_by(2).flat_map(|text| text.split('`').skip(1).step_by(2));
    let files: Vec<String> =
        words.filter(|word| word.ends_with(".rs")).map(ToOwned::to_owned).collect();
    let quoted = parts
        .iter()
        .skip(1)
        .step_by(2)
        .filter_map(|part| part.strip_prefix("rust\n").or_else(|| part.strip_prefix("lua\n")));
    let trimmed = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect();
    quoted.map(|text| Quotation { files: files.clone(), lines: trimmed(text) }).collect()
}

/// Whether the lines stand in the text one below the other, whatever their indentation.
fn contains(text: &str, lines: &[String]) -> bool {
    let text: Vec<&str> = text.lines().map(str::trim).collect();
    text.windows(lines.len()).any(|window| window == lines)
}

/// The text of a file, and of the scripts that it includes; none if the file isn't one of a ladder.
fn sources(file: &str) -> Option<String> {
    let places = PROGRAMS.map(|folder| root().join(folder).join(file));
    let path = places.into_iter().chain([root().join(file)]).find(|path| path.exists())?;
    let text = read(&path);
    let scripts = text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let folder = path.parent()?;
    let scripts: Vec<String> = scripts.map(|script| read(&folder.join(script))).collect();
    Some(text.clone() + &scripts.join("\n"))
}

fn complaints(essay: &str) -> Vec<String> {
    let quotations = quotations(&read(&root().join(essay)));
    let stale = quotations.iter().filter(|Quotation { files, lines }| {
        !files.iter().filter_map(|file| sources(file)).any(|text| contains(&text, lines))
    });
    let stale =
        stale.map(|quotation| format!("{essay}: no file of the section has this: {quotation:?}"));
    let long = quotations.iter().filter(|quotation| quotation.lines.len() > 3);
    let long = long.map(|quotation| format!("{essay}: quote three lines at most: {quotation:?}"));
    stale.chain(long).collect()
}

#[test]
fn what_the_essays_quote_stands_in_their_files() {
    let essays = ["docs/ladder.md", "docs/ids.md", "docs/cache.md"];
    let complaints: Vec<String> = essays.into_iter().flat_map(complaints).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn each_design_is_quoted() {
    let quotations = quotations(&read(&root().join("docs/ladder.md")));
    let quoted: Vec<&String> =
        quotations.iter().filter_map(|quotation| quotation.files.first()).collect();
    let helpers = ["mod.rs", "lock.rs", "stream.rs", "http.rs"];
    let mut missing = Vec::new();
    for room in ["database", "counters", "queue", "service"] {
        let folder = root().join(PROGRAMS[0]).join(room);
        for entry in fs::read_dir(folder).expect("the room is there") {
            let name = entry.expect("it can be read").file_name().to_string_lossy().into_owned();
            let path = format!("{room}/{name}");
            if !helpers.contains(&name.as_str()) && !quoted.contains(&&path) {
                missing.push(path);
            }
        }
    }
    assert!(missing.is_empty(), "docs/ladder.md quotes nothing of {missing:?}");
}

#[test]
fn each_cache_is_quoted() {
    let quotations = quotations(&read(&root().join("docs/cache.md")));
    let quoted: Vec<&String> = quotations.iter().flat_map(|quotation| &quotation.files).collect();
    let folder = root().join(PROGRAMS[2]).join("rungs");
    let files = fs::read_dir(folder).expect("the room is there");
    let names = files.map(|file| file.expect("it can be read").file_name());
    let paths = names.map(|name| format!("rungs/{}", name.to_string_lossy()));
    let missing: Vec<String> =
        paths.filter(|path| path != "rungs/mod.rs" && !quoted.contains(&path)).collect();
    assert!(missing.is_empty(), "docs/cache.md quotes nothing of {missing:?}");
}

#[test]
fn each_test_that_the_caches_name_is_there() {
    let essay = read(&root().join("docs/cache.md"));
    let named: Vec<&str> =
        essay.split('`').filter(|word| word.contains("::a_") || word.contains("::t")).collect();
    assert!(named.len() >= 3, "{named:?}");
    for test in named {
        let (file, name) = test.rsplit_once("::").expect("a module and a name");
        let path = format!("tests/it/{}.rs", file.replace("::", "/"));
        let declared = format!("async fn {name}() {{");
        assert!(read(&root().join(&path)).contains(&declared), "{path} has no test {name}");
    }
}

/// The rows of the exercises, in both languages: name, change, command, result.
fn exercises(course: &str) -> Vec<Vec<String>> {
    let text = read(&root().join(course));
    let commands = [" | `sale_ladder", " | `id_ladder", " | `cache_ladder", " | `scripts/planted"];
    let runs = |line: &&str| commands.iter().any(|command| line.contains(command));
    let rows = text.lines().filter(|line| line.starts_with("| `")).filter(runs);
    rows.map(|row| {
        row.replace("\\|", "\u{1}")
            .split('|')
            .map(|cell| cell.trim().replace('\u{1}', "|"))
            .collect()
    })
    .collect()
}

#[test]
fn the_course_says_what_its_exercises_do() {
    let script = read(&root().join("scripts/course"));
    for course in ["docs/tutorial.md", "docs/tutorial.zh.md"] {
        let exercises = exercises(course);
        assert_eq!(exercises.len(), 10, "{course}");
        for (place, row) in exercises.iter().enumerate() {
            let name = row[1].trim_matches('`');
            let patch = root().join("tests/course").join(format!("{name}.patch"));
            assert_eq!(patch.exists(), place < 6, "{course}: {name}");
            if !patch.exists() {
                assert!(script.contains(name) && row[3].contains(name), "{course}: {name}");
                assert!(
                    root().join("tests/planted").join(format!("{name}.patch")).exists(),
                    "{name}"
                );
                continue;
            }
            let patch = read(&patch);
            for (header, cell) in [("Run", &row[3]), ("See", &row[4])] {
                let line = format!("{header}: {}\n", cell.trim_matches('`'));
                assert!(patch.contains(&line), "{course}: {name}: {header} is not {cell}");
            }
        }
    }
}

#[test]
fn a_line_that_is_not_there_is_noticed() {
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    assert!(contains("a\n  b\n  c\n", &lines("b\nc")));
    assert!(!contains("a\n  b\n  x\n  c\n", &lines("b\nc")));
    let essay = "x\n**1.** (`a.rs`)\n```rust\nx\n```\nand `b.rs`\n\n**2.**\n```sh\nz\n```\n```rust\ny\nz\n```\n`c.rs`\n";
    let found = quotations(essay);
    assert_eq!(found.len(), 2);
    assert_eq!(
        (&found[0].files[..], &found[0].lines[..]),
        (&lines("a.rs\nb.rs")[..], &lines("x")[..])
    );
    assert_eq!(
        (&found[1].files[..], &found[1].lines[..]),
        (&lines("c.rs")[..], &lines("y\nz")[..])
    );
}
