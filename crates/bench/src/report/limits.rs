//! Tables of what a service does at its limits.

use super::cells::{Rows, figure, texts, thousands};
use crate::figures::Spread;
use crate::load::scenario::Scenario;
use crate::measure::slice::{Latency, Slice};
use crate::results::drain::{Drain, Round};
use crate::results::levels;
use crate::results::overload::{Overload, TIMES};
use crate::results::run::RunReport;
use crate::service::cpu::CpuTimes;

/// A table, and what it is about.
pub struct Section {
    pub title: &'static str,
    pub text: String,
    pub rows: Rows,
}

/// The tables that there are figures for.
pub fn sections(report: &RunReport) -> Vec<Section> {
    let mut sections = Vec::new();
    if !report.overload.is_empty() {
        sections.push(Section {
            title: "Overload",
            text: format!(
                "Requests come at {TIMES} times the peak of a closed loop, whatever the service does; medians of the slices. {}",
                whose_cores(&report.overload[0])
            ),
            rows: overload(&report.overload),
        });
        sections.push(Section {
            title: "Health under overload",
            text: "What must always be answered, asked every 100 ms meanwhile.".to_owned(),
            rows: probes(&report.overload),
        });
    }
    if !report.levels.is_empty() {
        sections.push(Section {
            title: "Levels of durability",
            text: "Wins of a closed loop, in turns; at each level Redis has the settings that the level needs, and no more.".to_owned(),
            rows: levels(report),
        });
    }
    sections.extend(report.drain.as_ref().map(drain));
    sections
}

fn levels(report: &RunReport) -> Rows {
    let mut rows = vec![texts(&[
        "--durability",
        "appendfsync",
        "wins/s",
        "/ fsync",
        "service µs",
        "Redis µs",
        "Postgres µs",
    ])];
    for level in levels::of(report.of(Scenario::Win), &report.levels) {
        let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
        let cpu = &level.cpu_us_per_win;
        rows.push(vec![
            level.name.to_owned(),
            level.appendfsync.to_owned(),
            median(level.wins_per_second).map_or("-".to_owned(), thousands),
            figure(median(level.to_fsync)),
            figure(cpu.service),
            figure(cpu.redis),
            figure(cpu.postgres),
        ]);
    }
    rows
}

/// The worker beside COPY, and what a buyer costs in Redis.
pub fn drain(drain: &Drain) -> Section {
    let orders: u64 = drain.rounds.iter().map(|round| round.orders).sum();
    let each = orders as f64 / drain.rounds.len().max(1) as f64;
    let text = format!(
        "A backlog of {} orders becomes rows, by one worker, in transactions of up to {} rows; beside it raw COPY of the \
        same rows into the same kind of table.",
        thousands(each),
        drain.batch_orders_max
    );
    Section { title: "Draining a backlog", text, rows: drain_rows(drain) }
}

fn drain_rows(drain: &Drain) -> Rows {
    let cpu = |of: fn(&CpuTimes) -> Option<f64>| {
        Spread::of(drain.rounds.iter().filter_map(|round| of(&round.cpu_us_per_row)))
    };
    let copy = |round: &Round| round.copy_cpu_us_per_row.postgres;
    let copy_cpu = Spread::of(drain.rounds.iter().filter_map(copy));
    let mut rows = vec![texts(&["", "median", "smallest to largest", "rounds"])];
    for (what, spread) in [
        ("worker: rows/s", drain.rows_per_second),
        ("COPY: rows/s", drain.copied_per_second),
        ("worker / COPY", drain.to_copy),
        ("worker: service µs/row", cpu(|cpu| cpu.service)),
        ("worker: Redis µs/row", cpu(|cpu| cpu.redis)),
        ("worker: Postgres µs/row", cpu(|cpu| cpu.postgres)),
        ("COPY: Postgres µs/row", copy_cpu),
        ("Redis bytes/buyer, all written and trimmed", drain.redis_bytes_per_buyer),
    ] {
        let Some(Spread { min, median, max, count, .. }) = spread else { continue };
        let min = figure(Some(min));
        let max = figure(Some(max));
        rows.push(vec![
            what.to_owned(),
            figure(Some(median)),
            format!("{min} to {max}"),
            count.to_string(),
        ]);
    }
    rows
}

fn whose_cores(overload: &Overload) -> String {
    match overload.client_cores {
        Some(1) => "The client has a core of its own, for the peak, too.".to_owned(),
        Some(cores) => format!("The client has {cores} cores of its own, for the peak, too."),
        None => "The client shares the cores with what it measures.".to_owned(),
    }
}

/// The share of the peak that is left under overload.
fn overload(overloads: &[Overload]) -> Rows {
    let mut rows = vec![texts(&[
        "scenario",
        "peak/s",
        "due/s",
        "sent/s",
        "good/s",
        "good / peak",
        "overloaded/s",
        "other troubles",
        "never sent",
        "good p50 ms",
        "good p99 ms",
        "client µs",
    ])];
    let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
    for overload in overloads {
        let floods = || overload.floods.iter();
        let of =
            |figure: fn(&Slice) -> Option<f64>| median(Spread::of(floods().filter_map(figure)));
        let latency = |figure: fn(&Latency) -> Option<f64>| {
            let latencies = floods().filter_map(|slice| slice.latency.as_ref());
            median(Spread::of(latencies.filter_map(figure)))
        };
        let good = |spread: Option<Spread>| {
            spread.map_or("-".to_owned(), |Spread { min, median, max, .. }| {
                format!("{median:.2} ({min:.2} to {max:.2})")
            })
        };
        rows.push(vec![
            overload.scenario.name(),
            figure(median(overload.peak_per_second)),
            figure(of(|slice| slice.rate)),
            figure(of(|slice| Some(slice.sent_per_second))),
            figure(median(overload.good_per_second)),
            good(overload.to_peak),
            figure(median(overload.overloaded_per_second)),
            overload.other_troubles.to_string(),
            floods().map(|slice| slice.never_sent).sum::<u64>().to_string(),
            figure(latency(|latency| latency.good_p50_ms)),
            figure(latency(|latency| latency.good_p99_ms)),
            figure(of(|slice| slice.cpu_us_per_request.client)),
        ]);
    }
    rows
}

/// Other requests during the overload.
fn probes(overloads: &[Overload]) -> Rows {
    let mut rows =
        vec![texts(&["asked under overload", "times", "not answered 200", "slowest ms"])];
    for overload in overloads {
        rows.extend(overload.probes.iter().map(|probe| {
            vec![
                format!("{}: GET {}", overload.scenario.name(), probe.path),
                probe.asked.to_string(),
                probe.failed.to_string(),
                figure(Some(probe.slowest_ms)),
            ]
        }));
    }
    rows
}
