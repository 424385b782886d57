//! Paths, links and functions that documents and comments name are there; and a translation has the headings of its
//! original.

use std::collections::BTreeSet;

use super::source::{
    File, assert_complaints, exists, files, files_of, no_complaints, occurrences, place, read, rust,
};

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

/// Folders below `src/`, which documents call by their names: `claim/claims.rs`.
const LAYERS: &[&str] = &[
    "cli", "http", "worker", "demo", "operator", "recovery", "payment", "claim", "order", "coupon",
    "fence", "log", "events", "store", "kit", "base",
];

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
    let documents = documents.filter(|file| !file.path.starts_with("tests/tidy"));
    no_complaints(documents.flat_map(stale_paths).collect());
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

/// A claim can be followed through the files: `Type::function` is a function that has that name.
#[test]
fn every_function_on_the_map_is_there() {
    let code = rust(&["src/", "crates/"]);
    let is_there = |function: &str| {
        let declared = format!("fn {function}");
        code.iter().any(|file| occurrences(&file.code, &declared).next().is_some())
    };
    no_complaints(stale_functions(&read("ARCHITECTURE.md"), is_there));
}

fn stale_functions(file: &File, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let spans = file.text.split('`').skip(1).step_by(2);
    let functions = spans.filter_map(|span| {
        let (of, function) = span.split_once("::")?;
        let is_name = function.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        (of.starts_with(char::is_uppercase) && is_name).then_some((span, function))
    });
    let stale = functions.filter(|(_, function)| !is_there(function));
    stale.map(|(span, _)| format!("{}: there is no function `{span}`", file.path)).collect()
}

/// What is to be read in one evening can be.
#[test]
fn an_evening_is_long_enough_for_its_files() {
    let text = read("docs/evening.md").text;
    let rows = text.lines().filter(|row| row.starts_with("| ") && row.contains(" | `"));
    let files: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let lines_of = |path: &&str| {
        let text = read(path).text;
        text.split("#[cfg(test)]").next().map_or(0, |text| text.lines().count())
    };
    let lines: usize = files.iter().map(lines_of).sum();
    assert!(
        (12..=20).contains(&files.len()) && lines <= 3_000,
        "{} files, {lines} lines",
        files.len()
    );
}

/// A translated heading ends with the English one: `## 许可证 <!-- Licence -->`.
#[test]
fn translations_have_the_headings_of_their_originals() {
    let files = files();
    let translations = files.iter().filter_map(|file| {
        let original = read(&format!("{}.md", file.path.strip_suffix(".zh.md")?));
        let differ = headings(&original.text) != headings(&file.text);
        differ.then(|| format!("{}: its headings are not those of {}", file.path, original.path))
    });
    no_complaints(translations.collect());
}

fn headings(text: &str) -> Vec<String> {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        fenced ^= line.trim_start().starts_with("```");
        !fenced && line.starts_with('#')
    });
    let headings = lines.map(|line| {
        let (marks, title) = line.split_once(' ').unwrap_or((line, ""));
        let english = title.split_once("<!-- ").and_then(|(_, rest)| rest.split_once(" -->"));
        format!("{marks} {}", english.map_or(title, |(title, _)| title))
    });
    headings.collect()
}

/// The page that shows a claim names, for each step, the file that does it.
#[test]
fn each_step_of_a_claim_names_a_file_that_is_there() {
    let steps = read("src/claim/trace/steps.rs").text;
    let named: Vec<&str> =
        steps.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(named.len() >= 8, "only {named:?} were found");
    no_complaints(named.iter().filter(|path| !exists(path)).map(ToString::to_string).collect());
}

#[test]
fn the_checkers_see_what_leads_nowhere() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let links = "[a](Cargo.toml) [b](../docs/none.md#x)\n[c](https://x.org/y) [d](#e) [f](none.md)\n[g]: ./none.svg";
    let dead = dead_links(&file("README.md", links));
    assert_complaints(&dead, &["md:1: the link ../docs/none.md#x", "none.md", "./none.svg"]);
    assert_complaints(&dead_links(&file("docs/a.md", "[a](../src/lib.rs)")), &[]);

    let text = "`src/lib.rs:7` `src/none.rs` `a/b` `claim/claims.rs`, `claim/none.rs`\n```\n`src/none.rs`\n```\n\
        `tests/tidy/*.rs` `lua/none/*.lua` `scripts/none check` `src/claim/claims.rs::none` `src/`";
    let stale = stale_paths(&file("README.md", text));
    let expected =
        ["md:1: there is no `src/none.rs`", "`claim/none.rs`", "md:5: there is no `lua/none`"];
    assert_complaints(&stale, &[&expected[..], &["`scripts/none`"]].concat());
    let own = "`src/lib.rs` `lua/owner/renew.lua` `lua/none.lua`";
    let stale = stale_paths(&file("crates/redisson-locks/docs/a.md", own));
    assert_complaints(&stale, &["docs/a.md:1: there is no `lua/none.lua`"]);
    let code = "f(\"`src/none.rs`\");\n    /// See `lua/none.lua`.";
    assert_complaints(&stale_paths(&file("src/a.rs", code)), &["src/a.rs:2: there is no"]);

    let map = file("A.md", "`Claims::claim`, `Claims::gone`, `Kind::Value`, `claim::flash`");
    assert_complaints(&stale_functions(&map, |name| name == "claim"), &["`Claims::gone`"]);
    assert_eq!(headings("# A\n```\n# no\n```\n## 乙 <!-- B -->\n"), ["# A", "## B"]);
}
