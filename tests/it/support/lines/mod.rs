//! Log lines of an app in this process, and the numbers on its page of metrics.

use flash_sale::app::App;
pub use private_servers::testing::LogLines as Lines;

/// The number behind a line of this app's page of metrics.
pub fn number(app: &App, name: &str) -> f64 {
    let page = app.metrics.page();
    let found = page.lines().filter_map(|line| line.rsplit_once(' ')).find(|(is, _)| *is == name);
    let (_, number) = found.unwrap_or_else(|| panic!("{name} isn't on the page"));
    number.parse().expect("a number")
}
