//! Layers: `src/lib.rs` declares the modules in reading order, and that order is the law.

use super::source::{Rust, assert_complaints, block_end, no_complaints, occurrences, rust};

/// The names of the layers, from the top down, as `src/lib.rs` has them.
fn layers() -> Vec<String> {
    let lib = Rust::new("src/lib.rs", &super::source::read("src/lib.rs").text);
    let layers = modules(&lib.code);
    assert!(
        layers.len() > 1 && !layers.is_sorted(),
        "src/lib.rs declares {layers:?}, sorted by name: rustfmt does that to neighbouring `mod`s. \
         Put them into reading order (cli, http, worker, app ... store, kit, base), each with a blank line before it"
    );
    layers
}

/// Modules that must not use one another although one stands above: two doors don't lead into each other.
const APART: &[(&str, &str)] = &[("http", "worker")];

fn modules(code: &str) -> Vec<String> {
    let declared = code.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    declared.map(str::to_owned).collect()
}

#[test]
fn every_file_belongs_to_a_layer() {
    let layers = layers();
    let mut complaints = Vec::new();
    for file in rust(&["src/"]) {
        let module = module_of(&file.path);
        if !module.is_empty() && !layers.iter().any(|layer| layer == module[0]) {
            let name = file.path;
            complaints
                .push(format!("{name}: src/lib.rs declares no module for it; put it into a layer"));
        }
    }
    no_complaints(complaints);
}

#[test]
fn a_module_uses_only_modules_declared_below_it() {
    let layers = layers();
    let files = rust(&["src/"]);
    no_complaints(files.iter().flat_map(|file| upward_uses(file, &layers)).collect());
}

/// Files that are maps: the modules that they declare stand in reading order, and use only modules below.
fn maps(files: &[Rust]) -> Vec<String> {
    let is_map = |file: &&Rust| {
        let root = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        file.path.ends_with("/mod.rs")
            || root.is_some_and(|(_, name)| matches!(name, "lib.rs" | "main.rs"))
    };
    files.iter().filter(is_map).map(|file| file.path.clone()).collect()
}

#[test]
fn a_room_uses_only_rooms_declared_below_it() {
    let mut files = rust(&["src/", "crates/"]);
    files.retain(|file| file.path.starts_with("src/") || file.path.contains("/src/"));
    let maps = maps(&files);
    assert!(maps.len() > 15, "{maps:?}: src and the crates consist of modules");
    let mut complaints = Vec::new();
    for map in maps {
        let declared = modules(&Rust::new(&map, &super::source::read(&map).text).code);
        let folder = &map[..map.rfind('/').map_or(0, |at| at + 1)];
        let inside = files.iter().filter(|file| file.path.starts_with(folder));
        complaints.extend(inside.flat_map(|file| uses_above(file, folder, &declared)));
    }
    no_complaints(complaints);
}

/// Uses of modules that the map of `folder` declares above the module of the file.
fn uses_above(file: &Rust, folder: &str, declared: &[String]) -> Vec<String> {
    let below = file.path[folder.len()..].trim_end_matches(".rs");
    let own = below.split('/').next().unwrap_or(below);
    let level = |name: &str| declared.iter().position(|module| module == name);
    let Some(own_level) = level(own) else {
        return Vec::new();
    };
    let (_, inside) = folder.split_once("src/").unwrap_or(("", folder));
    let path = format!("crate::{}", inside.replace('/', "::"));
    let siblings = if below.contains('/') { Vec::new() } else { uses(&file.code, "super::") };
    let used = uses(&file.code, &path).into_iter().chain(siblings);
    let above = used.filter(|(at, name)| {
        !file.is_test(*at) && level(name).is_some_and(|level| level < own_level)
    });
    let complaint = |(at, name): (usize, &str)| {
        format!(
            "{}: `{own}` uses `{name}`, which the map of {folder} declares above it",
            file.place(at)
        )
    };
    above.map(complaint).collect()
}

#[test]
fn the_checker_sees_uses_of_rooms_above() {
    let declared = modules("pub mod claim;\n\nmod order;\n\npub mod log;\n");
    let complaints =
        |path: &str, text: &str| uses_above(&Rust::new(path, text), "src/sale/", &declared);
    let group = "use crate::sale::{log, claim::calls};\nuse crate::sale::claim;";
    let found = complaints("src/sale/order/write.rs", group);
    assert_complaints(&found, &["write.rs:1: `order` uses `claim`", "write.rs:2: `order`"]);
    let sibling = "use super::order;\nuse super::log;";
    assert_complaints(&complaints("src/sale/log.rs", sibling), &["log.rs:1: `log` uses `order`"]);
    assert_complaints(&complaints("src/sale/claim.rs", sibling), &[]);
    let root = Rust::new("crates/a/src/log.rs", "use crate::{claim, log};");
    assert_complaints(
        &uses_above(&root, "crates/a/src/", &declared),
        &["log.rs:1: `log` uses `claim`"],
    );
}

