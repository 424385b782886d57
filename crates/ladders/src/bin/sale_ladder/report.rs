//! Tables and the plot.

use ladders::essay::{figure, provenance, table};

use crate::crowd::Summary;
use crate::rung::Rung;
use crate::stage::{Crowd, Facts, Figures};

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

/// What a rung's row in the tables begins with.
pub fn start_of_row(rung: &Rung) -> String {
    format!("| {} |", rung.number)
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
