//! State of a storm, as pages show it: each frame is the whole state.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio::time::Instant;

use super::lines::{self, End, Line, Outcome, Repeats};
use super::plan::Plan;
use super::verdict::{Told, Verdict};
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
    pub fn take(&mut self, line: Line) {
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
                self.told.orders.extend(answers.told);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use private_servers::testing::bound_this_test;
    use serde_json::{Value, json};
    use tokio::time::advance;

    use super::*;
    use crate::sale::ids::UserId;
    use crate::sale::storm::lines::Answers;

    /// A storm of ten shoppers for four units, whose sale is made.
    fn running() -> Storm {
        let plan = Plan { shoppers: 10, stock: 4, over_s: 0, twice_percent: 0 };
        let mut storm = Storm::new(5, plan);
        assert_eq!(shown(&storm)["stage"], "arming");
        storm.take(Line::Sale { coupon_id: CouponId::compose(1, 1) });
        storm
    }

    fn shown(storm: &Storm) -> Value {
        serde_json::to_value(storm.frame()).expect("it is JSON")
    }

    fn answers(
        outcomes: &[(Outcome, u32)],
        told: &[(i64, i64)],
        (same, other): (u64, u64),
    ) -> Line {
        let told = told.iter().map(|(order, user)| {
            let order = order.to_string().parse().expect("an order id");
            (order, UserId::new(*user).expect("an id"))
        });
        let (outcomes, told) = (outcomes.to_vec(), told.collect());
        Line::Answers(Answers { outcomes, told, repeats: Repeats { same, other } })
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_adds_up_the_lines_of_the_crowd() {
        bound_this_test();
        let mut storm = running();
        let end = End { took_ms: 9, sold_out_ms: Some(8), p50_us: 7, p99_us: 6 };
        advance(Duration::from_secs(2)).await;
        storm.take(answers(&[(Outcome::Won, 3), (Outcome::SoldOut, 1)], &[(11, 1)], (1, 0)));
        let frame = shown(&storm);
        assert_eq!(
            (&frame["stage"], &frame["answered"], &frame["rate"]),
            (&json!("running"), &json!(4), &json!(1))
        );
        advance(Duration::from_secs(1)).await;
        storm.take(answers(
            &[(Outcome::SoldOut, 2), (Outcome::Won, 1), (Outcome::Unknown, 2)],
            &[(12, 2)],
            (2, 1),
        ));
        let frame = shown(&storm);
        assert_eq!(
            (&frame["answered"], &frame["rate"]),
            (&json!(9), &json!(3)),
            "half of 1, and half of 5"
        );
        assert_eq!(frame["runs"], "w3s3w1u2");
        assert_eq!(frame["counts"], json!({"won": 4, "sold_out": 3, "unknown": 2}));
        assert_eq!(frame["repeats"], json!({"same": 3, "other": 1}));
        let told: Vec<_> =
            storm.told.orders.iter().map(|(order, user)| (order.get(), user.get())).collect();
        assert_eq!((told, storm.told.other_orders), (vec![(11, 1), (12, 2)], 1));
        storm.take(Line::End(end));
        assert!(!storm.has_ended(), "one of ten has no answer");
        storm.take(answers(&[(Outcome::Refused, 1)], &[], (0, 0)));
        assert!(storm.has_ended());
        storm.take(Line::End(end));
        assert_eq!((storm.figures(), &shown(&storm)["rate"]), (end, &json!(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_without_an_end_has_not_ended_and_no_figures() {
        bound_this_test();
        let mut storm = running();
        storm.take(answers(&[(Outcome::Won, 10)], &[], (0, 0)));
        assert!(!storm.has_ended());
        assert_eq!(storm.figures(), End::default());
        assert_eq!(shown(&storm)["rate"], 0, "no time has passed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_that_is_over_shows_its_verdict_or_why_there_is_none() {
        bound_this_test();
        let found = crate::sale::storm::verdict::Found::default();
        let verdict = Verdict::of(&Told::default(), &found, End::default());
        for (outcome, has_verdict, reason) in [
            (Ok(verdict), true, Value::Null),
            (Err(NoVerdict::Stopped), false, json!("stopped")),
            (Err(NoVerdict::NotWritten), false, json!("not_written")),
        ] {
            let mut storm = running();
            advance(Duration::from_secs(1)).await;
            storm.take(answers(&[(Outcome::Won, 8)], &[], (0, 0)));
            (storm.left, storm.rows, storm.backlog) = (Some(1), Some(2), Some(3));
            storm.end(outcome, OrderId::new(11).ok());
            let frame = shown(&storm);
            assert_eq!((&frame["stage"], &frame["rate"]), (&json!("done"), &json!(0)));
            assert_eq!(
                (frame["verdict"].is_object(), &frame["no_verdict"]),
                (has_verdict, &reason)
            );
            let facts =
                ["left", "rows", "backlog", "shoppers", "stock"].map(|name| frame[name].as_i64());
            assert_eq!(facts, [Some(1), Some(2), Some(3), Some(10), Some(4)]);
            assert_eq!((&frame["id"], frame["followed"].is_null()), (&json!("5"), false));
        }
    }
}
