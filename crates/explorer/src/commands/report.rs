//! A line for each seed, and their sum.

use std::fmt;
use std::time::Duration;

use crate::facts;
use crate::plan::Plan;
use crate::run::Outcome;

/// The result of a seed.
#[derive(Clone, Debug, Default)]
pub struct Line {
    seed: u64,
    faults: Vec<String>,
    claims: usize,
    ok: usize,
    refused: usize,
    unknown: usize,
    recoveries: usize,
    /// Time for which lanes were closed, all together.
    closed_s: f64,
    letters: usize,
    superseded: usize,
    lost: usize,
    alarms: usize,
    took: Duration,
    broken: Vec<&'static str>,
}

impl Line {
    /// The result of a run.
    pub fn of(plan: &Plan, outcome: &Outcome, took: Duration) -> Self {
        let (evidence, verdict) = (&outcome.evidence, &outcome.verdict);
        let mut line = Self {
            seed: plan.seed,
            faults: plan.faults(),
            recoveries: evidence.recoveries.iter().filter(|r| r.opened.is_some()).count(),
            letters: verdict.letters,
            superseded: verdict.superseded,
            lost: verdict.lost_with_process.len(),
            alarms: outcome.alarms,
            took,
            broken: verdict.names(),
            ..Self::default()
        };
        let closed = evidence.recoveries.iter().filter_map(|r| Some(r.opened? - r.closed));
        line.closed_s =
            std::time::Duration::from_millis(closed.sum::<i64>().unsigned_abs()).as_secs_f64();
        for event in evidence.history.iter().filter(|event| event.op == facts::Op::Claim) {
            line.claims += 1;
            match event.outcome {
                facts::Outcome::Ok(_) => line.ok += 1,
                facts::Outcome::Refused(..) => line.refused += 1,
                facts::Outcome::Unknown => line.unknown += 1,
            }
        }
        line
    }

    /// True when all invariants hold.
    pub fn holds(&self) -> bool {
        self.broken.is_empty()
    }

    fn verdict(&self) -> String {
        if self.holds() { "holds".to_owned() } else { format!("BROKEN {}", self.broken.join(" ")) }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {}; claims {}: ok {}, refused {}, unknown {}; recoveries {}, closed {:.1} s; letters {}, superseded {}, lost {}; {} alarms; {:.0} s: {}",
            self.seed,
            self.faults.join(" "),
            self.claims,
            self.ok,
            self.refused,
            self.unknown,
            self.recoveries,
            self.closed_s,
            self.letters,
            self.superseded,
            self.lost,
            self.alarms,
            self.took.as_secs_f64(),
            self.verdict(),
        )
    }
}

/// The sum of all seeds.
pub fn sum(lines: &[Line]) -> String {
    let of = |count: fn(&Line) -> usize| lines.iter().map(count).sum::<usize>();
    let failed: Vec<String> =
        lines.iter().filter(|line| !line.holds()).map(|line| line.seed.to_string()).collect();
    let verdict = if failed.is_empty() {
        "all hold".to_owned()
    } else {
        format!("BROKEN {}", failed.join(", "))
    };
    format!(
        "{} seeds; claims {}: ok {}, refused {}, unknown {}; recoveries {}; letters {}, superseded {}, lost {}: {verdict}",
        lines.len(),
        of(|line| line.claims),
        of(|line| line.ok),
        of(|line| line.refused),
        of(|line| line.unknown),
        of(|line| line.recoveries),
        of(|line| line.letters),
        of(|line| line.superseded),
        of(|line| line.lost),
    )
}
