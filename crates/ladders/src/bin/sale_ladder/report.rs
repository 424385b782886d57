//! Tables and the plot.

use ladders::essay::{figure, provenance, table};
use ladders::plot::{self, Bar};

use crate::crowd::Summary;
use crate::rung::Rung;
use crate::stage::{Crowd, Facts, Figures};
use crate::waiting::Bytes;

/// Requests a second.
pub fn rate(answers: &Summary) -> f64 {
    answers.requests as f64 / answers.seconds.max(1e-9)
}

/// Facts in words.
pub fn sentence(facts: &Facts) -> String {
    let Facts { sold, oversold, twice, lost, gone, .. } = facts;
    let twice = if *twice { ", twice to one user" } else { "" };
    let lost =
        lost.map_or_else(String::new, |lost| format!("; after a SIGKILL {lost} orders lost"));
    format!("sold {sold}, oversold {oversold}{twice}{lost}, {gone} units gone")
}

/// A design that keeps all promises and sells all units.
fn is_right(facts: &Facts, units: i64) -> bool {
    let Facts { sold, twice, lost, gone, .. } = facts;
    *sold == units && !twice && lost.unwrap_or_default() == 0 && *gone == 0
}

pub fn facts_table(all: &[(Rung, Facts)]) -> String {
    let head = [
        "rung",
        "design",
        "sold of 200",
        "oversold",
        "twice to one user",
        "stock at the end",
        "orders lost by a SIGKILL",
        "units gone",
    ];
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|(rung, facts)| {
            let twice = if facts.twice { "**yes**" } else { "no" };
            let sold = if facts.sold < 200 {
                format!("**{}**", facts.sold)
            } else {
                facts.sold.to_string()
            };
            let lost = facts.lost.map_or_else(|| "not tried".to_owned(), marked);
            vec![
                rung.number.to_owned(),
                rung.title.to_owned(),
                sold,
                marked(facts.oversold),
                twice.to_owned(),
                facts.stock.to_string(),
                lost,
                marked(facts.gone),
            ]
        })
        .collect();
    table(&head, &rows)
}

/// A number that should be 0.
fn marked(number: i64) -> String {
    if number == 0 { "0".to_owned() } else { format!("**{number}**") }
}

pub fn figures_table(all: &[(Rung, Figures)], crowd: Crowd) -> String {
    let head = [
        "rung",
        "design",
        "sold",
        "oversold",
        "users with two",
        "mean, ms",
        "p99, ms",
        "requests/s",
        "orders/s in Postgres",
        "CPU µs per request: program",
        "Redis",
        "Postgres",
    ];
    let rows: Vec<Vec<String>> = all.iter().map(|(rung, figures)| row(rung, figures)).collect();
    format!(
        "{}\n{} users for {} units, each trying twice, {} requests at a time; both stores sync to disk.\n\n{}",
        provenance(),
        figure(crowd.users as f64),
        figure(crowd.units as f64),
        crowd.at_once,
        table(&head, &rows)
    )
}

fn row(rung: &Rung, figures: &Figures) -> Vec<String> {
    let Figures { answers, cpu, .. } = figures;
    let design = match answers.cut {
        true => format!("{} (not finished)", rung.title),
        false => rung.title.to_owned(),
    };
    let mut row = vec![
        rung.number.to_owned(),
        design,
        figures.sold.to_string(),
        figures.oversold.to_string(),
        figures.twice.to_string(),
    ];
    let numbers = [answers.mean_ms, answers.p99_ms, rate(answers), figures.orders_per_second];
    row.extend(numbers.iter().chain(cpu).map(|number| figure(*number)));
    row
}

/// Requests a second of each rung; those whose facts are wrong in another colour.
pub fn plot(figures: &[(Rung, Figures)], facts: &[(Rung, Facts)]) -> anyhow::Result<String> {
    let bars: Vec<Bar> = figures
        .iter()
        .zip(facts)
        .map(|((rung, figures), (_, facts))| Bar {
            name: format!("{:>3}  {}", rung.number, rung.title),
            value: rate(&figures.answers),
            label: figure(rate(&figures.answers)),
            is_right: is_right(facts, 200),
        })
        .collect();
    plot::svg(
        "Requests a second (logarithmic); orange: a promise is broken, or units stay unsold",
        &bars,
    )
}

