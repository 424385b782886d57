//! Style of the Rust code.

use std::collections::BTreeMap;

use super::source::{
    File, Rust, assert_complaints, block_end, files, no_complaints, occurrences, rust,
};

/// All Rust files.
const RUST: &[&str] = &["src/", "crates/", "tests/", "examples/", "benches/", "build.rs"];

const MAIN_LINES_MAX: usize = 29;
const FUNCTION_LINES_MAX: usize = 70;
const HANDLER_LINES_MAX: usize = 30;

/// Shortcuts that product code doesn't take, each with its remedy.
const SHORTCUTS: &[(&str, &str)] = &[
    (".unwrap()", "handle it, or `expect` it with the reason why it can't happen"),
    ("dbg!", "take it out"),
    ("todo!", "do it"),
    ("unimplemented!", "do it, or leave it out"),
    ("tokio::spawn", "give the task an owner: `Shutdown::spawn`, `Tasks::spawn`"),
    ("tokio::task::spawn", "give the task an owner: `Shutdown::spawn`, `Tasks::spawn`"),
    ("thread_local!", "make it a field of what uses it"),
];

/// Shortcuts that are taken all the same: file and shortcut, with the reason beside the code.
const TAKEN: &[(&str, &str)] = &[("src/kit/postgres.rs", "tokio::spawn")];

/// Process-wide values that there may be: file and name.
const STATICS: &[(&str, &str)] = &[
    ("src/main.rs", "ALLOCATOR"),
    ("src/sale/schema.rs", "MIGRATOR"),
    // Made once from constants, and never changed.
    ("src/http/problem/kinds.rs", "TABLE"),
    ("crates/bench/src/main.rs", "ALLOCATOR"),
];

/// Code that is not there for tests: the service and the crates, apart from what these have for tests of others.
fn product() -> Vec<Rust> {
    let mut files = rust(&["src/", "crates/"]);
    files.retain(|file| {
        let in_crate = file.path.starts_with("crates/");
        !in_crate || file.path.contains("/src/") && !file.path.contains("/src/testing/")
    });
    files
}

#[test]
fn product_code_takes_no_shortcuts() {
    no_complaints(product().iter().flat_map(shortcuts).collect());
}

fn shortcuts(file: &Rust) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_taken = |what| TAKEN.contains(&(file.path.as_str(), what));
    for (what, instead) in SHORTCUTS.iter().filter(|(what, _)| !is_taken(*what)) {
        let found = occurrences(&file.product, what);
        complaints.extend(found.map(|at| format!("{}: `{what}`: {instead}", file.place(at))));
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
    let complaint = |(name, places): (&&str, &Vec<String>)| {
        format!(
            "{}: `{name}` is the schema at {}, too: rename one, or give it `#[schema(as = ...)]`",
            places[1], places[0]
        )
    };
    twice.map(complaint).collect()
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

#[test]
fn schemas_with_one_name_are_found() {
    let one =
        Rust::new("src/a.rs", "#[derive(ToSchema)]\npub struct Step<T>(T);\nuse utoipa::ToSchema;");
    let text = "#[derive(Clone, ToSchema)]\n#[serde(x)]\nenum Step {}\n#[derive(ToSchema)]\n#[schema(as = Other)]\nstruct Page {}";
    let two = Rust::new("src/b.rs", text);
    let three = Rust::new(
        "src/c.rs",
        "#[derive(ToSchema)]\nstruct Page {}\n#[derive(ToSchema)]\nstruct Other;",
    );
    assert_complaints(&schemas_with_one_name(&[one, two, three]), &["src/c.rs:3", "src/b.rs:1"]);
}

#[test]
fn lints_are_expected_with_a_reason_and_never_allowed() {
    no_complaints(rust(RUST).iter().flat_map(silenced_lints).collect());
}

fn silenced_lints(file: &Rust) -> Vec<String> {
    let attributes = file.code.match_indices("#[").chain(file.code.match_indices("#!["));
    let mut complaints = Vec::new();
    for (at, open) in attributes {
        let mut depth = 1;
        let inside = file.code[at + open.len()..].split(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            depth == 0
        });
        let attribute = inside.into_iter().next().unwrap_or_default();
        let says = |word| occurrences(attribute, word).next().is_some();
        if says("allow") || says("expect") && !says("reason") {
            let place = file.place(at);
            complaints.push(format!("{place}: write `#[expect(lint, reason = \"...\")]`, or mend what it complains about"));
        }
    }
    complaints
}

