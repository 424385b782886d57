//! Conditions: what decides, and how each part of it can be wrong.

use syn::{BinOp, Expr, ExprBinary, UnOp};

use super::Collector;

/// Calls that read a clock which runs.
const INSTANTS: &[&str] = &["elapsed()", "Instant::now()"];

impl Collector<'_> {
    /// Mutants of a condition. `to_true` and `to_false` say what taking all of it for that would add; its parts may
    /// have shown it already.
    pub(super) fn condition(&mut self, condition: &Expr, to_true: bool, to_false: bool) {
        match condition {
            Expr::Paren(inner) => self.condition(&inner.expr, to_true, to_false),
            Expr::Group(inner) => self.condition(&inner.expr, to_true, to_false),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                self.condition(&unary.expr, to_false, to_true);
            }
            Expr::Let(pattern) => {
                if to_false {
                    self.switch_off("condition", condition, "false", " && ");
                }
                self.expression(&pattern.expr, super::Tail::Value);
            }
            Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
                self.conjunction(condition, binary, to_false);
            }
            Expr::Binary(binary) if matches!(binary.op, BinOp::Or(_)) => {
                if to_true {
                    self.force(condition, true, false);
                }
                self.condition(&binary.left, false, true);
                self.condition(&binary.right, false, true);
            }
            _ => self.leaf(condition, to_true, to_false),
        }
    }

    fn conjunction(&mut self, condition: &Expr, binary: &ExprBinary, to_false: bool) {
        // A chain with `let` can't be wrapped, only continued.
        match to_false {
            true if has_let(condition) => {
                self.switch_off("condition", condition, "false", " && ");
            }
            true => self.force(condition, false, true),
            false => {}
        }
        for part in [&binary.left, &binary.right] {
            // Taking `let` for true would need its value.
            self.condition(part, !matches!(**part, Expr::Let(_)), false);
        }
    }

    fn leaf(&mut self, condition: &Expr, to_true: bool, to_false: bool) {
        if matches!(condition, Expr::Lit(_)) {
            return;
        }
        self.force(condition, to_true, to_false);
        match condition {
            Expr::Binary(binary) => self.comparison(condition, binary),
            // Its negation would be what forcing shows.
            other => self.parts(other),
        }
    }

    fn comparison(&mut self, whole: &Expr, binary: &ExprBinary) {
        let ExprBinary { left, op, right, .. } = binary;
        if let Some(other) = boundary(op) {
            let (a, b) = (self.text(left), self.text(right));
            // No test can aim at one instant of a running clock.
            if !INSTANTS.iter().any(|instant| a.contains(instant) || b.contains(instant)) {
                self.alternatives("boundary", whole, &[format!("{a} {other} {b}")]);
            }
            // One more, or one less, is another boundary where the operator doesn't say the same.
            let step = if matches!(op, BinOp::Lt(_) | BinOp::Ge(_)) { "-" } else { "+" };
            self.operand(left, "+");
            self.operand(right, step);
        } else {
            self.expression(left, super::Tail::Value);
            self.expression(right, super::Tail::Value);
        }
    }

    fn operand(&mut self, operand: &Expr, step: &str) {
        if !self.off_by_one(operand, step) {
            self.expression(operand, super::Tail::Value);
        }
    }
}

/// The comparison that differs only where both sides are equal.
fn boundary(op: &BinOp) -> Option<&'static str> {
    match op {
        BinOp::Lt(_) => Some("<="),
        BinOp::Le(_) => Some("<"),
        BinOp::Gt(_) => Some(">="),
        BinOp::Ge(_) => Some(">"),
        _ => None,
    }
}

/// Whether this is an operator between conditions, or a comparison.
pub(super) fn is_condition(expression: &Expr) -> bool {
    let Expr::Binary(binary) = expression else {
        return matches!(expression, Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)));
    };
    let compares =
        matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)) || boundary(&binary.op).is_some();
    compares || matches!(binary.op, BinOp::And(_) | BinOp::Or(_))
}

fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}
