//! Style of the Rust code that clippy knows nothing of. `Cargo.toml` and `clippy.toml` have the rest: no `unwrap`, no
//! silenced lint without a reason, no function of more than 70 lines.

use std::collections::BTreeMap;

use super::source::{File, Rust, assert_complaints, files, no_complaints, occurrences, rust};

/// Process-wide values that there may be: file and name.
const STATICS: &[(&str, &str)] = &[
    ("src/main.rs", "ALLOCATOR"),
    ("src/store/schema.rs", "MIGRATOR"),
    // Made once from constants, and never changed.
    ("src/http/problem/kinds.rs", "TABLE"),
    ("crates/bench/src/main.rs", "ALLOCATOR"),
];

#[test]
fn nothing_is_process_wide() {
    let mut files = rust(&["src/", "crates/"]);
    files.retain(|file| {
        let is_product = file.path.starts_with("src/") || file.path.contains("/src/");
        is_product && !file.path.contains("/src/testing/")
    });
    no_complaints(files.iter().flat_map(statics).collect());
}

fn statics(file: &Rust) -> Vec<String> {
    let mut complaints = Vec::new();
    for word in ["static", "thread_local!"] {
        let items = occurrences(&file.product, word);
        for at in items.filter(|&at| !file.product[..at].ends_with('\'')) {
            let rest = file.product[at + word.len()..].trim_start();
            let name = rest.split(':').next().unwrap_or_default();
            if !STATICS.contains(&(file.path.as_str(), name)) {
                let place = file.place(at);
                complaints.push(format!("{place}: `{word} {name}` is shared by the whole process; make it a field and pass it in"));
            }
        }
    }
    complaints
}

/// What others have written into the stores would act in a terminal (`src/base/plain_text.rs`).
#[test]
fn commands_print_by_a_writer_that_escapes() {
    let files = rust(&["src/cli/"]);
    let printed = files.iter().flat_map(|file| {
        occurrences(&file.product, " println!").map(|at| format!("{}: use say!", file.place(at)))
    });
    no_complaints(printed.collect());
}

/// utoipa puts all schemas into one map: of two with one name, the later one takes the place of the other, without a word.
#[test]
fn no_two_schemas_of_the_contract_have_one_name() {
    no_complaints(schemas_with_one_name(&rust(&["src/"])));
}

fn schemas_with_one_name(files: &[Rust]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in files {
        for at in occurrences(&file.product, "ToSchema") {
            if let Some(name) = schema_name(&file.product, at) {
                places.entry(name).or_default().push(file.place(at));
            }
        }
    }
    let twice = places.iter().filter(|(_, places)| places.len() > 1);
    twice
        .map(|(name, places)| format!("`{name}` is the schema at {places:?}: rename one"))
        .collect()
}

/// The name in the contract of the type whose derive is at this place; `None` if there is no derive.
fn schema_name(code: &str, at: usize) -> Option<&str> {
    let attribute = code[..at].rfind("#[")?;
    if !code[attribute..at].starts_with("#[derive(") || code[attribute..at].contains(']') {
        return None;
    }
    let rest = &code[at..];
    let (head, after) = ["struct ", "enum "]
        .iter()
        .filter_map(|keyword| rest.split_once(keyword))
        .min_by_key(|(head, _)| head.len())?;
    let renamed = head.split_once("#[schema(as = ").map(|(_, name)| name);
    renamed.unwrap_or(after).split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Nothing else ends a test that waits for ever, or says which one that is.
#[test]
fn unit_tests_that_await_are_bounded() {
    let files = rust(&["src/", "crates/"]).into_iter();
    let files = files.filter(|file| file.path.starts_with("src/") || file.path.contains("/src/"));
    no_complaints(files.flat_map(|file| unbounded_tests(&file)).collect());
}

fn unbounded_tests(file: &Rust) -> Vec<String> {
    let is_bounded = |at: &usize| {
        let body = file.code[*at..].split_once('{').map_or("", |(_, body)| body.trim_start());
        body.starts_with("bound_this_test();")
    };
    let tests = file.code.match_indices("#[tokio::test").map(|(at, _)| at);
    let unbounded = tests.filter(|at| !is_bounded(at));
    unbounded.map(|at| format!("{}: begin with `bound_this_test();`", file.place(at))).collect()
}

#[test]
fn every_file_begins_with_what_it_is_for() {
    no_complaints(files().iter().filter_map(headless).collect());
}

/// Beginning of a library whose documentation is its README.
const README: &str = "#![doc = include_str!(\"../README.md\")]";

fn headless(file: &File) -> Option<String> {
    let (_, extension) = file.path.rsplit_once('.')?;
    let begins = match extension {
        "rs" if file.text.starts_with(README) => README,
        "rs" => "//!",
        "lua" if file.text.starts_with("#!") => "#!lua",
        "lua" | "sql" => "-- ",
        _ => return None,
    };
    let path = &file.path;
    (!file.text.starts_with(begins))
        .then(|| format!("{path}:1: begin with `{begins}` and what the file is for"))
}

/// Largest number of files in one folder, its map included; more are folders.
const FOLDER_FILES_MAX: usize = 15;

#[test]
fn no_folder_is_crowded() {
    let files = rust(&["src/", "crates/", "tests/it/"]);
    let mut counts = BTreeMap::new();
    for (folder, _) in files.iter().filter_map(|file| file.path.rsplit_once('/')) {
        *counts.entry(folder).or_insert(0) += 1;
    }
    counts.retain(|_, count| *count > FOLDER_FILES_MAX);
    assert!(counts.is_empty(), "{FOLDER_FILES_MAX} files are the limit; make folders: {counts:?}");
}

#[test]
fn modules_lie_where_their_names_say() {
    let files = rust(&["src/", "crates/"]);
    let paths = files.iter().flat_map(|file| {
        file.code.match_indices("#[path").map(|(at, _)| format!("{}: move it", file.place(at)))
    });
    no_complaints(paths.collect());
}

#[test]
fn the_checkers_see_bad_habits() {
    let text =
        "static ALLOCATOR: A = A;\nfn f(x: &'static str) {\n    static mut COUNT: u8 = 0;\n}";
    let found = statics(&Rust::new("src/main.rs", text));
    assert_complaints(&found, &["src/main.rs:3: `static mut COUNT`"]);

    let one =
        Rust::new("src/a.rs", "#[derive(ToSchema)]\npub struct Step<T>(T);\nuse utoipa::ToSchema;");
    let text = "#[derive(Clone, ToSchema)]\n#[serde(x)]\nenum Step {}\n#[derive(ToSchema)]\n#[schema(as = Other)]\nstruct Page {}";
    assert_complaints(&schemas_with_one_name(&[one, Rust::new("src/b.rs", text)]), &["`Step`"]);

    let bounded = "#[tokio::test]\nasync fn a() {\n    bound_this_test();\n    b().await;\n}\n";
    let unbounded = "#[tokio::test(start_paused = true)]\nasync fn c() {\n    b().await;\n}\n";
    let file = Rust::new("src/a.rs", &format!("{bounded}{unbounded}"));
    assert_complaints(&unbounded_tests(&file), &["src/a.rs:6"]);

    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    assert!(headless(&file("src/a.rs", "use x;\n//! late\n")).is_some());
    assert_eq!(headless(&file("lua/a.lua", "#!lua flags=allow-oom\n-- Counts.\n")), None);
}
