//! Requests of clients and operators, with their answers.

use super::unit::Ms;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// POST `/v1/coupons/{id}/claims`.
    Claim,
    /// GET `/v1/coupons/{id}/claims/me`.
    Me,
    /// POST `/v1/orders/{id}/pay`.
    Pay,
    /// POST `/v1/orders/{id}/cancel`.
    Cancel,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, and told this order.
    Ok(i64),
    /// Refused with this code; `already_claimed` tells an order.
    Refused(String, Option<i64>),
    /// No answer, or one that says "ask again": the request may have taken effect.
    Unknown,
}

/// A request with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the client.
    pub client: usize,
    pub user: i64,
    pub coupon: i64,
    /// The request.
    pub op: Op,
    /// Place of the process that was asked, and number of its life.
    pub door: (usize, usize),
    /// Time at which the request was sent.
    pub invoked: Ms,
    /// Time at which the answer was there, or was given up.
    pub completed: Ms,
    /// The answer.
    pub outcome: Outcome,
}

impl Event {
    /// The order that a claim was promised: accepted now, or told to be accepted before.
    pub fn promised(&self) -> Option<i64> {
        match (&self.op, &self.outcome) {
            (Op::Claim, Outcome::Ok(order)) => Some(*order),
            (Op::Claim, Outcome::Refused(code, order)) if code == "already_claimed" => *order,
            _ => None,
        }
    }

    /// True for a claim that was told that no unit is left.
    pub fn is_sold_out(&self) -> bool {
        self.op == Op::Claim
            && matches!(&self.outcome, Outcome::Refused(code, _) if code == "sold_out")
    }
}

/// A change of a sale's total by the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub coupon: i64,
    /// Units on offer after the change, by the reply.
    pub total: i64,
    /// Time at which the reply said that Redis has the change.
    pub applied: Ms,
}
