//! Mutants of a Lua script: each is the whole script with one change.
//!
//! Comparisons take or leave equality, or say the opposite where they are values; of `and` and `or` one side is left out; conditions are taken
//! for true and for false, which leaves out an `if ... then return ... end`; calls of Redis and assignments are left out;
//! arithmetic is turned round; numbers are one more. Texts stay: a code that is misspelt is found by any test.

use std::ops::Range;

use crate::mutant::{Key, Language, Mutant, Occurrences, hash, snippet};
use crate::source::Source;
use crate::token::{Grammar, Kind, Token, replaced, tokens};

const GRAMMAR: Grammar = Grammar {
    signs: &["...", "..", "==", "~=", "<=", ">="],
    texts: &['\'', '"'],
    names: &[],
    escapes: true,
};

/// Words and signs that an operand of `and` or `or` doesn't reach over.
const ENDS: &[&str] = &[
    "then", "do", "return", "if", "elseif", "while", "until", "in", "end", "else", "local",
    "function", "repeat", "=", ",", ";",
];

/// A script and its tokens.
struct Script<'a> {
    source: &'a Source,
    tokens: Vec<Token>,
    number: u32,
    occurrences: Occurrences,
    mutants: Vec<Mutant>,
}

/// The mutants of a script. `number` is that of the place where it is loaded.
pub fn mutants(source: &Source, number: u32) -> Vec<Mutant> {
    let tokens = tokens(&source.text, &GRAMMAR);
    let mut script =
        Script { source, tokens, number, occurrences: Occurrences::default(), mutants: Vec::new() };
    for at in 0..script.tokens.len() {
        script.operators(at);
        script.conditions(at);
        script.statements(at);
    }
    script.mutants
}

