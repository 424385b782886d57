//! Words, texts and signs of a language with simple rules: Lua, or SQL.

use std::ops::Range;

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or a keyword.
    Word,
    /// A number, or a parameter such as `$1`.
    Number,
    /// A text in quotes.
    Text,
    /// A name in quotes.
    Quoted,
    /// An operator or a bracket.
    Sign,
}

/// A token and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Kind of the token.
    pub kind: Kind,
    /// Place of the token.
    pub range: Range<usize>,
    /// Its text.
    pub text: String,
    /// Number of brackets that are open around it; brackets stand outside of themselves.
    pub depth: usize,
}

/// Differences between the languages.
pub struct Grammar {
    /// Operators of more than one character, longest first.
    pub signs: &'static [&'static str],
    /// Quotes around texts.
    pub texts: &'static [char],
    /// Quotes around names.
    pub names: &'static [char],
    /// Whether a backslash escapes the next character of a text.
    pub escapes: bool,
}

impl Token {
    /// Whether it is this word or sign; words in any case.
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Sign) && self.text.eq_ignore_ascii_case(text)
    }

    /// Whether it is one of these words or signs.
    pub fn is_any(&self, texts: &[&str]) -> bool {
        texts.iter().any(|text| self.is(text))
    }
}

/// The tokens of a text. Both languages have comments from `--` to the end of a line; a first line `#!` is one, too.
pub fn tokens(text: &str, grammar: &Grammar) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if rest.starts_with("--") || at == 0 && rest.starts_with("#!") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let (kind, length) = next(rest, c, grammar);
        let range = at..at + length;
        at = range.end;
        let token = text[range.clone()].to_owned();
        if matches!(token.as_str(), ")" | "]" | "}") && kind == Kind::Sign {
            depth = depth.saturating_sub(1);
        }
        let opens = matches!(token.as_str(), "(" | "[" | "{") && kind == Kind::Sign;
        tokens.push(Token { kind, range, text: token, depth });
        depth += usize::from(opens);
    }
    tokens
}

fn next(rest: &str, c: char, grammar: &Grammar) -> (Kind, usize) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let word =
        |from: usize| rest[from..].find(|c| !is_word(c)).map_or(rest.len(), |end| from + end);
    if grammar.texts.contains(&c) {
        (Kind::Text, quoted(rest, c, grammar.escapes))
    } else if grammar.names.contains(&c) {
        (Kind::Quoted, quoted(rest, c, false))
    } else if c.is_ascii_digit() {
        (Kind::Number, word(0))
    } else if c == '$' {
        (Kind::Number, word(1))
    } else if is_word(c) {
        (Kind::Word, word(0))
    } else {
        let sign = grammar.signs.iter().find(|sign| rest.starts_with(**sign));
        (Kind::Sign, sign.map_or(c.len_utf8(), |sign| sign.len()))
    }
}

fn quoted(rest: &str, quote: char, escapes: bool) -> usize {
    let mut escaped = false;
    let end = rest[1..].find(|c| {
        let closes = c == quote && !escaped;
        escaped = escapes && c == '\\' && !escaped;
        closes
    });
    end.map_or(rest.len(), |end| end + 2)
}

/// The text with ranges of it replaced.
pub fn replaced(text: &str, range: &Range<usize>, by: &str) -> String {
    format!("{}{by}{}", &text[..range.start], &text[range.end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_comments_are_told_from_code() {
        let grammar =
            Grammar { signs: &["<=", "::"], texts: &['\''], names: &['"'], escapes: false };
        let text = "a<=b::int -- c 'd\n AND f('it, (', $12) \"x: Y\"";
        let tokens = tokens(text, &grammar);
        let found: Vec<(&str, usize)> = tokens.iter().map(|t| (t.text.as_str(), t.depth)).collect();
        let expected = [
            ("a", 0),
            ("<=", 0),
            ("b", 0),
            ("::", 0),
            ("int", 0),
            ("AND", 0),
            ("f", 0),
            ("(", 0),
            ("'it, ('", 1),
            (",", 1),
            ("$12", 1),
            (")", 0),
            ("\"x: Y\"", 0),
        ];
        assert_eq!(found, expected);
    }
}