/// The path of a file's module: `src/sale/claim/queue.rs` is `sale`, `claim`, `queue`. Empty for the roots.
fn module_of(path: &str) -> Vec<&str> {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut names: Vec<&str> = path.split('/').collect();
    if matches!(names.last(), Some(&("mod" | "lib" | "main"))) {
        names.pop();
    }
    names
}

fn upward_uses(file: &Rust, layers: &[String]) -> Vec<String> {
    let module = module_of(&file.path);
    let level = |name: &str| layers.iter().position(|layer| layer == name);
    let Some((own, own_level)) = module.first().and_then(|own| Some((*own, level(own)?))) else {
        return Vec::new();
    };
    let mut complaints = Vec::new();
    for (at, used) in uses(&file.code, "crate::") {
        let place = file.place(at);
        let is_forbidden = APART.contains(&(own, used));
        if used.is_empty() {
            complaints.push(format!("{place}: name the module that is used"));
        }
        if level(used).is_some_and(|used| used < own_level) || is_forbidden {
            complaints.push(format!(
                "{place}: `{own}` uses `{used}`, which isn't below it in src/lib.rs or is none of its business; \
                 move what is shared down, or what uses it up"
            ));
        }
    }
    for at in leaving_supers(&file.code, module.len()) {
        let place = file.place(at);
        complaints.push(format!(
            "{place}: this `super` leaves the module; write `crate::...`, where the layer can be seen"
        ));
    }
    complaints
}

/// Names after `prefix`: one, or those at the start of each part of a group.
fn uses<'a>(code: &'a str, prefix: &'a str) -> Vec<(usize, &'a str)> {
    let mut uses = Vec::new();
    for at in occurrences(code, prefix) {
        let from = at + prefix.len();
        let Some(end) = code[from..].starts_with('{').then(|| block_end(code, from)) else {
            uses.push((from, name_at(&code[from..])));
            continue;
        };
        let mut depth = 0;
        let mut begins = false;
        for (offset, c) in code[from..end.unwrap_or(code.len())].char_indices() {
            if begins && !c.is_whitespace() && c != '}' {
                uses.push((from + offset, name_at(&code[from + offset..])));
            }
            depth += i32::from(c == '{') - i32::from(c == '}');
            begins = depth == 1 && (matches!(c, '{' | ',') || begins && c.is_whitespace());
        }
    }
    uses
}

fn name_at(code: &str) -> &str {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_');
    &code[..end.unwrap_or(code.len())]
}

/// Places where a chain of `super`s is as long as the module's path, counting modules within the file.
fn leaving_supers(code: &str, depth: usize) -> Vec<usize> {
    let inner: Vec<_> =
        occurrences(code, "mod").filter_map(|at| Some(at..block_end(code, at)?)).collect();
    let chains = occurrences(code, "super").filter(|&at| !code[..at].ends_with("::"));
    chains
        .filter(|at| {
            let length = code[*at..].split("::").take_while(|name| *name == "super");
            let nested = inner.iter().filter(|inner| inner.contains(at)).count();
            length.count() >= depth + nested
        })
        .collect()
}

#[test]
fn the_checker_sees_upward_uses() {
    let layers = modules("pub mod http;\n\npub mod worker;\nmod sale;\npub mod kit;\nmod base;\n");
    assert_eq!(layers, ["http", "worker", "sale", "kit", "base"]);
    let complaints = |path: &str, text: &str| upward_uses(&Rust::new(path, text), &layers);

    let up = complaints("src/kit/id.rs", "use crate::base;\nuse crate::sale::Keys;\n");
    assert_complaints(&up, &["src/kit/id.rs:2: `kit` uses `sale`"]);
    let group = "use crate::{\n    base::{self, sale},\n    kit,\n    http::x,\n};";
    assert_complaints(&complaints("src/sale/a.rs", group), &["a.rs:4: `sale` uses `http`"]);
    let in_line = "fn f() { crate::worker::start() }";
    let siblings = ["`http` uses `worker`"];
    assert_complaints(&complaints("src/http/mod.rs", in_line), &siblings);
    let siblings = ["`worker` uses `http`"];
    assert_complaints(&complaints("src/worker/a.rs", "use crate::http;"), &siblings);

    let supers = "use super::super::kit;\nuse super::a;\nmod tests {\n    use super::super::b;\n}";
    let leaves = complaints("src/sale/a.rs", supers);
    assert_complaints(&leaves, &["src/sale/a.rs:1: this `super` leaves"]);
    let all = complaints("src/kit/a.rs", "use crate::*;");
    assert_complaints(&all, &["a.rs:1: name the module"]);
    let fine = "//! Of [`crate::http`].\nuse crate::sale::x; // not crate::worker\n";
    assert_complaints(&complaints("src/worker/mod.rs", fine), &[]);
}
