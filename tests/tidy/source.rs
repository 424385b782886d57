//! Reading the repository: its files, and the code and texts of a Rust file.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// A text file of the repository.
#[derive(Clone)]
pub struct File {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// Text of the file.
    pub text: String,
}

/// A Rust file, taken apart.
#[derive(Clone)]
pub struct Rust {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// Text of the file.
    pub text: String,
    /// The text with comments and the insides of literals blanked, byte for byte as long as the text.
    pub code: String,
    /// `code` without the parts that are compiled for tests only.
    pub product: String,
    /// The string literals: place in the text, and contents.
    pub strings: Vec<(usize, String)>,
}

/// Every text file of the repository that `.gitignore` doesn't name.
pub fn files() -> Vec<File> {
    static FILES: LazyLock<Vec<File>> = LazyLock::new(read_all);
    FILES.clone()
}

fn read_all() -> Vec<File> {
    let ignored = read(".gitignore").text;
    let ignored: Vec<&str> = ignored.lines().map(|line| line.trim_matches('/')).collect();
    let mut files = Vec::new();
    walk("", &ignored, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn walk(folder: &str, ignored: &[&str], files: &mut Vec<File>) {
    let entries = fs::read_dir(root().join(folder));
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == ".git" || ignored.contains(&name.as_str()) {
            continue;
        }
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&path, ignored, files);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push(File { path, text });
        }
    }
}

/// The files whose path begins with one of `starts` and ends with `.extension`.
pub fn files_of(starts: &[&str], extension: &str) -> Vec<File> {
    let mut files = files();
    files.retain(|file| {
        let there = starts.iter().any(|start| file.path.starts_with(start));
        there && file.path.ends_with(&format!(".{extension}"))
    });
    assert!(
        !files.is_empty(),
        "no .{extension} files under {starts:?}: this law looks in the wrong place"
    );
    files
}

/// The Rust files whose path begins with one of `starts`.
pub fn rust(starts: &[&str]) -> Vec<Rust> {
    static RUST: LazyLock<Vec<Rust>> = LazyLock::new(|| {
        let files = files_of(&[""], "rs");
        files.iter().map(|file| Rust::new(&file.path, &file.text)).collect()
    });
    let there = |file: &&Rust| starts.iter().any(|start| file.path.starts_with(start));
    let files: Vec<Rust> = RUST.iter().filter(there).cloned().collect();
    assert!(!files.is_empty(), "no .rs files under {starts:?}: this law looks in the wrong place");
    files
}

/// A file that has to be there.
pub fn read(path: &str) -> File {
    let text = fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{path} can't be read ({error}): it has to be there"));
    File { path: path.to_owned(), text }
}

/// Whether there is such a file or folder.
pub fn exists(path: &str) -> bool {
    root().join(path).exists()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Fails with all complaints at once.
#[track_caller]
pub fn no_complaints(complaints: Vec<String>) {
    let count = complaints.len();
    assert!(count == 0, "{count} found\n\n{}\n", complaints.join("\n"));
}

/// For the tests of the laws: exactly these complaints, each told by some of its words.
#[track_caller]
pub fn assert_complaints(complaints: &[String], words: &[&str]) {
    let fits = complaints.iter().zip(words).all(|(complaint, words)| complaint.contains(words));
    assert!(fits && complaints.len() == words.len(), "expected {words:?}, got {complaints:#?}");
}

/// `path:line` of a byte of a file.
pub fn place(path: &str, text: &str, offset: usize) -> String {
    let line = text[..offset].matches('\n').count() + 1;
    format!("{path}:{line}")
}

/// Places of `needle` as whole words.
pub fn occurrences<'a>(code: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(needle).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + needle.len()..].chars().next();
        let begins = !(in_word(before) && in_word(needle.chars().next()));
        begins && !(in_word(after) && in_word(needle.chars().next_back()))
    })
}

