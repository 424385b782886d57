//! The table of the goals, and what 16 cores would do by the budget of a win, each at its place in a document.

use std::path::Path;

use super::cells::{Rows, figure, texts, thousands};
use super::document::{Document, Markers, markdown};
use crate::figures::Spread;
use crate::results::budget::{Budget, Capacity};
use crate::results::run::{Reached, RunReport};

/// Begin and end of the goals.
const GOALS: Markers = ["<!-- goals: written by make bench -->", "<!-- end of the goals -->"];
/// Begin and end of the arithmetic.
const CORES: Markers = ["<!-- 16 cores: written by make bench -->", "<!-- end of the 16 cores -->"];
/// Cores of the machine that is reckoned with.
const MANY_CORES: u32 = 16;
/// Servers of Redis that are reckoned with.
const REDIS_SERVERS: [u32; 4] = [1, 2, 4, 8];

/// A document that has a place for the tables.
pub struct GoalsDocument(Document);

impl GoalsDocument {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](flash_sale::base::config::InvalidConfig) if it can't be read, or lacks a marker.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        Document::read(path, "--goals", &[GOALS, CORES]).map(Self)
    }

    /// Writes the tables of this run.
    pub fn write(self, report: &RunReport) -> anyhow::Result<()> {
        self.0.write(&[(GOALS, goals(report)), (CORES, cores(report.budget.as_ref()))])
    }
}

/// The rows of the table, the head first.
pub fn rows(goals: &[Reached]) -> Rows {
    let mut rows = vec![texts(&["goal", "aim", "figure (smallest to largest)", "met"])];
    rows.extend(goals.iter().map(|goal| {
        let met = match goal.met {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        vec![goal.what.to_owned(), goal.aim.clone(), of(goal), met.to_owned()]
    }));
    rows
}

fn of(goal: &Reached) -> String {
    let Some(Spread { min, median, max, count, .. }) = goal.figure else {
        return format!("not measured: {}", goal.how);
    };
    let [min, median, max] = [min, median, max].map(|value| figure(Some(value)));
    let unit = goal.unit;
    if count == 1 { format!("{median}{unit}") } else { format!("{median}{unit} ({min} to {max})") }
}

fn goals(report: &RunReport) -> String {
    let machine = &report.machine;
    let day = machine.measured_at.split('T').next().unwrap_or_default();
    let commit = machine.commit.as_deref().unwrap_or("an unknown commit");
    let rounds = report.floor.len();
    let met = report.goals.iter().filter(|goal| goal.met == Some(true)).count();
    let measured = report.goals.iter().filter(|goal| goal.met.is_some()).count();
    let load = machine.load_before.map_or("unknown".to_owned(), |load| format!("{load:.1}"));
    format!(
        "Run of {day} at {commit}; rounds: {rounds}; cores: {}; load of the machine before: {load}.\n\
        Of {measured} measured goals, {met} are met.\n\n{}",
        machine.cores,
        markdown(&rows(&report.goals))
    )
}

/// The table of the 16 cores.
fn cores(budget: Option<&Budget>) -> String {
    let Some(budget) = budget else { return "No CPU times were measured.\n".to_owned() };
    let mut text = format!(
        "By the budget of {}: service {} µs, Redis {} µs, Postgres {} µs for a win.\n\n",
        budget.of,
        figure(budget.cpu_us.service),
        figure(budget.cpu_us.redis),
        figure(budget.cpu_us.postgres)
    );
    let head = [
        "servers of Redis",
        "wins/s",
        "cores of the service",
        "of Redis",
        "of Postgres",
        "the limit",
    ];
    let mut rows = vec![texts(&head)];
    for servers in REDIS_SERVERS {
        let Some(capacity) = budget.on(MANY_CORES, servers) else { continue };
        let Capacity { wins_per_second, service_cores, redis_cores, postgres_cores, .. } = capacity;
        let cores = [service_cores, redis_cores, postgres_cores].map(|cores| format!("{cores:.1}"));
        let limit = if capacity.redis_is_full { "Redis, one thread each" } else { "the cores" };
        let [service, redis, postgres] = cores;
        let wins = thousands(wins_per_second);
        rows.push(vec![servers.to_string(), wins, service, redis, postgres, limit.to_owned()]);
    }
    text.push_str(&markdown(&rows));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::between;
    use crate::results::goals::GOALS as ALL;

    /// First and second cell of each row of a table.
    fn cells(table: &str) -> Vec<(String, String)> {
        let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
        let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
        cells.map(|cells| (cells[1].to_owned(), cells[2].to_owned())).collect()
    }

    #[test]
    fn the_document_has_a_row_for_each_goal() {
        let document = include_str!("../../../../docs/performance.md");
        let table = between(document, GOALS).expect("both markers are there");
        let goals: Vec<_> = ALL.iter().map(|goal| (goal.what.to_owned(), goal.aim())).collect();
        assert_eq!(
            cells(table),
            goals,
            "docs/performance.md is older than the goals: `make bench` writes it"
        );
        assert_eq!(cells(between(document, CORES).unwrap()).len(), REDIS_SERVERS.len());
    }

    #[test]
    fn a_goal_without_a_figure_says_how_to_measure_it() {
        let spread = Spread::of([1.0, 2.0, 3.0]);
        let goal = |figure, met| Reached {
            what: "x",
            aim: "<= 2 ms".to_owned(),
            unit: " ms",
            figure,
            met,
            how: "do so",
        };
        let rows = rows(&[goal(None, None), goal(spread, Some(true))]);
        assert_eq!(rows[1], ["x", "<= 2 ms", "not measured: do so", "-"]);
        assert_eq!(rows[2], ["x", "<= 2 ms", "2.00 ms (1.00 to 3.00)", "yes"]);
    }
}
