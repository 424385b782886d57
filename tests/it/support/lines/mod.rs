//! Log lines of an app in this process, and the numbers on its page of metrics.

use flash_sale::app::App;
pub use private_servers::testing::LogLines as Lines;

/// Rows that each statement with these words has returned, by lines down to DEBUG.
pub fn rows_returned(lines: &Lines, words: &str) -> Vec<u64> {
    let rows = |line: &String| {
        let (_, rows) = line.split_once("rows_returned=").expect("a line of a statement");
        rows.split(' ').next().and_then(|rows| rows.parse().ok()).expect("a number")
    };
    lines.with(words).iter().map(rows).collect()
}

/// The number behind a line of this app's page of metrics.
pub fn number(app: &App, name: &str) -> f64 {
    let page = app.metrics.page();
    let found = page.lines().filter_map(|line| line.rsplit_once(' ')).find(|(is, _)| *is == name);
    let (_, number) = found.unwrap_or_else(|| panic!("{name} isn't on the page"));
    number.parse().expect("a number")
}
