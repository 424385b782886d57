//! One owner for each script, table and key; and no Postgres in the path of claims.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{File, Rust, assert_complaints, files_of, no_complaints, read, rust};

#[test]
fn every_script_has_one_owner() {
    let files = rust(&["src/", "crates/redisson-locks/src/"]);
    no_complaints(script_owners(&files_of(super::lua::SCRIPTS, "lua"), &files));
}

fn script_owners(scripts: &[File], files: &[Rust]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut owners: BTreeMap<&str, BTreeSet<&str>> =
        scripts.iter().map(|script| (script.path.as_str(), BTreeSet::new())).collect();
    for file in files {
        for (at, name) in &file.strings {
            if !file.code[..*at].trim_end().ends_with("include_str!(") || !name.ends_with(".lua") {
                continue;
            }
            let path = resolve(&file.path, name);
            match owners.get_mut(path.as_str()) {
                Some(owners) => drop(owners.insert(&file.path)),
                None => complaints.push(format!("{}: there is no {path}", file.place(*at))),
            }
        }
    }
    for (script, owners) in owners.iter().filter(|(_, owners)| owners.len() != 1) {
        complaints
            .push(format!("{script}: one file under src/ has to include_str! it; {owners:?} do"));
    }
    complaints
}

/// `../../lua/claim.lua`, as seen from a file, from the root of the repository.
pub fn resolve(file: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[test]
fn the_checker_misses_owners() {
    let script = |path: &str| File { path: path.to_owned(), text: String::new() };
    let scripts = [script("lua/a.lua"), script("lua/b/b.lua"), script("lua/c.lua")];
    let one = Rust::new("src/sale/one.rs", r#"f(include_str!("../../lua/c.lua"), "lua/a.lua")"#);
    let two = r#"include_str!("../../../lua/c.lua") include_str!("../../../lua/b/b.lua") include_str!("d.lua")"#;
    let two = Rust::new("src/kit/a/two.rs", two);
    assert_complaints(
        &script_owners(&scripts, &[one, two]),
        &[
            "src/kit/a/two.rs:1: there is no src/kit/a/d.lua",
            "lua/a.lua: one file under src/ has to include_str! it; {} do",
            "lua/c.lua: one file",
        ],
    );
}

#[test]
fn every_table_has_one_owner() {
    no_complaints(table_owners(&files_of(&["migrations/"], "sql"), &rust(&["src/"])));
}

fn table_owners(migrations: &[File], files: &[Rust]) -> Vec<String> {
    let mut owners: BTreeMap<&str, BTreeSet<&str>> =
        tables(migrations).into_iter().map(|table| (table, BTreeSet::new())).collect();
    for file in files {
        let texts = file.strings.iter().filter(|(at, _)| !file.is_test(*at));
        for table in texts.flat_map(|(_, text)| written_tables(text)) {
            if let Some(owners) = owners.get_mut(table) {
                owners.insert(owner(&file.path));
            }
        }
    }
    // The body of a function stands between two `$$`. A table that only triggers write needs no room.
    let bodies =
        migrations.iter().flat_map(|migration| migration.text.split("$$").skip(1).step_by(2));
    let by_triggers: BTreeSet<&str> = bodies.flat_map(written_tables).collect();
    let shared = owners.iter().filter(|(table, owners)| {
        owners.len() > 1 || owners.is_empty() && !by_triggers.contains(*table)
    });
    let complaint =
        |(table, owners)| format!("table {table}: one module has to write it; {owners:?} do");
    shared.map(complaint).collect()
}

/// The tables that migrations make, and drop in no later one.
pub fn tables(migrations: &[File]) -> BTreeSet<&str> {
    let mut tables = BTreeSet::new();
    for migration in migrations {
        let words: Vec<&str> = sql_words(&migration.text).collect();
        for words in words.windows(3) {
            match words {
                ["CREATE", "TABLE", table] => drop(tables.insert(*table)),
                ["DROP", "TABLE", table] => drop(tables.remove(table)),
                _ => {}
            }
        }
    }
    tables
}

/// The module of a file, which owns tables as a whole: `src/order/` for `src/order/moves/mod.rs`.
fn owner(path: &str) -> &str {
    let below = path.strip_prefix("src/").and_then(|below| below.split_once('/'));
    below.map_or(path, |(module, _)| &path[.."src/".len() + module.len() + 1])
}

fn written_tables(sql: &str) -> impl Iterator<Item = &str> {
    let words: Vec<&str> = sql_words(sql).collect();
    let written = (0..words.len()).filter_map(move |at| match words[at..] {
        ["INSERT" | "MERGE", "INTO", table, ..] => Some(table),
        ["DELETE", "FROM", "ONLY", table, ..] | ["DELETE", "FROM", table, ..] => Some(table),
        ["TRUNCATE", "TABLE", table, ..] | ["TRUNCATE", table, ..] => Some(table),
        ["UPDATE", "ONLY", table, ..] | ["UPDATE", table, ..] => Some(table),
        _ => None,
    });
    written.collect::<Vec<_>>().into_iter()
}

fn sql_words(sql: &str) -> impl Iterator<Item = &str> {
    let words = sql.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty() && !["IF", "NOT", "EXISTS"].contains(word))
}

#[test]
fn the_checker_sees_who_writes_a_table() {
    let text = "CREATE TABLE a (\nCREATE TABLE IF NOT EXISTS b (\nCREATE TABLE c (".to_owned();
    let migration = [File { path: "migrations/1.sql".to_owned(), text }];
    let one = "// DELETE FROM c\nq(\"UPDATE\n a SET x = 1\"); q(\"SELECT x FROM b FOR UPDATE\")";
    let two = "q(r#\"INSERT INTO b (x) ... DO UPDATE SET x\"#); q(\"DELETE FROM a\")";
    let files = [Rust::new("src/one.rs", one), Rust::new("src/two.rs", two)];
    assert_complaints(
        &table_owners(&migration, &files),
        &["table a: one module has to write it; {\"src/one.rs\", \"src/two.rs\"}", "table c:"],
    );
    let files = ["src/a/mod.rs", "src/a/b/c.rs", "src/d/a.rs"];
    assert_eq!(files.map(owner), ["src/a/", "src/a/", "src/d/"]);
}

#[test]
fn every_key_is_built_in_keys_rs() {
    let keys = Rust::new("src/store/keys.rs", &read("src/store/keys.rs").text);
    let parts = key_parts(&keys);
    assert!(parts.len() > 4, "src/store/keys.rs builds keys of {parts:?}: that can't be all");
    let files = rust(&["src/"]);
    let others = files.iter().filter(|file| file.path != keys.path);
    no_complaints(others.flat_map(|file| built_keys(file, &parts)).collect());
}

/// The fixed parts of the keys, and how a hash tag is written in a format string.
fn key_parts(keys: &Rust) -> Vec<String> {
    let formats = keys.strings.iter().filter(|(at, _)| !keys.is_test(*at));
    let parts = formats.flat_map(|(_, format)| format.split(['{', '}']));
    let parts = parts.filter(|part| part.len() > 1 && part.starts_with(':'));
    parts.chain(["}}:"]).map(str::to_owned).collect()
}

fn built_keys(file: &Rust, parts: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, text) in &file.strings {
        if let Some(part) = parts.iter().find(|part| text.contains(part.as_str())) {
            let place = file.place(*at);
            complaints.push(format!(
                "{place}: `{part}` is part of a Redis key; build it in src/store/keys.rs"
            ));
        }
    }
    complaints
}

