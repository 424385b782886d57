//! Prepares what the binary embeds: the pages, that of problems made of docs/problems.md, and documents that they lead to,
//! each file also compressed, as the table of `src/http/pages/files.rs`.
//! `sqlx::migrate!` embeds the migrations, but stable Rust can't tell cargo that it read a folder.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::write::GzEncoder;
use flate2::{Compression, Crc};

/// Media types of the files that are embedded; licences and the like are not.
const MEDIA_TYPES: &[(&str, &str)] = &[
    ("html", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("svg", "image/svg+xml"),
];

/// Documents that the board leads to.
const DOCUMENTS: [&str; 2] = ["docs/operate.md", "docs/reconcile.md"];

/// Place of the assets' path in the pages.
const PLACEHOLDER: &str = "{{assets}}";

/// Place of all problems in their page.
const PROBLEMS: &str = "{{problems}}";

/// Members that few problem bodies have, with values for the examples: those of a problem are named in its row.
const RARE_MEMBERS: [(&str, &str, &str); 9] = [
    ("Retry-After", "retry_after_ms", "1000"),
    ("`order_id`", "order_id", "\"104398274560\""),
    ("`errors`", "errors", "[{\"pointer\": \"/title\", \"detail\": \"is missing\"}]"),
    ("`from`", "from", "\"redeemed\""),
    ("`to`", "to", "\"cancelled\""),
    ("`pay_cents`", "pay_cents", "2500"),
    ("`currency`", "currency", "\"EUR\""),
    ("`redeemed_at`", "redeemed_at", "\"2026-12-24T17:05:00Z\""),
    ("`redeemed_by`", "redeemed_by", "\"7\""),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=pages");
    println!("cargo:rerun-if-changed=docs/problems.md");
    let problems = problems(&fs::read_to_string("docs/problems.md")?)?;
    let mut files = Vec::new();
    find(Path::new("pages"), &mut files)?;
    for document in DOCUMENTS {
        println!("cargo:rerun-if-changed={document}");
        files.push((PathBuf::from(document), "text/plain; charset=utf-8"));
    }
    files.sort();
    let mut sum = Crc::new();
    sum.update(problems.as_bytes());
    for (path, _) in &files {
        sum.update(path.to_string_lossy().as_bytes());
        sum.update(&fs::read(path)?);
    }
    let version = format!("{:08x}", sum.sum());
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no folder for output")?);
    let mut table = format!("const VERSION: &str = {version:?};\nconst FILES: &[File] = &[\n");
    for (number, (path, media_type)) in files.iter().enumerate() {
        let mut bytes = fs::read(path)?;
        if media_type.starts_with("text/html") {
            let text = String::from_utf8(bytes)?;
            let text = text.replace(PLACEHOLDER, &format!("/assets/{version}"));
            bytes = text.replace(PROBLEMS, &problems).into_bytes();
        } else if path.starts_with("pages")
            && !path.starts_with("pages/vendor")
            && media_type.starts_with("text/")
        {
            let is_script = media_type.starts_with("text/javascript");
            bytes = without_comments(&String::from_utf8(bytes)?, is_script).into_bytes();
        }
        let (plain, gzipped) =
            (out.join(format!("page.{number}")), out.join(format!("page.{number}.gz")));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes)?;
        fs::write(&gzipped, encoder.finish()?)?;
        fs::write(&plain, bytes)?;
        let name = path.strip_prefix("pages").unwrap_or(path);
        writeln!(
            table,
            "File {{ name: {name:?}, media_type: {media_type:?}, plain: include_bytes!({plain:?}), gzipped: include_bytes!({gzipped:?}) }},"
        )?;
    }
    table.push_str("];\n");
    fs::write(out.join("pages.rs"), table)?;
    Ok(())
}

/// The document of problems as HTML: a heading for each part, and an article for each row.
fn problems(document: &str) -> Result<String, Box<dyn Error>> {
    let mut page = String::new();
    for line in document.lines() {
        if let Some(part) = line.strip_prefix("## ") {
            writeln!(page, "<h2>{}</h2>", html(part))?;
        }
        let Some(row) = line.strip_prefix("| `") else { continue };
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let [code, status, title, meaning, remedy] = cells[..] else {
            return Err(format!("docs/problems.md: {line:?} has no five cells").into());
        };
        let code = code.trim_end_matches('`');
        let mut body = format!(
            "{{\n  \"type\": \"/docs/problems#{code}\",\n  \"title\": {title:?},\n  \"status\": {status},\n  \
             \"code\": {code:?},\n  \"detail\": {meaning:?},\n  \"request_id\": \"989103e2-66e1-472d-b818-b2d3dc861f69\""
        );
        for (word, member, value) in RARE_MEMBERS {
            if row.contains(word) {
                write!(body, ",\n  {member:?}: {value}")?;
            }
        }
        writeln!(
            page,
            "<article class=\"panel\" id=\"{code}\"><h3>{}</h3><p class=\"aside\"><code>{code}</code> {status}</p>\
             <div lang=\"en\"><p>{}</p><p>{}</p><pre>{}\n}}</pre></div></article>",
            html(title),
            html(meaning),
            html(remedy),
            body.replace('&', "&amp;").replace('<', "&lt;"),
        )?;
    }
    Ok(page)
}

/// A text of Markdown as HTML.
fn html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let parts = text.split('`').enumerate();
    let tagged = parts.map(|(number, part)| match number % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    tagged.collect()
}

/// A script or a sheet of styles without the lines that are comments or empty, and without the spaces that lines begin with:
/// an eighth of the bytes that a browser would load. Comments stand on lines of their own, in a sheet of styles one on each,
/// and no text of a script goes over several lines but templates, in which spaces mean nothing
/// (`tests/it/http/pages/mod.rs` says the same).
fn without_comments(text: &str, is_script: bool) -> String {
    let is_comment = |line: &&str| {
        let inside = is_script && ["//", "* ", "*/"].iter().any(|begin| line.starts_with(begin));
        inside || line.starts_with("/*")
    };
    let lines = text.split_inclusive('\n').map(|line| line.trim_start_matches(' '));
    lines.filter(|line| !line.trim().is_empty() && !is_comment(line)).collect()
}

/// The files below a folder that have a media type.
fn find(folder: &Path, found: &mut Vec<(PathBuf, &'static str)>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            find(&path, found)?;
        } else if let Some((_, media_type)) =
            MEDIA_TYPES.iter().find(|(known, _)| ending == Some(*known))
        {
            found.push((path, media_type));
        }
    }
    Ok(())
}
