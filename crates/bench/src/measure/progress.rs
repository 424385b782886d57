//! Progress on a terminal; silent where there is none.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// One bar over all slices.
pub struct Progress {
    bar: ProgressBar,
}

const SCALE: f64 = 1_000.0;

impl Progress {
    /// For so many seconds of load in all.
    pub fn new(seconds: f64) -> Self {
        // indicatif draws on standard error, and only if that is a terminal.
        let bar = ProgressBar::new((seconds * SCALE) as u64);
        let style = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Shows the current step.
    pub fn say(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
        self.bar.tick();
    }

    /// Adds load that was not foreseen.
    pub fn more(&self, time: Duration) {
        self.bar.inc_length((time.as_secs_f64() * SCALE) as u64);
    }

    /// Counts load that is over.
    pub fn passed(&self, time: Duration) {
        self.bar.inc((time.as_secs_f64() * SCALE) as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