impl Script<'_> {
    fn change(&mut self, operator: &str, range: Range<usize>, by: &str) {
        let text = replaced(&self.source.text, &range, by);
        // Of `a or b or c`, the middle is on a side of both.
        if self.mutants.iter().any(|mutant| mutant.text.as_ref() == Some(&text)) {
            return;
        }
        let shown = self.shown(&range);
        let by_shown = replaced(
            &self.source.text[shown.clone()],
            &(range.start - shown.start..range.end - shown.start),
            by,
        );
        let by_shown = if operator == "statement" { String::new() } else { by_shown };
        let key = self.occurrences.count(Key {
            file: self.source.path.clone(),
            function: self.function(range.start),
            operator: operator.to_owned(),
            original: snippet(&self.source.text[shown]),
            mutation: snippet(&by_shown),
            occurrence: 0,
        });
        self.mutants.push(Mutant {
            key,
            language: Language::Lua,
            lines: self.source.lines(&range),
            context: hash(&self.source.text),
            number: self.number,
            text: Some(text),
        });
    }

    /// Text around a change for people: its line, if that is one.
    fn shown(&self, range: &Range<usize>) -> Range<usize> {
        let text = &self.source.text;
        if text[range.clone()].contains('\n') {
            return range.clone();
        }
        let begin = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
        let end = text[range.end..].find('\n').map_or(text.len(), |at| range.end + at);
        begin..end
    }

    /// The innermost named function around an offset.
    fn function(&self, at: usize) -> String {
        let before = self.tokens.iter().take_while(|token| token.range.start <= at);
        let mut open: Vec<String> = Vec::new();
        let mut previous = "";
        for token in before {
            match token.text.as_str() {
                _ if token.kind != Kind::Word => {}
                "function" | "then" | "do" | "repeat" => open.push(String::new()),
                "end" | "until" | "elseif" | "else" => {
                    open.pop();
                    if token.is("else") {
                        open.push(String::new());
                    }
                }
                name if previous == "function" => {
                    if let Some(last) = open.last_mut() {
                        name.clone_into(last);
                    }
                }
                _ => {}
            }
            previous = &token.text;
        }
        open.into_iter().rev().find(|name| !name.is_empty()).unwrap_or_default()
    }

    fn operators(&mut self, at: usize) {
        let token = self.tokens[at].clone();
        let swap = match token.text.as_str() {
            "<" => ("boundary", "<="),
            "<=" => ("boundary", "<"),
            ">" => ("boundary", ">="),
            ">=" => ("boundary", ">"),
            // Within a condition, taking parts of it for true and false shows more.
            "==" if !self.is_within_condition(at) => ("comparison", "~="),
            "~=" if !self.is_within_condition(at) => ("comparison", "=="),
            "+" => ("arithmetic", "-"),
            "-" if self.is_operand(at.wrapping_sub(1)) => ("arithmetic", "+"),
            "*" => ("arithmetic", "/"),
            "/" => ("arithmetic", "*"),
            "true" => ("literal", "false"),
            "false" => ("literal", "true"),
            "max" => ("method", "min"),
            "min" => ("method", "max"),
            "not" if !self.is_within_condition(at) => ("condition", ""),
            _ => match (token.kind, token.text.parse::<u64>()) {
                (Kind::Number, Ok(number)) if !self.is_index(at) => {
                    self.change("number", token.range, &(number + 1).to_string());
                    return;
                }
                _ => return,
            },
        };
        if matches!(token.kind, Kind::Word | Kind::Sign) {
            self.change(swap.0, token.range, swap.1);
        }
    }

    /// Whether a number is an index, as in `ARGV[1]`: a wrong one is found by any test.
    fn is_index(&self, at: usize) -> bool {
        at > 0 && self.tokens[at - 1].is("[") && self.tokens[at + 1].is("]")
    }

    /// Whether a token stands between `if` and `then`.
    fn is_within_condition(&self, at: usize) -> bool {
        let before = self.tokens[..at].iter().rev();
        let mut before = before.filter(|token| token.is_any(&["if", "elseif", "then", "end", "="]));
        before.next().is_some_and(|token| token.is_any(&["if", "elseif"]))
    }

    fn is_operand(&self, at: usize) -> bool {
        let Some(token) = self.tokens.get(at) else {
            return false;
        };
        match token.kind {
            Kind::Sign => token.is_any(&[")", "]", "}"]),
            Kind::Word => !token.is_any(ENDS) && !token.is_any(&["and", "or", "not"]),
            _ => true,
        }
    }

    fn conditions(&mut self, at: usize) {
        let token = self.tokens[at].clone();
        if token.is_any(&["and", "or"]) {
            let (first, last) = (self.first_of_left(at), self.last_of_right(at));
            let (begin, end) = (self.tokens[first].range.start, self.tokens[last].range.end);
            // The side that stays behind stands where both stood.
            self.change("condition", begin..self.tokens[at + 1].range.start, "");
            self.change("condition", self.tokens[at - 1].range.end..end, "");
        }
        if token.is_any(&["if", "elseif"]) {
            let then = (at..self.tokens.len()).find(|&next| self.tokens[next].is("then"));
            let Some(then) = then else {
                return;
            };
            let range = self.tokens[at + 1].range.start..self.tokens[then - 1].range.end;
            let joined = |word: &str| {
                let inside = &self.tokens[at + 1..then];
                inside.iter().any(|token| token.is(word) && token.depth == self.tokens[at].depth)
            };
            // A part of it shows the same already.
            let (by_and, by_or) = (joined("and"), joined("or"));
            if !by_and || by_or {
                self.change("condition", range.clone(), "true");
            }
            if !by_or || by_and {
                self.change("condition", range, "false");
            }
        }
    }

    /// The first token of what stands to the left of `and` or `or`.
    fn first_of_left(&self, at: usize) -> usize {
        let mut first = at;
        while first > 0 && !self.is_end(first - 1, at, first) {
            first -= 1;
        }
        first
    }

    /// The last token of what stands to the right of it.
    fn last_of_right(&self, at: usize) -> usize {
        let mut last = at;
        while last + 1 < self.tokens.len() && !self.is_end(last + 1, at, last + 1) {
            last += 1;
        }
        last
    }

    /// Whether the token at `next` lies outside of the operands of the operator at `of`. `line` is the token behind the
    /// border that is crossed, which no operand crosses at the end of a statement.
    fn is_end(&self, next: usize, of: usize, line: usize) -> bool {
        let (token, operator) = (&self.tokens[next], &self.tokens[of]);
        if token.depth != operator.depth {
            // A bracket around both, or something within an operand.
            return token.depth < operator.depth;
        }
        let binds_less = token.is("or") || token.is("and") && operator.is("and");
        binds_less || token.is_any(ENDS) || operator.depth == 0 && self.begins_line(line)
    }

    fn begins_line(&self, at: usize) -> bool {
        let Some(token) = self.tokens.get(at) else {
            return true;
        };
        let from = if at == 0 { 0 } else { self.tokens[at - 1].range.end };
        self.source.text[from..token.range.start].contains('\n')
    }

    fn statements(&mut self, at: usize) {
        let token = self.tokens[at].clone();
        let begins = at == 0
            || self.begins_line(at)
            || self.tokens[at - 1].is_any(&["then", "do", "else", "repeat"]);
        if token.depth > 0 || token.kind != Kind::Word || !begins {
            return;
        }
        let end = (at + 1..self.tokens.len()).find(|&next| {
            let token = &self.tokens[next];
            token.depth == 0
                && (token.is_any(&["end", "else", "elseif"]) || self.begins_line(next))
                && !token.is_any(&[")", "]", "}"])
        });
        let last = end.unwrap_or(self.tokens.len()) - 1;
        let range = token.range.start..self.tokens[last].range.end;
        let assigns = (at..=last).any(|at| self.tokens[at].is("=") && self.tokens[at].depth == 0);
        let keywords = ["local", "if", "for", "while", "return", "end", "else", "elseif", "break"];
        if token.is("redis") || assigns && !token.is_any(&keywords) {
            self.change("statement", range, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(text: &str) -> Vec<(String, String)> {
        let source = Source { path: "lua/a.lua".into(), text: text.into() };
        let shown = |mutant: Mutant| (mutant.key.operator, mutant.text.unwrap_or_default());
        mutants(&source, 1).into_iter().map(shown).collect()
    }

    fn assert_changes(text: &str, expected: &[(&str, &str)]) {
        let found = changes(text);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn comparisons_and_conditions() {
        assert_changes(
            "if a < 1 then return 'X', '' end",
            &[
                ("condition", "if true then return 'X', '' end"),
                ("condition", "if false then return 'X', '' end"),
                ("boundary", "if a <= 1 then return 'X', '' end"),
                ("number", "if a < 2 then return 'X', '' end"),
            ],
        );
        assert_changes(
            "if not a or b == '2' then x = y end",
            &[
                ("condition", "if true then x = y end"),
                ("condition", "if b == '2' then x = y end"),
                ("condition", "if not a then x = y end"),
                ("statement", "if not a or b == '2' then  end"),
            ],
        );
    }

    #[test]
    fn comparisons_that_are_values() {
        assert_changes(
            "local a = not b == '1'",
            &[("condition", "local a =  b == '1'"), ("comparison", "local a = not b ~= '1'")],
        );
    }

    #[test]
    fn sides_of_and_and_or() {
        assert_changes(
            "local x = f(a, b and c or d), y\nlocal z = e",
            &[
                ("condition", "local x = f(a, c or d), y\nlocal z = e"),
                ("condition", "local x = f(a, b or d), y\nlocal z = e"),
                ("condition", "local x = f(a, d), y\nlocal z = e"),
                ("condition", "local x = f(a, b and c), y\nlocal z = e"),
            ],
        );
        let found = changes("x = a or b or c");
        assert_eq!(found.iter().filter(|(_, text)| text == "x = a or c").count(), 1, "{found:?}");
        assert_changes(
            "local x = f(a)[i] or {}\nlocal z",
            &[("condition", "local x = {}\nlocal z"), ("condition", "local x = f(a)[i]\nlocal z")],
        );
    }

    #[test]
    fn statements_are_left_out() {
        assert_changes(
            "redis.call('SET', k,\n  v)\nlocal c = redis.call('GET', k)\na, b = b, a - c\nreturn a",
            &[
                ("statement", "\nlocal c = redis.call('GET', k)\na, b = b, a - c\nreturn a"),
                (
                    "statement",
                    "redis.call('SET', k,\n  v)\nlocal c = redis.call('GET', k)\n\nreturn a",
                ),
                (
                    "arithmetic",
                    "redis.call('SET', k,\n  v)\nlocal c = redis.call('GET', k)\na, b = b, a + c\nreturn a",
                ),
            ],
        );
        let found = changes("if b then redis.call('X', 'y') end");
        let last = found.last().expect("there are some");
        assert_eq!((last.0.as_str(), last.1.as_str()), ("statement", "if b then  end"));
    }

    #[test]
    fn mutants_know_their_function() {
        let text = "local a = 1\nlocal function f(x)\n  if x then g() end\n  return 1\nend\nh(2)";
        let source = Source { path: "lua/a.lua".into(), text: text.into() };
        let mutants = mutants(&source, 1);
        let places: Vec<(usize, &str)> = mutants
            .iter()
            .filter(|mutant| mutant.key.operator == "number")
            .map(|mutant| (*mutant.lines.start(), mutant.key.function.as_str()))
            .collect();
        assert_eq!(places, [(1, ""), (4, "f"), (6, "")]);
    }
}
