//! Lines, table, and the document that they are appended to.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use comfy_table::{Table, presets};
use flash_sale::base::clock::Clock;

use crate::facts;
use crate::plan::Plan;
use crate::run::Outcome;

/// The result of a seed.
#[derive(Clone, Debug, Default)]
pub struct Line {
    seed: u64,
    faults: Vec<&'static str>,
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

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
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

/// All seeds, and their sum.
pub fn table(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "seed",
        "faults",
        "claims",
        "ok",
        "refused",
        "unknown",
        "recoveries",
        "closed s",
        "letters",
        "superseded",
        "lost",
        "verdict",
    ]);
    for line in lines {
        table.add_row(cells(&line.seed.to_string(), &line.faults.join(" "), line, &line.verdict()));
    }
    let sum = sum(lines);
    let broken = lines.iter().filter(|line| !line.holds()).count();
    let verdict = if broken == 0 { "all hold".to_owned() } else { format!("{broken} broken") };
    table.add_row(cells("all", &format!("{} seeds", lines.len()), &sum, &verdict));
    table
}

fn cells(name: &str, faults: &str, line: &Line, verdict: &str) -> Vec<String> {
    let counts = [line.claims, line.ok, line.refused, line.unknown, line.recoveries];
    let ends = [line.letters, line.superseded, line.lost];
    let mut cells = vec![name.to_owned(), faults.to_owned()];
    cells.extend(counts.map(|count| count.to_string()));
    cells.push(format!("{:.1}", line.closed_s));
    cells.extend(ends.map(|count| count.to_string()));
    cells.push(verdict.to_owned());
    cells
}

fn sum(lines: &[Line]) -> Line {
    let mut sum = Line::default();
    for line in lines {
        sum.claims += line.claims;
        sum.ok += line.ok;
        sum.refused += line.refused;
        sum.unknown += line.unknown;
        sum.recoveries += line.recoveries;
        sum.closed_s += line.closed_s;
        sum.letters += line.letters;
        sum.superseded += line.superseded;
        sum.lost += line.lost;
    }
    sum
}

/// The commit of the working tree in which a binary of the service stands; else that of the present folder.
async fn commit_of(binary: &Path) -> anyhow::Result<String> {
    for folder in [binary.parent(), Some(Path::new("."))].into_iter().flatten() {
        let mut git = tokio::process::Command::new("git");
        let said =
            git.arg("-C").arg(folder).args(["rev-parse", "--short", "HEAD"]).output().await?;
        if said.status.success() {
            return Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned());
        }
    }
    Ok("unknown".to_owned())
}

/// Appends one row to the table at the end of a document, with the commit of the binary that ran, and the arguments that
/// changed the plans.
pub async fn append(
    document: &Path,
    binary: &Path,
    lines: &[Line],
    changes: &str,
) -> anyhow::Result<()> {
    let commit = commit_of(binary).await?;
    let seeds: Vec<u64> = lines.iter().map(Line::seed).collect();
    let sum = sum(lines);
    let failed: Vec<String> =
        lines.iter().filter(|line| !line.holds()).map(|line| line.seed.to_string()).collect();
    let verdict = if failed.is_empty() {
        "all hold".to_owned()
    } else {
        format!("broken: {}", failed.join(", "))
    };
    let mut file = std::fs::OpenOptions::new().append(true).open(document)?;
    let date = Clock::System.now().format("%Y-%m-%d");
    Ok(writeln!(
        file,
        "| {date} | {commit} | {}{changes} | {} | {} | {} | {} | {} | {verdict} |",
        named(&seeds),
        sum.claims,
        sum.ok,
        sum.recoveries,
        sum.superseded,
        sum.lost,
    )?)
}

/// Seeds that are in order, and their number: `1 to 3, 5 (4)`. Names these and no other: a call that was stopped has
/// left some out.
fn named(seeds: &[u64]) -> String {
    let in_row = |one: &u64, two: &u64| one.checked_add(1) == Some(*two);
    let ranges = seeds.chunk_by(in_row).map(|range| match range {
        [first, .., last] => format!("{first} to {last}"),
        one => one.iter().map(ToString::to_string).collect(),
    });
    format!("{} ({})", ranges.collect::<Vec<_>>().join(", "), seeds.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_are_named_are_those_that_were_run() {
        assert_eq!(named(&[7, 8, 9]), "7 to 9 (3)");
        assert_eq!(named(&[1, 2, 3, 5, 7, 8]), "1 to 3, 5, 7 to 8 (6)");
        assert_eq!(named(&[4]), "4 (1)");
        assert_eq!(named(&[1, u64::MAX]), "1, 18446744073709551615 (2)");
    }
}
