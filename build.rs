//! Prepares what the binary embeds: the pages, that of problems made of docs/problems.md, and documents that they lead to,
//! each file also compressed, as the table of `src/http/pages/files.rs`.
//! `sqlx::migrate!` embeds the migrations, but stable Rust can't tell cargo that it read a folder.

use std::collections::{BTreeMap, BTreeSet};
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

/// The folder whose scripts are sent as one file, with all that they import. A browser opens six connections to a server:
/// the shopper's page would come in three rounds, each as long as the line is slow.
const BUNDLED: &str = "pages/shop";

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
    let is_inside = |path: &Path| path.starts_with(BUNDLED) && !path.ends_with("main.js");
    files.retain(|(path, _)| !is_inside(path));
    for document in DOCUMENTS {
        println!("cargo:rerun-if-changed={document}");
        files.push((PathBuf::from(document), "text/plain; charset=utf-8"));
    }
    files.sort();
    let mut sum = Crc::new();
    sum.update(problems.as_bytes());
    for (path, _) in &files {
        sum.update(path.to_string_lossy().as_bytes());
        sum.update(&content(path)?);
    }
    let version = format!("{:08x}", sum.sum());
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no folder for output")?);
    let mut table = format!("const VERSION: &str = {version:?};\nconst FILES: &[File] = &[\n");
    for (number, (path, media_type)) in files.iter().enumerate() {
        let mut bytes = content(path)?;
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

/// The bytes of a file; of a script that is bundled, with those of all that it imports.
fn content(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    if !path.starts_with(BUNDLED) {
        return Ok(fs::read(path)?);
    }
    let mut modules = Vec::new();
    add_module(path, &mut modules)?;
    let mut vendored: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut scripts = String::new();
    for (number, module) in modules.iter().enumerate() {
        let (body, exports) = body_of(module, &modules, &mut vendored)?;
        match module == path {
            true => scripts += &body,
            // A function of its own, so that no name of one module is known in another.
            false => writeln!(
                scripts,
                "const module{number} = (() => {{\n{body}return {{ {} }};\n}})();",
                exports.join(", ")
            )?,
        }
    }
    let mut bundle = String::new();
    for (from, names) in vendored {
        let names: Vec<String> = names.into_iter().collect();
        writeln!(bundle, "import {{ {} }} from {from};", names.join(", "))?;
    }
    Ok((bundle + &scripts).into_bytes())
}

/// Adds a module behind all that it imports.
fn add_module(path: &Path, modules: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    if modules.iter().any(|known| known == path) {
        return Ok(());
    }
    for line in fs::read_to_string(path)?.lines() {
        if let Some((_, from)) = imported(line)
            && !from.contains("/vendor/")
        {
            add_module(&beside(path, from), modules)?;
        }
    }
    modules.push(path.to_owned());
    Ok(())
}

/// The statements of a module in place of its imports and exports, and what it exports. Both stand in lines of their own.
fn body_of(
    path: &Path,
    modules: &[PathBuf],
    vendored: &mut BTreeMap<String, BTreeSet<String>>,
) -> Result<(String, Vec<String>), Box<dyn Error>> {
    let (mut body, mut exports) = (String::new(), Vec::new());
    for line in fs::read_to_string(path)?.lines() {
        if let Some((names, from)) = imported(line) {
            if from.contains("/vendor/") {
                let names = names.trim_matches(['{', '}', ' ']).split(", ").map(str::to_owned);
                vendored.entry(from.to_owned()).or_default().extend(names);
                continue;
            }
            let from = beside(path, from);
            let number = modules.iter().position(|module| *module == from).ok_or("not there")?;
            let names = match names.starts_with('{') {
                true => names.replace(" as ", ": "),
                false => format!("{{ default: {names} }}"),
            };
            writeln!(body, "const {names} = module{number};")?;
        } else if let Some(value) = line.strip_prefix("export default ") {
            writeln!(body, "const byDefault = {value}")?;
            exports.push("default: byDefault".to_owned());
        } else if let Some(declared) = line.strip_prefix("export ") {
            let mut words = declared.trim_start_matches("async ").split([' ', '(']);
            let name = words.nth(1).ok_or_else(|| format!("{}: {line}", path.display()))?;
            exports.push(name.to_owned());
            writeln!(body, "{declared}")?;
        } else {
            writeln!(body, "{line}")?;
        }
    }
    Ok((body, exports))
}

/// What a line imports, and the path in quotation marks.
fn imported(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("import ")?.strip_suffix(';')?.split_once(" from ")
}

/// The file at a path that is relative to that of a module.
fn beside(module: &Path, from: &str) -> PathBuf {
    let from = from.trim_matches('\'');
    let folder = module.parent().unwrap_or(Path::new(""));
    match from.strip_prefix("../") {
        Some(from) => folder.parent().unwrap_or(folder).join(from),
        None => folder.join(from.trim_start_matches("./")),
    }
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