#[test]
fn the_checker_sees_built_keys() {
    let keys =
        "fn f() { format!(\"{}:{{{}}}:coupon:{coupon}\", a, b); format!(\"{}:icr:order\", a) }";
    let parts = key_parts(&Rust::new("src/store/keys.rs", keys));
    assert_eq!(parts, [":coupon:", ":icr:order", "}}:"]);
    let other =
        Rust::new("src/a.rs", "// fs:{1}:coupon:7\nf(\"a:b\");\nformat!(\"{p}:coupon:{c}\");");
    assert_complaints(&built_keys(&other, &parts), &["src/a.rs:3: `:coupon:`"]);
}

/// Names that the claim path and the HTTP side don't use.
const POSTGRES: &[&str] = &[
    "PgPool",
    "PgConnection",
    "sqlx::query",
    "sqlx::Pool",
    "store::postgres",
    "Stores",
    ".stores",
];

#[test]
fn neither_claims_nor_http_reach_for_postgres() {
    let claim_path = ["claims.rs", "calls.rs", "queue.rs", "outcome.rs", "memory/"];
    let claim_path = claim_path.map(|name| format!("src/claim/{name}"));
    let paths: Vec<&str> = claim_path.iter().map(String::as_str).chain(["src/http/"]).collect();
    let files = rust(&paths);
    assert!(files.len() > claim_path.len(), "all files of the claim path are there");
    no_complaints(files.iter().flat_map(postgres_in_sight).collect());
}

fn postgres_in_sight(file: &Rust) -> Vec<String> {
    let mut complaints = Vec::new();
    for name in POSTGRES {
        complaints.extend(file.code.match_indices(name).map(|(at, _)| {
            let place = file.place(at);
            format!(
                "{place}: `{name}`: no Postgres here; ask a capability of `App` for what you need"
            )
        }));
    }
    complaints
}

#[test]
fn the_checker_sees_postgres() {
    let text = "use sqlx::PgPool;\n// PgPool\nsqlx::query_as!(X);\nfn restores() -> sqlx::Error { app.stores }";
    let complaints = postgres_in_sight(&Rust::new("src/http/a.rs", text));
    assert_complaints(
        &complaints,
        &["a.rs:1: `PgPool`", "a.rs:3: `sqlx::query`", "a.rs:4: `.stores`"],
    );
}
