//! The table of CONTRIBUTING.md: all that is known, by room.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::equal::EqualMutants;
use crate::mutant::{Language, Mutant};
use crate::results::{Counts, Results};

/// The file that has the table.
const FILE: &str = "CONTRIBUTING.md";
/// The table stands between these lines.
const BEGIN: &str = "<!-- The table is written by `make mutants ARGS=--state`. -->\n";
const END: &str = "<!-- End of the table. -->\n";

/// Puts the table into its file. Returns it.
///
/// # Errors
///
/// When the file has no place for it, or can't be written.
pub fn write(
    root: &Path,
    mutants: &[Mutant],
    results: &Results,
    equal: &EqualMutants,
) -> Result<String> {
    let table = table(mutants, results, equal);
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {FILE}"))?;
    let text = placed(&text, &table).with_context(|| format!("{FILE} has no line {BEGIN:?}"))?;
    fs::write(&path, text).with_context(|| format!("writing {FILE}"))?;
    Ok(table)
}

/// The text with the table in its place.
fn placed(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

fn table(mutants: &[Mutant], results: &Results, equal: &EqualMutants) -> String {
    let mut rooms: BTreeMap<String, Counts> = BTreeMap::new();
    let mut sum = Counts::default();
    for mutant in mutants {
        let (verdict, is_equal) = (results.last(mutant), equal.has(mutant));
        rooms.entry(room(mutant)).or_default().count(verdict, is_equal);
        sum.count(verdict, is_equal);
    }
    let mut table = "\
        | room | mutants | refused | equal | caught | by a hang | survived | unreached | not run | caught, % of those that ran |\n\
        |---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (room, counts) in rooms {
        table.push_str(&row(&room, &counts));
    }
    table.push_str(&row("all", &sum));
    table
}

fn row(name: &str, counts: &Counts) -> String {
    let Counts { total, does_not_compile, caught, by_hang, survived, unreached, equal, not_run } =
        counts;
    let percent = match caught + by_hang + survived + unreached {
        0 => String::new(),
        _ => format!("{:.1}", counts.caught_percent()),
    };
    format!(
        "| {name} | {total} | {does_not_compile} | {equal} | {caught} | {by_hang} | {survived} | \
         {unreached} | {not_run} | {percent} |\n"
    )
}

/// The part of the project that a mutant is counted in: `src/sale/claim`, `src/http`, `lua`, `src/sale, SQL`.
fn room(mutant: &Mutant) -> String {
    let file = mutant.key.file.as_str();
    let folders: Vec<&str> =
        file.rsplit_once('/').map_or("", |(folder, _)| folder).split('/').collect();
    let has_rooms = folders.starts_with(&["src", "sale"]);
    let depth = match mutant.language {
        Language::Sql => 2,
        _ if has_rooms => 3,
        _ => 2,
    };
    let room = folders[..depth.min(folders.len())].join("/");
    match mutant.language {
        Language::Sql => format!("{room}, SQL"),
        Language::Lua if folders[0] != "lua" => format!("{room}, Lua"),
        _ => room,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::Key;

    fn mutant(file: &str, language: Language) -> Mutant {
        let key = Key {
            file: file.into(),
            function: String::new(),
            operator: "number".into(),
            original: "1".into(),
            mutation: "2".into(),
            occurrence: 0,
        };
        Mutant { key, language, lines: 1..=1, context: 5, number: 1, text: None }
    }

    #[test]
    fn rooms_are_those_of_the_sale_and_otherwise_layers() {
        for (file, language, expected) in [
            ("src/sale/claim/memory/sold_out.rs", Language::Rust, "src/sale/claim"),
            ("src/sale/keys.rs", Language::Rust, "src/sale"),
            ("src/sale/order/expiry.rs", Language::Sql, "src/sale, SQL"),
            ("src/http/server/mod.rs", Language::Rust, "src/http"),
            ("lua/claim.lua", Language::Lua, "lua"),
            ("crates/redisson-locks/lua/lock.lua", Language::Lua, "crates/redisson-locks, Lua"),
            ("crates/redisson-locks/src/script.rs", Language::Rust, "crates/redisson-locks"),
        ] {
            assert_eq!(room(&mutant(file, language)), expected, "{file}");
        }
    }

    #[test]
    fn the_table_takes_the_place_of_the_last_one() {
        let text = format!("a\n{BEGIN}old\n{END}b\n");
        let placed_once = placed(&text, "new\n").expect("there is a place");
        assert_eq!(placed_once, format!("a\n{BEGIN}new\n{END}b\n"));
        assert_eq!(placed(&placed_once, "new\n").as_deref(), Some(placed_once.as_str()));
        assert!(placed("a\n", "new\n").is_none());
    }
}
