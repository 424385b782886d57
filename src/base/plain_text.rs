//! Makes text of others safe for a terminal and a log. A control character can move the cursor, colour what follows or
//! forge a line. A character that changes the direction of text can make other text appear than is there.

use std::io::{self, Write};

/// Whether the character acts instead of being shown. Line breaks and tabs count, too.
pub fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}')
        || turns_direction(character)
}

/// Whether the character changes the direction of the text around it (Unicode property Bidi_Control).
pub fn turns_direction(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes acting characters as JSON does, `\u001b`. Line breaks and tabs stay.
pub fn escaped(text: &str) -> String {
    let stays = |character| character == '\n' || character == '\t';
    text.chars().map(|one| if stays(one) { one.into() } else { shown(one) }).collect()
}

fn shown(character: char) -> String {
    match acts(character) {
        true => format!("\\u{:04x}", u32::from(character)),
        false => character.into(),
    }
}

/// Writes log lines, one per call. Escapes acting characters, so that each entry stays on one line. ESC stays, because
/// the colours of the log begin with it; the caller escapes ESC in the text of others.
pub struct LogLines<W>(pub W);

impl<W: Write> Write for LogLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let (line, end) = text.strip_suffix('\n').map_or((&*text, ""), |line| (line, "\n"));
        let shown = |one: char| if one == '\u{1b}' { one.into() } else { shown(one) };
        let line: String = line.chars().map(shown).collect();
        self.0.write_all((line + end).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "a\u{1b}[2J\u{9b}31m\r\u{202e}b\u{2028}";

    #[test]
    fn what_acts_is_shown() {
        assert_eq!(escaped("Größe 茶\n\tx"), "Größe 茶\n\tx");
        assert_eq!(escaped(EVIL), r"a\u001b[2J\u009b31m\u000d\u202eb\u2028");
    }

    #[test]
    fn a_line_of_a_log_is_one_line() {
        let mut lines = LogLines(Vec::new());
        write!(lines, "INFO a\nWARN forged\u{9b}\u{202e}\n").expect("memory is there");
        let written = String::from_utf8(lines.0).expect("it is text");
        assert_eq!(written, "INFO a\\u000aWARN forged\\u009b\\u202e\n");
    }
}
