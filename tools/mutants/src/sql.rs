//! Mutants of a query: each is the whole query with one change.
//!
//! Clauses joined by AND or OR are dropped one at a time; comparisons take or leave equality; an element of an IN list,
//! an assignment of a SET list, LIMIT, FOR UPDATE, SKIP LOCKED, DISTINCT and ON CONFLICT are left out; orders are
//! reversed; a status becomes another one; a default of `coalesce` is left out; now is an hour later.

use std::ops::Range;

use crate::mutant::{Key, Language, Mutant, Occurrences, hash, snippet};
use crate::rust::Query;
use crate::token::{Grammar, Kind, Token, replaced, tokens};

const GRAMMAR: Grammar = Grammar {
    signs: &["->>", "=>", "::", "<=", ">=", "<>", "!=", "||", "->"],
    texts: &['\''],
    names: &['"'],
    escapes: false,
};

/// Texts of which one is easily taken for another.
const FAMILIES: &[&[&str]] = &[
    &["unpaid", "paid", "redeemed", "refunding", "refunded", "cancelled", "expired"],
    &["regular", "flash"],
    &["active", "paused", "ended"],
];

/// Words that end a condition at its own depth.
const ENDS: &[&str] = &[
    "WHERE",
    "GROUP",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "RETURNING",
    "FOR",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "HAVING",
    "WINDOW",
    "THEN",
    "ELSE",
    "END",
    "WHEN",
    "JOIN",
    "LEFT",
    "INNER",
    "CROSS",
    "RIGHT",
    "FULL",
    "ON",
    "SET",
    "AS",
    "FROM",
    "ASC",
    "DESC",
    ",",
    ";",
];

/// A query and its tokens.
struct Statement<'a> {
    query: &'a Query,
    tokens: Vec<Token>,
    occurrences: &'a mut Occurrences,
    mutants: Vec<Mutant>,
}

/// The mutants of a query. `occurrences` is that of its file.
pub fn mutants(query: &Query, occurrences: &mut Occurrences) -> Vec<Mutant> {
    let tokens = tokens(&query.text, &GRAMMAR);
    let mut statement = Statement { query, tokens, occurrences, mutants: Vec::new() };
    for at in 0..statement.tokens.len() {
        statement.clauses(at);
        statement.operators(at);
        statement.lists(at);
        statement.endings(at);
    }
    statement.mutants
}

