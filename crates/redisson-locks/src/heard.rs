//! Records the log lines of the code under test.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

/// The lines of this thread, until it is dropped.
pub(crate) struct Heard {
    lines: Lines,
    _listens: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Heard {
    pub(crate) fn from_now_on() -> Self {
        private_servers::testing::ask_each_time();
        let lines = Lines::default();
        Self { _listens: tracing::subscriber::set_default(lines.clone()), lines }
    }

    /// The lines of this crate since the last call: `LEVEL message field=value ...`.
    pub(crate) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.0.lock().expect("no holder panics"))
    }
}

impl Subscriber for Lines {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target().starts_with("redisson_locks")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("no holder panics").push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