/// The end of the first block from `from` on; `None` if a `;` comes before it.
pub fn block_end(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in code[from..].char_indices() {
        match c {
            ';' if depth == 0 => return None,
            '{' | '(' | '[' => depth += 1,
            '}' if depth == 1 => return Some(from + at + 1),
            '}' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

impl Rust {
    /// Takes a file apart.
    pub fn new(path: &str, text: &str) -> Self {
        let (code, strings) = scan(text);
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            product: without_tests(&code),
            code,
            strings,
        }
    }

    /// `path:line` of a byte.
    pub fn place(&self, offset: usize) -> String {
        place(&self.path, &self.text, offset)
    }

    /// Whether a byte belongs to a part that is compiled for tests only.
    pub fn is_test(&self, offset: usize) -> bool {
        self.code[offset..].starts_with('"') && !self.product[offset..].starts_with('"')
    }
}

fn without_tests(code: &str) -> String {
    let mut product = code.as_bytes().to_vec();
    for (at, attribute) in code.match_indices("#[cfg(test)]") {
        let item = at + attribute.len();
        let end = block_end(code, item).or_else(|| Some(item + code[item..].find(';')? + 1));
        blank(&mut product[at..end.unwrap_or(code.len())]);
    }
    String::from_utf8(product).expect("whole items have been blanked")
}

/// The code without comments and without the insides of literals, and the string literals.
fn scan(text: &str) -> (String, Vec<(usize, String)>) {
    let mut code = text.as_bytes().to_vec();
    let mut strings = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => {
                let (inside, length) = string(&text[..at], rest);
                strings.push((at, rest[1..=inside].to_owned()));
                blank(&mut code[at + 1..=at + inside]);
                at += length;
                continue;
            }
            '\'' => character(rest),
            _ => 0,
        };
        blank(&mut code[at..at + length]);
        at += length.max(c.len_utf8());
    }
    let code = String::from_utf8(code).expect("whole characters have been blanked");
    (code, strings)
}

/// Length of a block comment; they nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest.as_bytes()[at..rest.len().min(at + 2)] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return at + 2,
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of the contents of the string literal at the start of `rest`, and of the whole literal.
fn string(before: &str, rest: &str) -> (usize, usize) {
    let name = before.trim_end_matches('#');
    if name.ends_with('r') {
        let close = format!("\"{}", &before[name.len()..]);
        let inside = rest[1..].find(&close).unwrap_or(rest.len() - 1);
        return (inside, inside + 2);
    }
    let mut escaped = false;
    let end = rest[1..].find(|c| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    });
    let inside = end.unwrap_or(rest.len() - 1);
    (inside, inside + 2)
}

/// Length of the character literal at the start of `rest`; 0 if it is a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, c))) => {
            let from = at + c.len_utf8();
            rest[from..].find('\'').map_or(0, |close| from + close + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

#[test]
fn comments_literals_and_tests_are_told_from_code() {
    let text = r##"a("x // y", r#"q"q"#, '"', b'\'', 'é', &'static str) // "no"
/* "no" { */ b["\"}", '{']
#[cfg(test)]
mod tests { fn t() { c("in a test") } }
d"##;
    let file = Rust::new("a.rs", text);
    let strings: Vec<&str> = file.strings.iter().map(|(_, s)| s.as_str()).collect();
    assert_eq!(strings, ["x // y", "q\"q", "\\\"}", "in a test"]);
    let words = |code: &str| code.split_whitespace().collect::<String>();
    let code = r##"a("",r#""#,,b,,&'staticstr)b["",]"##;
    assert_eq!(words(&file.product), format!("{code}d"));
    assert_eq!(file.code.len(), text.len());
    let is_test: Vec<bool> = file.strings.iter().map(|(at, _)| file.is_test(*at)).collect();
    assert_eq!(is_test, [false, false, false, true]);
}

#[test]
fn only_whole_words_are_found() {
    let found: Vec<usize> = occurrences("order border orders order_x order", "order").collect();
    assert_eq!(found, [0, 28]);
}
