//! Log lines that a test's thread hears, beside the threads of other tests.

use std::sync::Once;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

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
