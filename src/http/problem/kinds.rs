//! All kinds of problems. The table is docs/problems.md itself: titles and statuses of problem bodies, the page
//! `/docs/problems` and the codes of each operation in `/openapi.json` are read from it.

use std::fmt::Write;
use std::sync::LazyLock;

use axum::Router;
use axum::response::Html;
use axum::routing::get;

/// A kind of problem, which is a row of the table.
pub struct Kind {
    /// Heading above the row.
    group: &'static str,
    /// Name for programs; never changes.
    pub code: &'static str,
    /// HTTP status of each reply with it.
    pub status: u16,
    /// Name for people.
    pub title: &'static str,
    /// State of things that it tells of.
    pub meaning: &'static str,
    /// The client's remedy.
    remedy: &'static str,
    /// Example of the words in a reply.
    pub detail: &'static str,
}

/// Path of the document; a code follows behind `#`.
pub const DOCUMENT: &str = "/docs/problems";

static TABLE: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let mut group = "";
    let mut table = Vec::new();
    for line in include_str!("../../../docs/problems.md").lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            group = heading;
        } else if let Some(row) = line.strip_prefix("| `") {
            let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
            let &[code, status, title, meaning, remedy, detail] = &cells[..] else {
                panic!("a row of docs/problems.md has six cells: {line}");
            };
            let code = code.trim_end_matches('`');
            let status = status.parse().expect("the second cell is a status");
            table.push(Kind { group, code, status, title, meaning, remedy, detail });
        }
    }
    table
});

impl Kind {
    /// The kind with this code.
    pub fn of(code: &str) -> Option<&'static Self> {
        Self::all().find(|kind| kind.code == code)
    }

    /// All kinds, in the order of the table.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        TABLE.iter()
    }

    /// Address of its part of the document, and `type` of its problem bodies (RFC 9457, section 3.1.1).
    pub fn page(&self) -> String {
        format!("{DOCUMENT}#{}", self.code)
    }

    /// True if a reply may tell when to ask again: by the header Retry-After and the member `retry_after_ms`.
    pub fn tells_when(&self) -> bool {
        matches!(self.status, 429 | 503)
            || ["sale_not_started", "too_many_closed_orders"].contains(&self.code)
    }
}

/// The document for people.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route(DOCUMENT, get(|| async { Html(page()) }))
}

fn page() -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>Problems - flash-sale</title>\n<h1>Problems</h1>\n\
         <p><a href=\"/docs/\">All operations</a></p>\n",
    );
    let mut above = "";
    for Kind { group, code, status, title, meaning, remedy, .. } in Kind::all() {
        if above != *group {
            let _ = writeln!(page, "<h2>{group}</h2>");
            above = group;
        }
        let (meaning, remedy) = (html(meaning), html(remedy));
        let _ = writeln!(
            page,
            "<h3 id=\"{code}\">{title}</h3>\n<p><code>{code}</code>, status {status}. {meaning}</p>\n\
             <p>What a client does: {remedy}</p>"
        );
    }
    page + "</html>\n"
}

/// The text with its backticks as code.
fn html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let parts = text.split('`').enumerate();
    let part = |(at, part): (usize, &str)| match at % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    };
    parts.map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_row_is_a_kind_of_its_own_in_plain_words() {
        let codes: HashSet<&str> = Kind::all().map(|kind| kind.code).collect();
        assert_eq!(codes.len(), Kind::all().count());
        assert!(Kind::of("sold_out").is_some_and(|kind| kind.status == 410));
        assert!(Kind::of("sold").is_none());
        for kind in Kind::all() {
            assert!((400..600).contains(&kind.status) && !kind.group.is_empty(), "{}", kind.code);
            for text in [kind.meaning, kind.remedy] {
                assert!(text.ends_with('.') && text.starts_with(char::is_uppercase), "{text}");
                assert!(!text.contains("::"), "{text}");
            }
        }
    }

    #[test]
    fn the_page_has_a_place_for_each_kind_with_code_marked_and_angles_escaped() {
        let page = page();
        for kind in Kind::all() {
            assert!(page.contains(&format!("<h3 id=\"{}\">", kind.code)), "{}", kind.code);
        }
        assert_eq!(html("a < `b` & c"), "a &lt; <code>b</code> &amp; c");
    }
}
