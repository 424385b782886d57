//! Log lines of an app in this process, and the numbers on its page of metrics.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use flash_sale::app::App;
use private_servers::testing::ask_each_time;
use tracing::subscriber::DefaultGuard;

/// Log lines of this test's thread, from warnings and errors down to information, until this is dropped.
pub struct Lines {
    text: Text,
    _heard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no holder of this lock panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Listens from now on.
    pub fn heard() -> Self {
        Self::down_to(tracing::Level::INFO)
    }

    /// The same, down to this level. Each statement that Postgres has answered is a line of DEBUG.
    pub fn down_to(level: tracing::Level) -> Self {
        ask_each_time();
        let text = Text::default();
        let writer = text.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_max_level(level);
        let lines = lines.with_writer(move || writer.clone()).finish();
        Self { text, _heard: tracing::subscriber::set_default(lines) }
    }

    /// Number of lines so far with these words.
    pub fn count(&self, words: &str) -> usize {
        self.with(words).len()
    }

    /// The lines so far with these words.
    pub fn with(&self, words: &str) -> Vec<String> {
        let text = self.text.0.lock().expect("no holder of this lock panics").clone();
        let text = String::from_utf8(text).expect("lines are UTF-8");
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

/// The number behind a line of this app's page of metrics.
pub fn number(app: &App, name: &str) -> f64 {
    let page = app.metrics.page();
    let found = page.lines().filter_map(|line| line.rsplit_once(' ')).find(|(is, _)| *is == name);
    let (_, number) = found.unwrap_or_else(|| panic!("{name} isn't on the page"));
    number.parse().expect("a number")
}
