//! Standard output of a command, which may be a terminal.

use std::io::Write;

use crate::base::plain_text::escaped;

/// Prints a line like `println!`, with characters escaped that a terminal would act on.
macro_rules! say {
    ($($words:tt)*) => { $crate::cli::terminal::print(&format!($($words)*)) };
}
pub(super) use say;

/// Prints a line. If its reader has gone away, that is ignored.
pub fn print(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{}", escaped(line));
}
