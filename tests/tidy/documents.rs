//! Paths and links in documents and comments lead somewhere, and none leads into a user's home.

use std::collections::BTreeSet;
use std::path::Path;

use super::source::{File, assert_complaints, exists, files, files_of, no_complaints, place, read};

/// Documents that have to be there.
const DOCUMENTS: &[&str] = &["README.md", "README.zh.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Folders at the root that a path in backticks may begin with.
const FOLDERS: &[&str] = &[
    "crates",
    "src",
    "lua",
    "migrations",
    "tests",
    "scripts",
    "docs",
    "benches",
    "examples",
    "loadtest",
    "docker",
    ".ci",
    ".sqlx",
];

/// Folders below `src/`, which documents call by their names: `sale/claim/claims.rs`.
const LAYERS: &[&str] = &["cli", "http", "worker", "sale", "kit", "base"];

#[test]
fn the_documents_are_there() {
    for path in DOCUMENTS {
        let lines = read(path).text.lines().count();
        assert!(lines > 10, "{path} has {lines} lines: write it");
    }
}

/// Most bytes of a picture in a document: pages with it are read at once.
const PICTURE_BYTES_MAX: u64 = 200 * 1024;

/// What a reader sees first is the service at work, and not words about it. `make pictures` takes the pictures.
#[test]
fn each_readme_begins_with_pictures_that_are_small() {
    for path in ["README.md", "README.zh.md"] {
        let text = read(path).text;
        let begins: Vec<&str> =
            text.lines().filter(|line| !line.is_empty()).skip(2).take(2).collect();
        for (line, name) in begins.iter().zip(["board", "shop"]) {
            let picture = format!("docs/pictures/{name}.png");
            assert!(line.starts_with(&format!("<img src=\"{picture}\" ")), "{path}: {line}");
            assert!(line.contains("alt=\""), "{path}: the picture {name} has no words");
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(&picture);
            let bytes = file.metadata().expect("`make pictures` takes it").len();
            assert!(bytes <= PICTURE_BYTES_MAX, "{picture}: {bytes} bytes");
        }
    }
}

/// Nothing grows for ever: the document says of each table what bounds it.
#[test]
fn the_bound_of_each_table_is_told() {
    let text = read("docs/operate.md").text;
    let (_, bounds) = text.split_once("### What bounds each table").expect("the section is there");
    let rows = bounds.split("\n#").next().unwrap_or_default().lines();
    let first_columns = rows.filter_map(|row| row.strip_prefix("| `")?.split(" | ").next());
    let told: BTreeSet<&str> =
        first_columns.flat_map(|names| names.trim_end_matches('`').split("`, `")).collect();
    let migrations = files_of(&["migrations/"], "sql");
    assert_eq!(told, super::owners::tables(&migrations));
}

#[test]
fn every_link_leads_somewhere() {
    let files = files();
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    no_complaints(documents.flat_map(dead_links).collect());
}

fn dead_links(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    let definitions = file.text.match_indices("]: ").filter(|(at, _)| {
        let line = file.text[..*at].lines().next_back();
        line.is_some_and(|line| line.starts_with('['))
    });
    let links = file.text.match_indices("](").chain(definitions);
    for (at, link) in links {
        let target = &file.text[at + link.len()..];
        let target = target.split([')', ' ', '\n']).next().unwrap_or_default();
        let path = target.split('#').next().unwrap_or_default();
        let elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
        if !elsewhere && !exists(&super::owners::resolve(&file.path, path)) {
            complaints.push(format!(
                "{}: the link {target} leads nowhere",
                place(&file.path, &file.text, at)
            ));
        }
    }
    complaints
}

#[test]
fn every_path_in_backticks_is_there() {
    let files = files();
    let documents = files
        .iter()
        .filter(|file| [".md", ".rs", ".lua", ".sql"].iter().any(|end| file.path.ends_with(end)));
    no_complaints(documents.filter(|file| !is_own(file)).flat_map(stale_paths).collect());
}

fn stale_paths(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_document = file.path.ends_with(".md");
    let mut fenced = false;
    for (number, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        fenced ^= is_document && line.starts_with("```");
        if fenced || !is_document && !line.starts_with("//") && !line.starts_with("--") {
            continue;
        }
        let spans = line.split('`').skip(1).step_by(2);
        let own = crate_of(&file.path);
        let stale = spans.filter_map(path_of).filter(|path| {
            !exists(path) && !exists(&format!("src/{path}")) && !exists(&format!("{own}{path}"))
        });
        let at = format!("{}:{}", file.path, number + 1);
        complaints.extend(stale.map(|path| format!("{at}: there is no `{path}`")));
    }
    complaints
}

/// The crate of a file, whose own paths begin there: `crates/a/` for `crates/a/src/lib.rs`. Empty for other files.
fn crate_of(path: &str) -> &str {
    let below = path.strip_prefix("crates/").and_then(|below| below.find('/'));
    below.map_or("", |name| &path[..="crates/".len() + name])
}

/// The path that a span names, without what may follow it: arguments, `:line`, `::item`. Of a pattern, its folder.
fn path_of(span: &str) -> Option<&str> {
    let word = span.split_whitespace().next()?;
    let path = word.split([':', ',', '(']).next()?.trim_end_matches(['/', '.', '…']);
    let (first, rest) = path.split_once('/')?;
    let code = [".rs", ".lua", ".sql"].iter().any(|end| path.ends_with(end));
    let known = FOLDERS.contains(&first) || LAYERS.contains(&first) && code;
    if !known {
        return None;
    }
    match rest.find(['*', '{', '<', '…']) {
        Some(pattern) => {
            path[..first.len() + 1 + pattern].rsplit_once('/').map(|(folder, _)| folder)
        }
        None => Some(path),
    }
}

#[test]
fn the_checkers_see_what_leads_nowhere() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let links = "[a](Cargo.toml) [b](../docs/none.md#x)\n[c](https://x.org/y) [d](#e) [f](none.md)\n[g]: ./none.svg";
    let dead = dead_links(&file("README.md", links));
    assert_complaints(
        &dead,
        &[
            "README.md:1: the link ../docs/none.md#x",
            "README.md:2: the link none.md",
            "README.md:3: the link ./none.svg",
        ],
    );
    assert_complaints(&dead_links(&file("docs/a.md", "[a](../src/lib.rs)")), &[]);

    let text = "`src/lib.rs:7` `src/none.rs` `a/b` `sale/claim/claims.rs`, `sale/none.rs`\n```\n`src/none.rs`\n```\n\
        `tests/tidy/*.rs` `lua/none/*.lua` `scripts/none check` `src/sale/claim/claims.rs::none` `src/`";
    let stale = stale_paths(&file("README.md", text));
    let expected = [
        "README.md:1: there is no `src/none.rs`",
        "`sale/none.rs`",
        "README.md:5: there is no `lua/none`",
        "`scripts/none`",
    ];
    assert_complaints(&stale, &expected);
    let own = "`src/lib.rs` `lua/owner/renew.lua` `lua/none.lua`";
    let stale = stale_paths(&file("crates/redisson-locks/docs/a.md", own));
    assert_complaints(&stale, &["docs/a.md:1: there is no `lua/none.lua`"]);
    let code = "f(\"`src/none.rs`\");\n    /// See `lua/none.lua`.";
    assert_complaints(
        &stale_paths(&file("src/a.rs", code)),
        &["src/a.rs:2: there is no `lua/none.lua`"],
    );
}

