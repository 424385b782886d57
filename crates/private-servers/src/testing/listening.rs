//! Log lines that a test's thread hears, beside the threads of other tests.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, Once};

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Metadata, Subscriber};

/// Log lines of this test's thread, from errors down to information, until this is dropped.
#[derive(Debug)]
pub struct LogLines {
    text: Text,
    _heard: DefaultGuard,
}

#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no holder of this lock panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogLines {
    /// Listens from now on.
    #[must_use]
    pub fn heard() -> Self {
        Self::down_to(tracing::Level::INFO)
    }

    /// The same, down to this level. sqlx tells each statement that Postgres has answered at DEBUG.
    #[must_use]
    pub fn down_to(level: tracing::Level) -> Self {
        ask_each_time();
        let text = Text::default();
        let writer = text.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_max_level(level);
        let lines = lines.with_writer(move || writer.clone()).finish();
        Self { text, _heard: tracing::subscriber::set_default(lines) }
    }

    /// Number of lines so far with these words.
    #[must_use]
    pub fn count(&self, words: &str) -> usize {
        self.with(words).len()
    }

    /// The lines so far with these words.
    ///
    /// # Panics
    ///
    /// When the lines are no text.
    #[must_use]
    pub fn with(&self, words: &str) -> Vec<String> {
        let text = self.text.0.lock().expect("no holder of this lock panics").clone();
        let text = String::from_utf8(text).expect("lines are UTF-8");
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

/// Has each place that logs ask each time whether its thread listens. Otherwise a place notes once that no thread does; and
/// it may miss one that begins to listen at that very moment. To be called before the code under test runs.
///
/// # Panics
///
/// When something else listens to all threads of the process.
pub fn ask_each_time() {
    static ASKED: Once = Once::new();
    ASKED.call_once(|| tracing::subscriber::set_global_default(Asked).expect("the only one"));
}

/// Listens to nothing itself.
struct Asked;

impl Subscriber for Asked {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
