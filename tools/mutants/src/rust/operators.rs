//! Arithmetic, methods and numbers.

use syn::{BinOp, Expr, ExprBinary, ExprMethodCall, ExprRange, Lit, Type};

use super::Collector;
use super::visit::Tail;

/// Methods that are easily taken for each other.
const SISTERS: &[(&str, &str)] = &[
    ("all", "any"),
    ("any", "all"),
    ("first", "last"),
    ("last", "first"),
    ("max", "min"),
    ("min", "max"),
    ("pop_first", "pop_last"),
    ("pop_last", "pop_first"),
];

/// Methods whose numbers are bounds.
const BOUNDED: &[&str] = &[
    "checked_add",
    "checked_sub",
    "chunks",
    "chunks_exact",
    "clamp",
    "max",
    "min",
    "nth",
    "saturating_add",
    "saturating_sub",
    "skip",
    "step_by",
    "take",
    "truncate",
    "windows",
];

/// Methods whose closure decides.
pub(super) const DECIDING: &[&str] = &[
    "all",
    "any",
    "filter",
    "find",
    "is_none_or",
    "is_ok_and",
    "is_some_and",
    "partition",
    "position",
    "retain",
    "rposition",
    "skip_while",
    "take_while",
];

impl Collector<'_> {
    /// Turns arithmetic round.
    pub(super) fn arithmetic(&mut self, whole: &Expr, binary: &ExprBinary) {
        let ExprBinary { left, op, right, .. } = binary;
        if let Some(other) = opposite(op) {
            let text = format!("{} {other} {}", self.text(left), self.text(right));
            self.alternatives("arithmetic", whole, &[text]);
        }
        self.expression(left, Tail::Value);
        self.expression(right, Tail::Value);
    }

    /// Calls the method that this one is easily taken for.
    pub(super) fn sister(&mut self, whole: &Expr, call: &ExprMethodCall) {
        let sister = SISTERS.iter().find(|(name, _)| call.method == name);
        if let Some((_, other)) = sister {
            let (whole_range, name) = (self.range(whole), self.range(&call.method));
            let before = &self.source.text[whole_range.start..name.start];
            let after = &self.source.text[name.end..whole_range.end];
            let text = format!("{before}{other}{after}");
            self.alternatives("method", whole, &[text]);
        }
    }

    /// The arguments of a call; those that are bounds are off by one.
    pub(super) fn arguments(&mut self, call: &ExprMethodCall) {
        let is_bounded = BOUNDED.iter().any(|name| call.method == name);
        for argument in &call.args {
            if !(is_bounded && self.off_by_one(argument, "+")) {
                self.expression(argument, Tail::Value);
            }
        }
    }

    /// The ends of a range, off by one.
    pub(super) fn ends(&mut self, range: &ExprRange) {
        for end in [&range.start, &range.end].into_iter().flatten() {
            if !self.off_by_one(end, "+") {
                self.expression(end, Tail::Value);
            }
        }
    }

    /// A literal or a constant that is one more or less. False if it is neither.
    pub(super) fn off_by_one(&mut self, operand: &Expr, step: &str) -> bool {
        let other = match operand {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(number) => stepped(number, step),
                _ => None,
            },
            Expr::Path(path) if self.is_constant(&path.path) => {
                Some(format!("{} {step} 1", self.text(operand)))
            }
            _ => return false,
        };
        if let Some(other) = other {
            self.alternatives("number", operand, &[other]);
        }
        true
    }

    /// Whether a path names a constant that is a whole number.
    pub(super) fn is_constant(&self, path: &syn::Path) -> bool {
        let name = path.segments.last().map(|last| last.ident.to_string());
        name.is_some_and(|name| self.known.constants.contains(&name))
    }
}

fn opposite(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) => "/",
        BinOp::Div(_) | BinOp::Rem(_) => "*",
        BinOp::BitAnd(_) => "|",
        BinOp::BitOr(_) | BinOp::BitXor(_) => "&",
        BinOp::Shl(_) => ">>",
        BinOp::Shr(_) => "<<",
        _ => return None,
    })
}

fn stepped(number: &syn::LitInt, step: &str) -> Option<String> {
    let value: u64 = number.base10_parse().ok()?;
    let stepped = if step == "+" { value.checked_add(1)? } else { value.checked_sub(1)? };
    Some(format!("{stepped}{}", number.suffix()))
}

/// Whether values of this type are whole numbers.
pub(super) fn is_whole_number(of: &Type) -> bool {
    const NUMBERS: &[&str] =
        &["i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize"];
    matches!(of, Type::Path(path) if NUMBERS.iter().any(|name| path.path.is_ident(name)))
}
