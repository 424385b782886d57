//! State of a storm, as pages show it: each frame is the whole state.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio::time::Instant;

use super::lines::{self, End, Line, Outcome, Repeats};
use super::plan::Plan;
use super::verdict::{Told, Verdict};
use crate::sale::ids::public::PublicIds;
use crate::sale::ids::{CouponId, OrderId};

/// Part of a storm that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The sale is made.
    Arming,
    /// The crowd arrives.
    Running,
    /// Orders are written.
    Settling,
    /// Every order is looked up.
    Checking,
    /// The storm is over.
    Done,
}

/// Reason why a storm has no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoVerdict {
    /// The storm was stopped.
    Stopped,
    /// The crowd's process could not be started, or has ended before its time.
    CrowdFailed,
    /// A store doesn't answer.
    StoreAway,
    /// Accepted claims still wait in the log.
    NotWritten,
}

/// State of a storm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Frame {
    /// Name of the storm.
    id: String,
    /// Part that is under way.
    stage: Stage,
    /// The coupon that was made for it.
    coupon_id: Option<CouponId>,
    /// Shoppers.
    shoppers: u32,
    /// Units on sale.
    stock: u32,
    /// Shoppers that have their final answer.
    answered: u64,
    /// Units left; null while Redis can't tell.
    left: Option<i64>,
    /// Answers a second.
    rate: u64,
    /// Accepted claims that wait to be written, of all sales; null while Redis can't tell.
    backlog: Option<u64>,
    /// Orders in Postgres; null while it can't tell.
    rows: Option<i64>,
    /// Shoppers by final outcome.
    counts: BTreeMap<Outcome, u64>,
    /// Shoppers that asked once more.
    repeats: Repeats,
    /// Outcomes in the order of the answers: `w12s3` are twelve winners, then three that were told "sold out".
    runs: String,
    /// The verdict, once it has been worked out.
    verdict: Option<Verdict>,
    /// Reason why there will be no verdict.
    no_verdict: Option<NoVerdict>,
    /// Order of a claim that can be followed, once the storm is over.
    followed: Option<OrderId>,
}

/// A storm that is under way.
pub struct Storm {
    id: i64,
    plan: Plan,
    pub stage: Stage,
    pub coupon: Option<CouponId>,
    pub told: Told,
    pub left: Option<i64>,
    pub rows: Option<i64>,
    pub backlog: Option<u64>,
    runs: Vec<(Outcome, u32)>,
    repeats: Repeats,
    /// Moment of the last line with answers, and answers a second at that moment.
    last: Option<Instant>,
    rate: f64,
    end: Option<End>,
    verdict: Option<Verdict>,
    no_verdict: Option<NoVerdict>,
    followed: Option<OrderId>,
}

impl Storm {
    pub fn new(id: i64, plan: Plan) -> Self {
        Self {
            id,
            plan,
            stage: Stage::Arming,
            coupon: None,
            told: Told::default(),
            left: None,
            rows: None,
            backlog: None,
            runs: Vec::new(),
            repeats: Repeats::default(),
            last: None,
            rate: 0.0,
            end: None,
            verdict: None,
            no_verdict: None,
            followed: None,
        }
    }

    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Takes a line of the crowd in.
    pub fn take(&mut self, line: Line, ids: &PublicIds) {
        match line {
            Line::Sale { coupon_id } => {
                self.coupon = Some(coupon_id);
                self.stage = Stage::Running;
                self.last = Some(Instant::now());
            }
            Line::Answers(answers) => {
                let mut count = 0;
                for (outcome, times) in answers.outcomes {
                    count += times;
                    *self.told.outcomes.entry(outcome).or_default() += u64::from(times);
                    lines::append(&mut self.runs, (outcome, times));
                }
                let inner = |(order, user)| (ids.inner(order), user);
                self.told.orders.extend(answers.told.into_iter().map(inner));
                self.told.other_orders += answers.repeats.other;
                self.repeats.same += answers.repeats.same;
                self.repeats.other += answers.repeats.other;
                self.measure(count);
            }
            Line::End(end) => {
                self.end = Some(end);
                self.rate = 0.0;
            }
        }
    }

    /// Answers a second: half of the number comes from the last line, the other half from those before.
    fn measure(&mut self, count: u32) {
        let now = Instant::now();
        let passed = self.last.replace(now).map_or(0.0, |last| (now - last).as_secs_f64());
        if passed > 0.0 {
            self.rate = f64::midpoint(self.rate, f64::from(count) / passed);
        }
    }

    /// Whether each shopper has an answer.
    pub fn has_ended(&self) -> bool {
        self.end.is_some() && self.answered() == u64::from(self.plan.shoppers)
    }

    /// Figures of the crowd.
    pub fn figures(&self) -> End {
        self.end.unwrap_or_default()
    }

    /// The storm is over; `followed` is the order of a claim of it that was measured.
    pub fn end(&mut self, outcome: Result<Verdict, NoVerdict>, followed: Option<OrderId>) {
        self.stage = Stage::Done;
        self.followed = followed;
        self.rate = 0.0;
        match outcome {
            Ok(verdict) => self.verdict = Some(verdict),
            Err(reason) => self.no_verdict = Some(reason),
        }
    }

    fn answered(&self) -> u64 {
        self.told.outcomes.values().sum()
    }

    /// The state now.
    pub fn frame(&self) -> Frame {
        let Plan { shoppers, stock, .. } = self.plan;
        Frame {
            id: self.id.to_string(),
            stage: self.stage,
            coupon_id: self.coupon,
            shoppers,
            stock,
            answered: self.answered(),
            left: self.left,
            rate: self.rate as u64,
            backlog: self.backlog,
            rows: self.rows,
            counts: self.told.outcomes.iter().map(|(outcome, count)| (*outcome, *count)).collect(),
            repeats: self.repeats,
            runs: self
                .runs
                .iter()
                .map(|(outcome, count)| format!("{}{count}", outcome.letter()))
                .collect(),
            verdict: self.verdict.clone(),
            no_verdict: self.no_verdict,
            followed: self.followed,
        }
    }
}
