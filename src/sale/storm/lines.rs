//! The lines that `flash-sale storm` prints, one JSON object each.

use serde::{Deserialize, Serialize};

use crate::sale::ids::{CouponId, OrderId, UserId};

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "line")]
pub enum Line {
    /// The sale is open, and the crowd is about to arrive.
    Sale {
        /// The coupon that was made for this storm.
        coupon_id: CouponId,
    },
    /// Answers since the last such line.
    Answers(Answers),
    /// Each shopper has an answer.
    End(End),
}

/// Answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Outcomes, in the order of the answers.
    pub outcomes: Vec<(Outcome, u32)>,
    /// Orders that were promised, each with its shopper.
    pub told: Vec<(OrderId, UserId)>,
    /// Answers to shoppers that asked once more after their answer.
    pub repeats: Repeats,
}

/// Final outcome of a shopper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Was promised an order.
    Won,
    /// Was told "sold out".
    SoldOut,
    /// Was asked to come back, as often as the shopper had patience.
    ComeBack,
    /// Never learnt whether the claim was accepted.
    Unknown,
    /// Was refused for another reason.
    Refused,
}

impl Outcome {
    /// Its letter in a row of outcomes.
    pub fn letter(self) -> char {
        match self {
            Self::Won => 'w',
            Self::SoldOut => 's',
            Self::ComeBack => 'b',
            Self::Unknown => 'u',
            Self::Refused => 'r',
        }
    }
}

/// Answers to shoppers that asked once more after their answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeats {
    /// Shoppers that were told the same once more.
    pub same: u64,
    /// Shoppers that were told another order than before: a broken promise.
    pub other: u64,
}

/// Figures of the whole crowd. Latencies count from the moment at which a shopper was due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Time from the first shopper to the last answer.
    pub took_ms: u64,
    /// Time from the first shopper to the first "sold out".
    pub sold_out_ms: Option<u64>,
    /// Time in which half of the shoppers had their final answer.
    pub p50_us: u64,
    /// Time in which 99 of 100 had it.
    pub p99_us: u64,
}

/// Appends to outcomes in their order, as runs of one outcome.
pub fn append(runs: &mut Vec<(Outcome, u32)>, (outcome, count): (Outcome, u32)) {
    match runs.last_mut() {
        Some((last, so_far)) if *last == outcome => *so_far += count,
        _ => runs.push((outcome, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_outcomes_in_a_row_are_one_run() {
        let mut runs = Vec::new();
        for outcome in [Outcome::Won, Outcome::Won, Outcome::SoldOut, Outcome::Won] {
            append(&mut runs, (outcome, 1));
        }
        assert_eq!(runs, [(Outcome::Won, 2), (Outcome::SoldOut, 1), (Outcome::Won, 1)]);
    }
}
