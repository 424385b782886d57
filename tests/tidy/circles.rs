//! Imports of files don't run in a circle: each group of files has one that can be read first.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Rust, assert_complaints, no_complaints, rust};

/// A module: the folder of its package and the names below it.
type Module = Vec<String>;

#[test]
fn imports_run_in_no_circle() {
    let mut files = rust(&["src/", "crates/"]);
    files.retain(|file| file.path.starts_with("src/") || file.path.contains("/src/"));
    no_complaints(circles(&files));
}

/// One complaint for each import that leads back to its file.
fn circles(files: &[Rust]) -> Vec<String> {
    let modules: BTreeSet<Module> = files.iter().map(|file| module_of(&file.path)).collect();
    let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for file in files {
        let module = module_of(&file.path);
        let used =
            imports(&file.product).into_iter().filter_map(|path| resolve(&module, &path, &modules));
        arrows.insert(module.clone(), used.filter(|used| *used != module).collect());
    }
    let ahead: BTreeMap<&Module, BTreeSet<Module>> =
        arrows.keys().map(|module| (module, reached(module, &arrows))).collect();
    let back = |from: &Module, to: &Module| ahead.get(to).is_some_and(|ahead| ahead.contains(from));
    let circular = arrows.iter().flat_map(|(from, used)| used.iter().map(move |to| (from, to)));
    circular
        .filter(|(from, to)| back(from, to))
        .map(|(from, to)| {
            let [from, to] = [from, to].map(|module| module.join("/"));
            format!("{from} imports {to}, which leads back to it: move what both need below them")
        })
        .collect()
}

fn reached(from: &Module, arrows: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![from.clone()];
    while let Some(module) = ahead.pop() {
        let next = arrows.get(&module).into_iter().flatten();
        ahead.extend(next.filter(|next| reached.insert((*next).clone())).cloned());
    }
    reached
}

/// `crates/a/src/b/c.rs` is `crates/a/src`, `b`, `c`.
fn module_of(path: &str) -> Module {
    let (package, inside) = path.split_at(path.find("src/").map_or(0, |at| at + "src".len()));
    let mut names: Module = inside.trim_matches('/').split('/').map(str::to_owned).collect();
    let file = names.pop().unwrap_or_default();
    let name = file.trim_end_matches(".rs");
    if !matches!(name, "mod" | "lib" | "main") {
        names.push(name.to_owned());
    }
    names.insert(0, package.to_owned());
    names
}

/// The paths that a file imports, each as its names.
fn imports(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for statement in format!("\n{code}").split(';') {
        let line = statement
            .rfind("\nuse ")
            .map(|at| at + 5)
            .or_else(|| statement.rfind(" use ").map(|at| at + 5));
        if let Some(at) = line.filter(|at| is_import(&statement[..*at])) {
            expand("", statement[at..].trim(), &mut paths);
        }
    }
    paths
}

/// Whether nothing but a visibility stands before `use` in its line.
fn is_import(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
    line == "use " || line.starts_with("pub") && line.ends_with("use ")
}

fn expand(prefix: &str, tree: &str, paths: &mut Vec<Vec<String>>) {
    let Some((before, group)) = tree.split_once('{') else {
        let path = format!("{prefix}{tree}");
        let names = path.split("::").map(|name| name.split_whitespace().next().unwrap_or_default());
        paths.push(names.map(str::to_owned).collect());
        return;
    };
    let group = &group[..group.rfind('}').unwrap_or(group.len())];
    let mut depth = 0;
    for part in group.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    }) {
        if !part.trim().is_empty() {
            expand(&format!("{prefix}{before}"), part.trim(), paths);
        }
    }
}

/// The module that a path names or lies in; `None` outside of this package, and for its root.
fn resolve(from: &Module, path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let mut target: Module = match path.first().map(String::as_str) {
        Some("crate") => from[..1].to_vec(),
        Some("self" | "super") => from.clone(),
        Some(first) => {
            let child = [from.as_slice(), &[first.to_owned()]].concat();
            modules.contains(&child).then(|| from.clone())?
        }
        None => return None,
    };
    for name in path {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => drop(target.pop()),
            name => target.push(name.to_owned()),
        }
    }
    while target.len() > 1 && !modules.contains(&target) {
        target.pop();
    }
    (target.len() > 1).then_some(target)
}

#[test]
fn the_checker_sees_circles() {
    let file = |path: &str, text: &str| Rust::new(path, text);
    let text = "use std::fmt;\nuse crate::sale::{b::{self, X}, c};\n#[cfg(test)]\nmod tests {\n    use super::super::d;\n}\n";
    let files = [
        file("src/sale/a.rs", text),
        file("src/sale/b.rs", "use super::c::Y;\n"),
        file("src/sale/c.rs", "pub(super) use super::d;\n"),
        file("src/sale/d.rs", "use super::b;\n"),
        file("src/sale/mod.rs", "mod a;\npub use a::X;\n"),
    ];
    let found =
        ["sale/b imports src/sale/c", "sale/c imports src/sale/d", "sale/d imports src/sale/b"];
    assert_complaints(&circles(&files), &found);
}
