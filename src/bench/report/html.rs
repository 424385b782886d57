//! One page that needs nothing else: no network, no script, no font.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use plotters::style::RGBColor;

use super::plots::{self, GRID, INK, Plot};
use super::table::{self, Rows};
use crate::bench::run::RunReport;

const STYLE: &str = include_str!("page.css");

/// Writes `index.html`, and each plot as a file of its own.
pub fn write(report: &RunReport, folder: &Path) -> anyhow::Result<()> {
    let plots = plots::all(report)?;
    let unwritable = || format!("{} can't be written to", folder.display());
    std::fs::create_dir_all(folder).with_context(unwritable)?;
    for plot in &plots {
        let file = folder.join(format!("{}.svg", plot.name));
        std::fs::write(file, alone(&plot.svg)).with_context(unwritable)?;
    }
    std::fs::write(folder.join("index.html"), page(report, &plots)).with_context(unwritable)
}

fn page(report: &RunReport, plots: &[Plot]) -> String {
    let verdict = &report.verdict;
    let class = if verdict.findings.is_empty() { "good" } else { "void" };
    let mut body = format!("<p class=\"{class}\">Verdict: {}</p>\n", escape(&verdict.sentence()));
    for finding in &verdict.findings {
        let _ = writeln!(body, "<p class=\"void\">Void: {}</p>", escape(finding));
    }
    let mut facts = report.machine.facts();
    let arguments = if report.service_args.is_empty() { "none" } else { &report.service_args };
    facts.push(("service arguments", arguments.to_owned()));
    let facts = facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    section(&mut body, "Where and on what", "", &facts, false);
    let closed = "Closed loop, unless a rate was given: each connection sends its next request when the last one is \
        answered. Medians of the slices; CPU time in microseconds per request, told apart by process. Troubles are \
        failures, time-outs, “overloaded”, and requests that were never sent.";
    section(&mut body, "What came through", closed, &table::throughput(&report.summaries), true);
    let latencies = table::latencies(report);
    if latencies.len() > 1 {
        let open = "Requests at a constant rate. Each latency counts from when the request was due, so a stall shows in all that \
            were due meanwhile. “Sent late” is the part of it before a connection was free and the client came to it.";
        section(&mut body, "Latency", open, &latencies, true);
        let law = "What is in the system at one time (L) is what comes in (λ) times how long each stays (W). Both sides \
            are measured apart: L by looking every few milliseconds, λ by counting answers, W from the latencies.";
        section(&mut body, "Little’s law", law, &table::littles_law(report), true);
    }
    for plot in plots {
        let _ = writeln!(body, "<h2>{}</h2>\n<figure>{}</figure>", plot.title, inline(&plot.svg));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
        <meta name=\"color-scheme\" content=\"light dark\">\n<title>flash-sale bench</title>\n<style>\n{STYLE}</style>\n\
        <h1>flash-sale bench</h1>\n{body}</html>\n"
    )
}

fn section(body: &mut String, title: &str, text: &str, rows: &Rows, has_head: bool) {
    let _ = writeln!(body, "<h2>{title}</h2>\n<p>{text}</p>\n<div class=\"wide\"><table>");
    for (at, row) in rows.iter().enumerate() {
        let tag = if has_head && at == 0 { "th" } else { "td" };
        let cells: String =
            row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        let _ = writeln!(body, "<tr>{cells}</tr>");
    }
    body.push_str("</table></div>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Within the page it takes the page's colours, and needs no name space.
fn inline(svg: &str) -> String {
    svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "")
        .replace(&hex(INK), "currentColor")
        .replace(&hex(GRID), "var(--grid)")
        .replace("fill=\"#FFFFFF\"", "fill=\"none\"")
}

/// As a file it has a background of its own, because nobody knows what it is looked at on.
fn alone(svg: &str) -> String {
    let svg = svg.replace(&hex(GRID), "#D8DCE0");
    let paper = "<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>";
    match svg.find('>') {
        Some(end) => format!("{}{paper}{}", &svg[..=end], &svg[end + 1..]),
        None => svg,
    }
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_takes_the_colours_of_its_page_and_names_no_address() {
        let svg = "<svg width=\"1\" xmlns=\"http://www.w3.org/2000/svg\"><line stroke=\"#102031\"/></svg>";
        assert_eq!(inline(svg), "<svg width=\"1\"><line stroke=\"currentColor\"/></svg>");
        assert!(alone(svg).contains("<rect width=\"100%\""));
    }

    #[test]
    fn text_is_text() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