impl Statement<'_> {
    fn change(&mut self, operator: &str, range: Range<usize>, by: &str) {
        if self.query.text[range.clone()].eq_ignore_ascii_case(by) {
            return;
        }
        // The neighbours help people to find the place.
        let shown = self.shown(&range);
        let inside = range.start - shown.start..range.end - shown.start;
        let mutation = replaced(&self.query.text[shown.clone()], &inside, by);
        let key = self.occurrences.count(Key {
            file: self.query.file.clone(),
            function: self.query.function.clone(),
            operator: format!("sql {operator}"),
            original: snippet(&self.query.text[shown]),
            mutation: snippet(&mutation),
            occurrence: 0,
        });
        let line = |at: usize| self.query.line + self.query.text[..at].matches('\n').count();
        self.mutants.push(Mutant {
            key,
            language: Language::Sql,
            lines: line(range.start)..=line(range.end),
            context: hash(&self.query.text),
            number: self.query.number,
            text: Some(replaced(&self.query.text, &range, by)),
        });
    }

    /// The changed range with its neighbours on both sides.
    fn shown(&self, range: &Range<usize>) -> Range<usize> {
        let inside = |token: &&Token| token.range.start < range.start;
        let before = self.tokens.iter().filter(inside).rev().nth(1);
        let after = self.tokens.iter().filter(|token| token.range.end > range.end).nth(1);
        let begin = before.map_or(0, |token| token.range.start);
        begin..after.map_or(self.query.text.len(), |token| token.range.end)
    }

    fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at)
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.token(at).is_some_and(|token| token.is(text))
    }

    fn range(&self, tokens: &Range<usize>) -> Range<usize> {
        self.tokens[tokens.start].range.start..self.tokens[tokens.end - 1].range.end
    }

    /// The first token from `from` on that `ends` at this depth, or that closes what is around it.
    fn until(&self, from: usize, depth: usize, ends: impl Fn(&Token) -> bool) -> usize {
        let rest = self.tokens[from..].iter();
        let length =
            rest.take_while(|token| token.depth > depth || token.depth == depth && !ends(token));
        from + length.count()
    }

    /// Conditions behind WHERE, ON, HAVING and WHEN, and in brackets.
    fn clauses(&mut self, at: usize) {
        let token = &self.tokens[at];
        let is_condition = token.is_any(&["WHERE", "HAVING", "WHEN"])
            || token.is("ON") && !self.is(at + 1, "CONFLICT");
        if is_condition {
            let end = self.until(at + 1, token.depth, |token| token.is_any(ENDS));
            self.condition(at + 1..end, true);
        } else if token.is("(") && !self.is(at + 1, "SELECT") && !self.is(at + 1, "WITH") {
            let depth = token.depth + 1;
            let end = self.until(at + 1, depth, |_| false);
            let inside = at + 1..end;
            let simple = !self.tokens[inside.clone()]
                .iter()
                .any(|token| token.depth == depth && token.is_any(ENDS));
            if simple && end > at + 1 {
                self.condition(inside, false);
            }
        }
    }

    /// Drops each part of a condition. `alone`: also if it is the only one.
    fn condition(&mut self, tokens: Range<usize>, alone: bool) {
        if tokens.is_empty() {
            return;
        }
        let groups = self.split(&tokens, "OR");
        for group in &groups {
            let clauses = self.split(group, "AND");
            if clauses.len() > 1 || groups.len() == 1 && alone {
                for clause in &clauses {
                    let range = self.range(clause);
                    self.change("clause", range, "TRUE");
                }
            }
            if groups.len() > 1 {
                let range = self.range(group);
                self.change("clause", range, "FALSE");
            }
        }
    }

    /// The parts between these words. The AND of BETWEEN is none of them.
    fn split(&self, tokens: &Range<usize>, word: &str) -> Vec<Range<usize>> {
        let depth = self.tokens[tokens.start].depth;
        let mut parts = Vec::new();
        let (mut from, mut between) = (tokens.start, false);
        for at in tokens.clone() {
            let token = &self.tokens[at];
            if token.depth != depth {
                continue;
            }
            if token.is("BETWEEN") {
                between = true;
            } else if token.is("AND") && between {
                between = false;
            } else if token.is(word) {
                parts.push(from..at);
                from = at + 1;
            }
        }
        parts.push(from..tokens.end);
        parts.retain(|part| !part.is_empty());
        parts
    }

    fn operators(&mut self, at: usize) {
        let token = self.tokens[at].clone();
        let is_call = self.is(at + 1, "(");
        let swap = match token.text.to_ascii_lowercase().as_str() {
            "<" => ("boundary", "<="),
            "<=" => ("boundary", "<"),
            ">" => ("boundary", ">="),
            ">=" => ("boundary", ">"),
            "+" if self.is_operand(at) => ("arithmetic", "-"),
            "-" if self.is_operand(at) => ("arithmetic", "+"),
            "max" if is_call => ("function", "min"),
            "min" if is_call => ("function", "max"),
            "greatest" if is_call => ("function", "least"),
            "least" if is_call => ("function", "greatest"),
            "bool_and" if is_call => ("function", "bool_or"),
            "bool_or" if is_call => ("function", "bool_and"),
            "distinct" if !self.is(at.wrapping_sub(1), "IS") => ("left out", ""),
            "left" if self.is(at + 1, "JOIN") => ("join", ""),
            _ => return,
        };
        // No test can aim at one instant of a running clock.
        let is_of_clock = swap.0 == "boundary"
            && [at.wrapping_sub(3), at + 1].into_iter().any(|at| self.is(at, "now"));
        if matches!(token.kind, Kind::Word | Kind::Sign) && !is_of_clock {
            self.change(swap.0, token.range, swap.1);
        }
    }

    fn is_operand(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.token(before));
        before.is_some_and(|token| match token.kind {
            Kind::Sign => token.is(")"),
            Kind::Word => !token.is_any(&["SELECT", "WHERE", "AND", "OR", "THEN", "ELSE", "BY"]),
            _ => true,
        })
    }

    /// Lists, and the calls and texts within conditions.
    fn lists(&mut self, at: usize) {
        let token = self.tokens[at].clone();
        if token.is("IN") && self.is(at + 1, "(") && !self.is(at + 2, "SELECT") {
            self.drop_each("element", at + 2, token.depth + 1);
        } else if token.is("SET") && self.is(at + 2, "=") {
            self.drop_each("assignment", at + 1, token.depth);
        } else if token.is("coalesce") && self.is(at + 1, "(") {
            let end = self.until(at + 2, token.depth + 1, |token| token.is(","));
            let close = self.until(at + 2, token.depth + 1, |_| false);
            if end < close {
                let range = self.tokens[end - 1].range.end..self.tokens[close - 1].range.end;
                self.change("default", range, "");
            }
        } else if token.is_any(&["now", "clock_timestamp"]) && self.is_within_condition(at) {
            let range = token.range.start..self.tokens[at + 2].range.end;
            let later = format!("({} + interval '1 hour')", &self.query.text[range.clone()]);
            self.change("time", range, &later);
        } else if token.kind == Kind::Text && !self.is_in_list(at) {
            self.another_text(&token);
        }
    }

    fn another_text(&mut self, token: &Token) {
        let name = token.text.trim_matches('\'');
        let family = FAMILIES.iter().find(|family| family.contains(&name));
        if let Some(family) = family {
            let index = family.iter().position(|other| *other == name).unwrap_or(0);
            let other = family[(index + 1) % family.len()];
            self.change("text", token.range.clone(), &format!("'{other}'"));
        }
    }

    /// Whether a text is one of several in an IN list: leaving it out shows more.
    fn is_in_list(&self, at: usize) -> bool {
        let beside = |at: usize| self.is(at, ",");
        let opens = self.tokens[..at]
            .iter()
            .rposition(|token| token.is("(") && token.depth + 1 == self.tokens[at].depth);
        let is_list = opens.is_some_and(|open| open > 0 && self.is(open - 1, "IN"));
        is_list && (beside(at + 1) || beside(at.wrapping_sub(1)))
    }

    fn is_within_condition(&self, at: usize) -> bool {
        let depth = self.tokens[at].depth;
        let opening = self.tokens[..at].iter().rev().find(|token| {
            token.depth <= depth
                && token.is_any(&[
                    "WHERE",
                    "SET",
                    "SELECT",
                    "VALUES",
                    "HAVING",
                    "RETURNING",
                    "WHEN",
                ])
        });
        opening.is_some_and(|token| token.is_any(&["WHERE", "HAVING", "WHEN"]))
    }

    /// Leaves out each part of a list that has several.
    fn drop_each(&mut self, operator: &str, from: usize, depth: usize) {
        let end = self.until(from, depth, |token| token.is_any(ENDS) && !token.is(","));
        let mut starts = vec![from];
        let commas = (from..end).filter(|&at| self.is(at, ",") && self.tokens[at].depth == depth);
        starts.extend(commas.map(|comma| comma + 1));
        if starts.len() < 2 {
            return;
        }
        for (index, &start) in starts.iter().enumerate() {
            let range = match starts.get(index + 1) {
                Some(&next) => self.tokens[start].range.start..self.tokens[next].range.start,
                // The last one goes with the comma before it.
                None => self.tokens[start - 1].range.start..self.tokens[end - 1].range.end,
            };
            self.change(operator, range, "");
        }
    }

    /// Clauses behind the conditions.
    fn endings(&mut self, at: usize) {
        let token = self.tokens[at].clone();
        let depth = token.depth;
        if token.is("ORDER") && self.is(at + 1, "BY") {
            let end = self.until(at + 2, depth, |token| {
                token.is_any(ENDS) && !token.is_any(&[",", "ASC", "DESC"])
            });
            let range = self.range(&(at + 2..end));
            let reversed = self.reversed(at + 2, end, depth);
            self.change("order", range, &reversed);
        } else if token.is("LIMIT") {
            let end = self.until(at + 1, depth, |token| token.is_any(ENDS));
            let range = self.range(&(at..end));
            self.change("left out", range, "");
        } else if token.is("FOR") && self.is_lock(at) {
            let end = self.until(at + 1, depth, |token| token.is_any(ENDS));
            let range = self.range(&(at..end));
            self.change("left out", range, "");
        } else if token.is("SKIP") && self.is(at + 1, "LOCKED") {
            let range = self.range(&(at..at + 2));
            self.change("left out", range, "");
        } else if token.is("ON") && self.is(at + 1, "CONFLICT") {
            let end = self.until(at + 1, depth, |token| token.is("RETURNING"));
            let range = self.range(&(at..end));
            self.change("left out", range, "");
        }
    }

    fn is_lock(&self, at: usize) -> bool {
        ["UPDATE", "SHARE", "NO", "KEY"].iter().any(|word| self.is(at + 1, word))
    }

    /// The keys of an order, each the other way round.
    fn reversed(&self, from: usize, end: usize, depth: usize) -> String {
        let mut keys = Vec::new();
        let mut start = from;
        while start < end {
            let comma = self.until(start, depth, |token| token.is(",")).min(end);
            let last = &self.tokens[comma - 1];
            let key = &self.query.text[self.range(&(start..comma))];
            let bare = &self.query.text[self.tokens[start].range.start..last.range.start];
            keys.push(match last {
                last if last.is("DESC") => bare.trim_end().to_owned(),
                last if last.is("ASC") => format!("{}DESC", bare),
                _ => format!("{key} DESC"),
            });
            start = comma + 1;
        }
        keys.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_changes(text: &str, expected: &[(&str, &str)]) {
        let query = Query {
            number: 1,
            file: "src/a.rs".into(),
            function: "f".into(),
            line: 7,
            text: text.into(),
        };
        let mutants = mutants(&query, &mut Occurrences::default());
        let found: Vec<(&str, &str)> = mutants
            .iter()
            .map(|mutant| {
                let operator = mutant.key.operator.trim_start_matches("sql ");
                (operator, mutant.text.as_deref().unwrap_or_default())
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn clauses_are_dropped_one_at_a_time() {
        assert_changes(
            "DELETE FROM a WHERE b = $1 AND (c IS NULL OR d <= $2) AND e BETWEEN 1 AND 2",
            &[
                (
                    "clause",
                    "DELETE FROM a WHERE TRUE AND (c IS NULL OR d <= $2) AND e BETWEEN 1 AND 2",
                ),
                ("clause", "DELETE FROM a WHERE b = $1 AND TRUE AND e BETWEEN 1 AND 2"),
                ("clause", "DELETE FROM a WHERE b = $1 AND (c IS NULL OR d <= $2) AND TRUE"),
                (
                    "clause",
                    "DELETE FROM a WHERE b = $1 AND (FALSE OR d <= $2) AND e BETWEEN 1 AND 2",
                ),
                (
                    "clause",
                    "DELETE FROM a WHERE b = $1 AND (c IS NULL OR FALSE) AND e BETWEEN 1 AND 2",
                ),
                (
                    "boundary",
                    "DELETE FROM a WHERE b = $1 AND (c IS NULL OR d < $2) AND e BETWEEN 1 AND 2",
                ),
            ],
        );
        assert_changes("SELECT a FROM b WHERE c", &[("clause", "SELECT a FROM b WHERE TRUE")]);
    }

    #[test]
    fn elements_and_assignments_are_left_out() {
        assert_changes(
            "UPDATE a SET b = now(), c = $1 WHERE d IN ('paid', 'x')",
            &[
                ("assignment", "UPDATE a SET c = $1 WHERE d IN ('paid', 'x')"),
                ("assignment", "UPDATE a SET b = now() WHERE d IN ('paid', 'x')"),
                ("clause", "UPDATE a SET b = now(), c = $1 WHERE TRUE"),
                ("element", "UPDATE a SET b = now(), c = $1 WHERE d IN ('x')"),
                ("element", "UPDATE a SET b = now(), c = $1 WHERE d IN ('paid')"),
            ],
        );
    }

    #[test]
    fn endings_are_left_out_and_orders_reversed() {
        assert_changes(
            "SELECT a FROM b ORDER BY a, b DESC LIMIT $1 FOR UPDATE SKIP LOCKED",
            &[
                ("order", "SELECT a FROM b ORDER BY a DESC, b LIMIT $1 FOR UPDATE SKIP LOCKED"),
                ("left out", "SELECT a FROM b ORDER BY a, b DESC  FOR UPDATE SKIP LOCKED"),
                ("left out", "SELECT a FROM b ORDER BY a, b DESC LIMIT $1 "),
                ("left out", "SELECT a FROM b ORDER BY a, b DESC LIMIT $1 FOR UPDATE "),
            ],
        );
        assert_changes(
            "INSERT INTO a VALUES ($1) ON CONFLICT DO NOTHING RETURNING b",
            &[("left out", "INSERT INTO a VALUES ($1)  RETURNING b")],
        );
    }

    #[test]
    fn values_become_others() {
        assert_changes(
            "SELECT max(a - 1), coalesce(b, $1) FROM c LEFT JOIN d ON true WHERE e < now()",
            &[
                (
                    "function",
                    "SELECT min(a - 1), coalesce(b, $1) FROM c LEFT JOIN d ON true WHERE e < now()",
                ),
                (
                    "arithmetic",
                    "SELECT max(a + 1), coalesce(b, $1) FROM c LEFT JOIN d ON true WHERE e < now()",
                ),
                (
                    "default",
                    "SELECT max(a - 1), coalesce(b) FROM c LEFT JOIN d ON true WHERE e < now()",
                ),
                (
                    "join",
                    "SELECT max(a - 1), coalesce(b, $1) FROM c  JOIN d ON true WHERE e < now()",
                ),
                (
                    "clause",
                    "SELECT max(a - 1), coalesce(b, $1) FROM c LEFT JOIN d ON true WHERE TRUE",
                ),
                (
                    "time",
                    "SELECT max(a - 1), coalesce(b, $1) FROM c LEFT JOIN d ON true WHERE e < (now() + interval '1 hour')",
                ),
            ],
        );
        assert_changes(
            "INSERT INTO a SELECT 'cancelled'",
            &[("text", "INSERT INTO a SELECT 'expired'")],
        );
    }
}