#[test]
fn nothing_is_process_wide() {
    no_complaints(product().iter().flat_map(statics).collect());
}

fn statics(file: &Rust) -> Vec<String> {
    let items =
        occurrences(&file.product, "static").filter(|&at| !file.product[..at].ends_with('\''));
    let mut complaints = Vec::new();
    for at in items {
        let rest = file.product[at + "static".len()..].trim_start();
        let name = rest.split(':').next().unwrap_or_default();
        if !STATICS.contains(&(file.path.as_str(), name)) {
            let place = file.place(at);
            complaints.push(format!("{place}: `static {name}` is shared by the whole process; make it a field and pass it in"));
        }
    }
    complaints
}

#[test]
fn the_checkers_see_shortcuts() {
    let text = "f(x).unwrap();\nmy_todo!();\n#[cfg(test)]\nmod tests { fn f() { g().unwrap() } }\n// dbg!\ntokio::spawn(f);";
    let complaints = shortcuts(&Rust::new("src/a.rs", text));
    assert_complaints(&complaints, &["src/a.rs:1: `.unwrap()`", "src/a.rs:6: `tokio::spawn`"]);

    let text = "#[allow(dead_code)]\n#[expect(x, reason = \"y\")]\n#[cfg_attr(a, allow(b))]\n#![expect(x)]\n#[x]\nfn f() { limit.allow(x) }";
    let complaints = silenced_lints(&Rust::new("src/a.rs", text));
    assert_complaints(&complaints, &["a.rs:1:", "a.rs:3:", "a.rs:4:"]);

    let text =
        "static ALLOCATOR: A = A;\nfn f(x: &'static str) {\n    static mut COUNT: u8 = 0;\n}";
    assert_complaints(
        &statics(&Rust::new("src/main.rs", text)),
        &["src/main.rs:3: `static mut COUNT`"],
    );
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

/// Largest number of files in one folder, its map included; more are rooms.
const FOLDER_FILES_MAX: usize = 15;

#[test]
fn no_folder_is_crowded() {
    let files = rust(&["src/", "crates/", "tests/it/"]);
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    no_complaints(crowded(&paths));
}

fn crowded(paths: &[&str]) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for (folder, _) in paths.iter().filter_map(|path| path.rsplit_once('/')) {
        *counts.entry(folder).or_insert(0) += 1;
    }
    let crowded = counts.into_iter().filter(|(_, count)| *count > FOLDER_FILES_MAX);
    crowded
        .map(|(folder, count)| {
            format!("{folder}: {count} files, and {FOLDER_FILES_MAX} are the limit; make rooms")
        })
        .collect()
}

#[test]
fn modules_lie_where_their_names_say() {
    let mut complaints = Vec::new();
    for file in rust(&["src/", "crates/"]) {
        let places = file.code.match_indices("#[path").map(|(at, _)| file.place(at));
        complaints
            .extend(places.map(|place| format!("{place}: move the file, in place of #[path]")));
    }
    no_complaints(complaints);
}

#[test]
fn the_checker_sees_crowds() {
    let names: Vec<String> = (0..16).map(|n| format!("src/a/{n}.rs")).collect();
    let mut paths: Vec<&str> = names.iter().map(String::as_str).collect();
    paths.push("src/b/1.rs");
    assert_complaints(&crowded(&paths), &["src/a: 16 files"]);
    assert_complaints(&crowded(&paths[1..]), &[]);
}

