//! The words of a command on standard output, which may be a terminal.

use std::io::Write;

use crate::base::plain_text::escaped;

/// Prints a line, as `println!` would, with what acts in it escaped.
macro_rules! say {
    ($($words:tt)*) => { $crate::cli::terminal::print(&format!($($words)*)) };
}
pub(super) use say;

/// Prints a line. A reader that has gone away isn't missed.
pub fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{}", escaped(line));
}