/// The file that names, for each step of a claim, the file that does it.
const STEPS: &str = "src/sale/trace/steps.rs";

#[test]
fn each_step_of_a_claim_names_a_file_that_is_there() {
    let steps = read(STEPS);
    let named = paths_of_steps(&steps.text);
    assert!(named.len() >= 8, "{STEPS} names {named:?}: a file for each step of a claim");
    no_complaints(missing_files(&steps));
}

fn missing_files(steps: &File) -> Vec<String> {
    let named = paths_of_steps(&steps.text).into_iter();
    let missing = named.filter(|(_, path)| !exists(path));
    missing
        .map(|(at, path)| format!("{}: there is no {path}", place(&steps.path, &steps.text, at)))
        .collect()
}

/// The paths that the arms `Self::Step => "path"` name, each with its place.
fn paths_of_steps(text: &str) -> Vec<(usize, &str)> {
    let arms = text.match_indices("=> \"");
    arms.filter_map(|(at, open)| Some((at, text[at + open.len()..].split('"').next()?))).collect()
}

#[test]
fn the_checker_sees_steps_of_missing_files() {
    let text =
        "match self {\n    Self::A => \"lua/claim.lua\",\n    Self::B => \"lua/none.lua\",\n}";
    let file = File { path: STEPS.to_owned(), text: text.to_owned() };
    assert_complaints(&missing_files(&file), &["steps.rs:3: there is no lua/none.lua"]);
}

/// Folders of people's own files, each with the text that follows.
const HOMES: &[&str] = &["home", "Users", "root", "work"];

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    no_complaints(files().iter().filter(|file| !is_own(file)).flat_map(homes).collect());
}

/// Files of this test, which have to name the paths that they look for.
fn is_own(file: &File) -> bool {
    file.path.starts_with("tests/tidy")
}

/// Finds paths into such folders. `/root` alone is a word about the system.
fn homes(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    for home in HOMES {
        let prefix = format!("/{home}/");
        for (at, _) in file.text.match_indices(&prefix) {
            let before = file.text[..at].chars().next_back();
            let inside = before.is_some_and(|c| c.is_alphanumeric() || "_-.~}*".contains(c));
            let named = file.text[at + prefix.len()..]
                .starts_with(|c: char| c.is_alphanumeric() || c == '.');
            if !inside && named {
                let place = place(&file.path, &file.text, at);
                complaints.push(format!("{place}: {prefix}... is there on one machine only; name it relative to something"));
            }
        }
    }
    complaints
}

#[test]
fn the_checker_sees_homes() {
    let text =
        "see /home/ann/x, `below /root`, https://x.org/work/y,\n$work/pg and /root/.cargo/bin";
    let file = File { path: "docs/a.md".to_owned(), text: text.to_owned() };
    assert_complaints(&homes(&file), &["docs/a.md:1: /home/...", "docs/a.md:2: /root/..."]);
}