/// A step of the tutorial with its own figures, as published: mean, requests a second, and the rung that has its design.
const TUTORIAL: [(&str, &str, &str, &str); 3] = [
    ("database and lock", "500 ms", "400", "8"),
    ("a script, and a queue in the process", "200 ms", "", "11a"),
    ("a script, and a stream", "100 ms", "1,200", "17"),
];

/// The tutorial's own figures beside those of the rungs.
pub fn tutorial(all: &[(Rung, Figures)]) -> String {
    let head = [
        "the tutorial's step",
        "its mean",
        "its requests/s",
        "rung here",
        "mean here",
        "requests/s here",
    ];
    let row = |(step, mean, requests, number): (&str, &str, &str, &str)| {
        let (rung, Figures { answers, .. }) = all.iter().find(|(rung, _)| rung.number == number)?;
        let here = [format!("{} ms", figure(answers.mean_ms)), figure(rate(answers))];
        let named = format!("{number}, {}", rung.title);
        let told = [step, mean, requests, &named].map(ToOwned::to_owned).into_iter();
        Some(told.chain(here).collect())
    };
    let rows: Vec<Vec<String>> = TUTORIAL.into_iter().filter_map(row).collect();
    table(&head, &rows)
}

/// Little's law: requests in the system are the rate of requests times their mean time.
pub fn little(all: &[(Rung, Figures)], crowd: Crowd) -> String {
    let head = ["rung", "design", "λ: requests/s", "W: mean, ms", "λW", "clients"];
    let row = |(rung, Figures { answers, .. }): &(Rung, Figures)| {
        let clients = crowd.at_once * usize::try_from(rung.processes).unwrap_or(1);
        let inside = rate(answers) * answers.mean_ms / 1e3;
        let names = [rung.number, rung.title].map(ToOwned::to_owned).into_iter();
        let numbers = [rate(answers), answers.mean_ms, inside].map(figure);
        names.chain(numbers).chain([clients.to_string()]).collect()
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    table(&head, &rows)
}

/// The rates at which a process has used up a core, and the disk its syncs.
pub fn limits(all: &[(Rung, Figures)], syncs_per_second: f64) -> String {
    let head = [
        "rung",
        "design",
        "requests/s that one thread of Redis allows",
        "orders/s / syncs per second",
    ];
    let row = |(rung, figures): &(Rung, Figures)| {
        let [_, redis, _] = figures.cpu;
        let allowed = if redis > 0.0 { figure(1e6 / redis) } else { "not the limit".to_owned() };
        let of_syncs = figure(figures.orders_per_second / syncs_per_second);
        vec![rung.number.to_owned(), rung.title.to_owned(), allowed, of_syncs]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let syncs = figure(syncs_per_second);
    format!(
        "{}\nOne file, written and synced again and again, was synced {syncs} times a second.\n\n{}",
        provenance(),
        table(&head, &rows)
    )
}

/// Bytes of Redis, and what they add up to.
pub fn bytes(bytes: &Bytes) -> String {
    let Bytes { orders, of_waiting, of_buyer } = *bytes;
    let million = |each: f64| format!("{} MB", figure(each));
    let rows = [
        ["an order that waits in the log", &figure(of_waiting), &million(of_waiting)],
        ["a buyer, as long as the sale is there", &figure(of_buyer), &million(of_buyer)],
    ];
    let rows: Vec<Vec<String>> = rows.map(|row| row.map(ToOwned::to_owned).to_vec()).into();
    format!(
        "{}\n{} orders, claimed 80 at a time, while none could be written.\n\n{}",
        provenance(),
        figure(orders as f64),
        table(&["what", "bytes of Redis", "a million of them"], &rows)
    )
}
