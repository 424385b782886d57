//! All kinds of problems. The table is docs/problems.md itself: titles and statuses of problem bodies, and the codes of
//! each operation in `/openapi.json`, are read from it, and `build.rs` makes the page `/docs/problems` from it.

use std::sync::LazyLock;

use axum::http::StatusCode;

/// A kind of problem, which is a row of the table.
#[derive(Debug)]
pub struct Kind {
    /// Name for programs; never changes.
    pub code: &'static str,
    pub status: StatusCode,
    /// Name for people.
    pub title: &'static str,
    /// What the problem means, in a sentence.
    pub meaning: &'static str,
}

/// Path of the document; `#` and a code follow.
pub const DOCUMENT: &str = "/docs/problems";

static TABLE: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let rows = include_str!("../../../docs/problems.md").lines();
    let kind = |row: &'static str| {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let &[code, status, title, meaning, _] = &cells[..] else {
            panic!("a row of docs/problems.md has five cells: {row}");
        };
        let code = code.trim_end_matches('`');
        let status = status.parse().expect("the second cell is a status");
        Kind { code, status, title, meaning }
    };
    rows.filter_map(|line| line.strip_prefix("| `")).map(kind).collect()
});

impl Kind {
    /// The kind with this code.
    ///
    /// # Panics
    ///
    /// If docs/problems.md has no such row. A test checks each code in the source.
    pub fn of(code: &str) -> &'static Self {
        let kind = TABLE.iter().find(|kind| kind.code == code);
        kind.unwrap_or_else(|| panic!("docs/problems.md has no {code}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use regex_lite::Regex;

    use super::*;

    #[test]
    fn each_row_is_a_kind_of_its_own_in_plain_words() {
        let codes: BTreeSet<&str> = TABLE.iter().map(|kind| kind.code).collect();
        assert_eq!(codes.len(), TABLE.len());
        for kind in TABLE.iter() {
            assert!(kind.status.is_client_error() || kind.status.is_server_error(), "{kind:?}");
            let text = kind.meaning;
            assert!(text.ends_with('.') && text.starts_with(char::is_uppercase), "{text}");
        }
    }

    /// An unknown code would panic.
    #[test]
    fn each_code_in_the_source_has_a_row() {
        fn read(folder: &Path, code: &Regex) -> usize {
            let entries =
                fs::read_dir(folder).expect("a folder").map(|entry| entry.unwrap().path());
            let of_one = |path: std::path::PathBuf| {
                if path.is_dir() {
                    return read(&path, code);
                }
                let text = fs::read_to_string(&path).expect("a text");
                let codes = code.captures_iter(&text).inspect(|it| _ = Kind::of(&it[1]));
                codes.count()
            };
            entries.map(of_one).sum()
        }
        let code = Regex::new(r#"Problem::of\(\s*"([a-z_]+)""#).expect("it is valid");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
        assert!(read(&source, &code) > 20);
    }
}