/// Other files have no limit: a file of more than 300 lines is looked at twice, by people.
#[test]
fn main_stays_short() {
    no_complaints(files().iter().filter_map(too_long).collect());
}

fn too_long(file: &File) -> Option<String> {
    let lines = file.text.lines().count();
    (file.path == "src/main.rs" && lines > MAIN_LINES_MAX)
        .then(|| format!("src/main.rs: {lines} lines, and {MAIN_LINES_MAX} are the limit"))
}

#[test]
fn the_checkers_see_heads_and_lengths() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    assert!(headless(&file("src/a.rs", "use x;\n//! late\n")).is_some());
    assert!(headless(&file("migrations/a.sql", "CREATE TABLE x ();")).is_some());
    assert_eq!(headless(&file("lua/a.lua", "#!lua flags=allow-oom\n-- Counts.\n")), None);
    assert!(too_long(&file("src/main.rs", &"\n".repeat(30))).is_some());
    assert_eq!(too_long(&file("src/a.rs", &"\n".repeat(400))), None);
}

#[test]
fn no_function_is_too_long() {
    let mut complaints = Vec::new();
    for file in rust(RUST) {
        let long =
            functions(&file).into_iter().filter(|function| function.lines > function.lines_max);
        complaints.extend(long.map(|Function { place, name, lines, lines_max }| {
            format!(
                "{place}: `{name}` has {lines} lines, and {lines_max} are the limit; name its parts"
            )
        }));
    }
    no_complaints(complaints);
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
    unbounded
        .map(|at| {
            format!("{}: the test has no bound: begin with `bound_this_test();`", file.place(at))
        })
        .collect()
}

#[test]
fn unit_tests_without_a_bound_are_found() {
    let bounded = "#[tokio::test]\nasync fn a() {\n    bound_this_test();\n    b().await;\n}\n";
    let unbounded = "#[tokio::test(start_paused = true)]\nasync fn c() {\n    b().await;\n}\n";
    let file = Rust::new("src/a.rs", &format!("{bounded}{unbounded}"));
    assert_complaints(&unbounded_tests(&file), &["src/a.rs:6"]);
}

struct Function {
    place: String,
    name: String,
    /// Lines from the signature to the last brace; attributes and docs aren't counted.
    lines: usize,
    lines_max: usize,
}

fn functions(file: &Rust) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut last_end = 0;
    for at in occurrences(&file.code, "fn") {
        let name: String = file.code[at + 2..]
            .trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        // Without a name this is a type, without a body a declaration.
        let (false, Some(end)) = (name.is_empty(), block_end(&file.code, at)) else {
            continue;
        };
        let attributes = &file.code[last_end.min(at)..at];
        let is_handler =
            file.path.starts_with("src/http/") && attributes.contains("#[utoipa::path(");
        functions.push(Function {
            place: file.place(at),
            name,
            lines: file.code[at..end].lines().count(),
            lines_max: if is_handler { HANDLER_LINES_MAX } else { FUNCTION_LINES_MAX },
        });
        last_end = end;
    }
    functions
}

#[test]
fn the_checker_measures_functions() {
    let handler = "#[utoipa::path(get, path = \"/\")]\npub async fn a(x: [u8; 2]) -> X\nwhere\n    X: Y,\n{\n    f(\"}\");\n}\n";
    let others = "trait T { fn b(); }\ntype F = fn(u8);\nfn c() {\n    if x { y }\n}\n";
    let file = Rust::new("src/http/a.rs", &format!("{handler}{others}"));
    let found: Vec<_> =
        functions(&file).into_iter().map(|f| (f.name, f.lines, f.lines_max)).collect();
    assert_eq!(found, [("a".to_owned(), 6, 30), ("c".to_owned(), 3, 70)]);
}
