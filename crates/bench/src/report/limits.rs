//! Tables of what a service does at its limits.

use super::cells::{Rows, figure, texts, thousands};
use crate::figures::Spread;
use crate::measure::slice::{Latency, Slice};
use crate::results::budget::Budget;
use crate::results::drain::Drain;
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
    let overload = report.overload.first().map(|first| Section {
        title: "Overload",
        text: format!(
            "Requests come at {TIMES} times the peak of a closed loop, whatever the service does; medians of the slices. {}",
            whose_cores(first)
        ),
        rows: overload(&report.overload),
    });
    let drain = report.drain.as_ref().map(drain);
    let budget = report.budget.as_ref().map(budget);
    overload.into_iter().chain(drain).chain(budget).collect()
}

type OfProcess = fn(&CpuTimes) -> Option<f64>;

/// CPU time of a win by process.
fn budget(budget: &Budget) -> Section {
    let mut rows = vec![texts(&["process", "µs", "in the kernel", "in the kernel, everysec"])];
    let processes: [(&str, OfProcess); 5] = [
        ("client", |cpu| cpu.client),
        ("service", |cpu| cpu.service),
        ("Redis", |cpu| cpu.redis),
        ("Postgres", |cpu| cpu.postgres),
        ("service, Redis, Postgres", CpuTimes::measured),
    ];
    for (name, of) in processes {
        let times = [&budget.cpu_us, &budget.kernel_us, &budget.everysec_kernel_us];
        let cells = times.map(|times| figure(of(times)));
        rows.push([vec![name.to_owned()], cells.to_vec()].concat());
    }
    let text = format!(
        "CPU time of each of {} wins until it is a row; the append-only file grows by {} bytes for each.",
        thousands(budget.wins as f64),
        figure(budget.aof_bytes)
    );
    Section { title: "The budget of a win", text, rows }
}

/// The worker beside COPY, and what a buyer costs in Redis.
pub fn drain(drain: &Drain) -> Section {
    let each = drain.spread(|round| Some(round.orders as f64)).map(|orders| orders.median);
    let text = format!(
        "A backlog of {} orders becomes rows, by one worker; beside it raw COPY of the same rows into the same kind of table.",
        figure(each)
    );
    Section { title: "Draining a backlog", text, rows: drain_rows(drain) }
}

fn drain_rows(drain: &Drain) -> Rows {
    let mut rows = vec![texts(&["", "median", "smallest to largest", "rounds"])];
    for (what, spread) in [
        ("worker: rows/s", drain.spread(|round| Some(round.rows_per_second))),
        ("COPY: rows/s", drain.spread(|round| Some(round.copied?.per_second))),
        ("worker / COPY", drain.to_copy),
        ("worker: service µs/row", drain.spread(|round| round.cpu_us_per_row.service)),
        ("worker: Redis µs/row", drain.spread(|round| round.cpu_us_per_row.redis)),
        ("worker: Postgres µs/row", drain.spread(|round| round.cpu_us_per_row.postgres)),
        ("COPY: Postgres µs/row", drain.spread(|round| round.copied?.postgres_us_per_row)),
        (
            "Redis bytes/buyer, all written and trimmed",
            drain.spread(|round| round.redis_bytes_per_buyer),
        ),
    ] {
        let Some(Spread { min, median, max, count, .. }) = spread else { continue };
        let [min, median, max] = [min, median, max].map(|value| figure(Some(value)));
        rows.push(vec![what.to_owned(), median, format!("{min} to {max}"), count.to_string()]);
    }
    rows
}

fn whose_cores(overload: &Overload) -> String {
    match overload.client_cores {
        Some(cores) => format!("Cores that the client has to itself, for the peak, too: {cores}."),
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
        "overloaded",
        "other troubles",
        "never sent",
        "good p50 ms",
        "good p99 ms",
    ])];
    let median = |slices: &[Slice], of: fn(&Slice) -> Option<f64>| {
        figure(Spread::of(slices.iter().filter_map(of)).map(|spread| spread.median))
    };
    let latency = |slices: &[Slice], of: fn(&Latency) -> Option<f64>| {
        let latencies = slices.iter().filter_map(|slice| slice.latency.as_ref());
        figure(Spread::of(latencies.filter_map(of)).map(|spread| spread.median))
    };
    for overload in overloads {
        let floods = &overload.floods;
        let to_peak =
            overload.to_peak.map_or("-".to_owned(), |Spread { min, median, max, .. }| {
                format!("{median:.2} ({min:.2} to {max:.2})")
            });
        let endings = floods.iter().flat_map(|slice| &slice.endings);
        let refused = endings.filter(|ending| ending.code == "overloaded");
        rows.push(vec![
            overload.scenario.name(),
            median(&overload.peaks, |slice| Some(slice.good_per_second)),
            median(floods, |slice| slice.rate),
            median(floods, |slice| Some(slice.sent_per_second)),
            median(floods, |slice| Some(slice.good_per_second)),
            to_peak,
            refused.map(|ending| ending.count).sum::<u64>().to_string(),
            overload.other_troubles.to_string(),
            floods.iter().map(|slice| slice.never_sent).sum::<u64>().to_string(),
            latency(floods, |latency| latency.good_p50_ms),
            latency(floods, |latency| latency.good_p99_ms),
        ]);
    }
    rows
}
