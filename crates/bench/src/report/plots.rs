//! Plots as SVG. They name no font of this machine, and their lines take the colour of the page around them.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::cells::figure;
use super::svg::{GRID, INK};
use super::table::with_latency;
use crate::figures::Spread;
use crate::load::record::STEP;
use crate::measure::slice::Slice;
use crate::results::compare::CompareReport;
use crate::results::drain::Drain;
use crate::results::overload::TIMES;
use crate::results::run::RunReport;

const SIZE: (u32, u32) = (760, 380);
const FONT: &str = "sans-serif";
/// Told apart on white, on black, and by most people who don't see all colours.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x2b, 0x7b, 0xba),
    RGBColor(0xe0, 0x7b, 0x00),
    RGBColor(0x1f, 0x9e, 0x77),
    RGBColor(0xc0, 0x4f, 0x9b),
    RGBColor(0x8a, 0x8d, 0x0f),
    RGBColor(0x7a, 0x6f, 0xd0),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A plot with the name of its file.
pub struct Plot {
    pub name: &'static str,
    pub title: &'static str,
    pub svg: String,
}

/// A line of a plot.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// A bar, of parts that stand on each other.
struct Bar {
    name: String,
    parts: Vec<(&'static str, f64)>,
}

/// Every plot that a run's figures give.
pub fn of_run(report: &RunReport) -> anyhow::Result<Vec<Plot>> {
    let mut plots = drawn([
        ("latency", "Latency by percentile", latency(report)?),
        ("throughput", "Answers a second over time", throughput(report)?),
        ("cpu", "CPU time per request", cpu(report)?),
        ("ratio", "Requests per second, compared with the no-op route", ratio(report)?),
        (
            "overload",
            "Answers a second at the peak, and under twice as many requests",
            overload(report)?,
        ),
    ]);
    let budgets: Vec<_> = report.budget_before.iter().chain(&report.budget).collect();
    let budget = (!budgets.is_empty()).then(|| super::budget::svg(&budgets));
    plots.extend(drawn([(
        "budget",
        "The budget of a win: CPU time in µs, until it is written",
        budget,
    )]));
    if let Some(drain) = &report.drain {
        plots.extend(of_drain(drain)?);
    }
    Ok(plots)
}

/// The worker beside COPY.
pub fn of_drain(drain: &Drain) -> anyhow::Result<Vec<Plot>> {
    let bars = [("the worker", drain.rows_per_second), ("raw COPY", drain.copied_per_second)];
    let bars = bars.into_iter().filter_map(|(name, rows)| {
        Some(Bar { name: name.to_owned(), parts: vec![("", rows?.median)] })
    });
    let svg = draw_bars(&bars.collect::<Vec<_>>(), "rows/s")?;
    Ok(drawn([("drain", "Rows a second while a backlog is drained", svg)]))
}

/// The ratio of the pairs over time.
pub fn of_comparison(report: &CompareReport) -> anyhow::Result<Vec<Plot>> {
    let lines = report.comparisons.iter().map(|comparison| {
        let pairs = comparison.a.iter().zip(&comparison.b).enumerate();
        let ratio = |a: &Slice, b: &Slice| b.requests_per_second / a.requests_per_second;
        Line {
            name: comparison.scenario.name(),
            points: pairs.map(|(pair, (a, b))| ((pair + 1) as f64, ratio(a, b))).collect(),
        }
    });
    let lines: Vec<Line> = lines.collect();
    let svg = draw_lines(&lines, "pair", "requests/s, B / A", &|x| figure(Some(*x)))?;
    Ok(drawn([("pairs", "Requests per second, B / A, pair by pair", svg)]))
}

fn drawn<const N: usize>(plots: [(&'static str, &'static str, Option<String>); N]) -> Vec<Plot> {
    let drawn =
        plots.into_iter().filter_map(|(name, title, svg)| Some(Plot { name, title, svg: svg? }));
    drawn.collect()
}

/// The axis is stretched towards 100 %: each nine more is as wide as the last one.
fn latency(report: &RunReport) -> anyhow::Result<Option<String>> {
    let nines = |percent: f64| -((1.0 - percent / 100.0).max(1e-9)).log10();
    let mut drawn = Vec::new();
    let lines = with_latency(report).filter_map(|slice| {
        // The first slice of each kind; those that follow look alike.
        if drawn.contains(&(slice.scenario, slice.rate)) {
            return None;
        }
        drawn.push((slice.scenario, slice.rate));
        let points = slice.latency.as_ref()?.curve.iter();
        let rate = slice.rate.map_or("all at once".to_owned(), |rate| format!("{rate:.0}/s"));
        Some(Line {
            name: format!("{}, {rate}", slice.scenario.name()),
            points: points.map(|(percent, ms)| (nines(*percent), *ms)).collect(),
        })
    });
    let percent = |nines: &f64| {
        let percent = 100.0 - 100.0 * 10_f64.powf(-nines.round());
        if nines.fract() == 0.0 { format!("{percent} %") } else { String::new() }
    };
    draw_lines(&lines.collect::<Vec<_>>(), "percentile", "ms", &percent)
}

fn throughput(report: &RunReport) -> anyhow::Result<Option<String>> {
    let step = STEP.as_secs_f64();
    // The first slice of each scenario; those that follow look alike.
    let lines = report.summaries.iter().filter_map(|summary| {
        let slice = report.slices.iter().find(|slice| slice.scenario == summary.scenario)?;
        let steps = slice.over_time.iter().enumerate();
        // The last step isn't whole.
        let points = steps.take(slice.over_time.len().saturating_sub(1));
        Some(Line {
            name: summary.scenario.name(),
            points: points.map(|(at, rate)| ((at as f64 + 0.5) * step, *rate)).collect(),
        })
    });
    draw_lines(&lines.collect::<Vec<_>>(), "seconds since the start", "answers/s", &|x| {
        figure(Some(*x))
    })
}

fn cpu(report: &RunReport) -> anyhow::Result<Option<String>> {
    let bars = report.summaries.iter().map(|summary| {
        let cpu = &summary.cpu_us_per_request;
        let parts = [
            ("service", cpu.service),
            ("Redis", cpu.redis),
            ("Postgres", cpu.postgres),
            ("client", cpu.client),
        ];
        let parts = parts.into_iter().filter_map(|(name, us)| Some((name, us?)));
        Bar { name: summary.scenario.name(), parts: parts.collect() }
    });
    draw_bars(&bars.collect::<Vec<_>>(), "µs of CPU time per request")
}

fn ratio(report: &RunReport) -> anyhow::Result<Option<String>> {
    let bars = report.summaries.iter().filter_map(|summary| {
        let Spread { median, .. } = summary.throughput_to_no_op?;
        Some(Bar { name: summary.scenario.name(), parts: vec![("", median)] })
    });
    draw_bars(&bars.collect::<Vec<_>>(), "requests/s, no-op = 1")
}

fn overload(report: &RunReport) -> anyhow::Result<Option<String>> {
    let bars = report.overload.iter().flat_map(|overload| {
        let median = |spread: Option<Spread>| spread.map_or(0.0, |spread| spread.median);
        let name = overload.scenario.name();
        let good = ("as hoped", median(overload.good_per_second));
        let overloaded = ("“overloaded”", median(overload.overloaded_per_second));
        [
            Bar {
                name: format!("{name}, peak"),
                parts: vec![("as hoped", median(overload.peak_per_second))],
            },
            Bar { name: format!("{name}, {TIMES} x peak comes"), parts: vec![good, overloaded] },
        ]
    });
    draw_bars(&bars.collect::<Vec<_>>(), "answers/s")
}

fn draw_lines(
    lines: &[Line],
    x_name: &str,
    y_name: &str,
    x_label: &dyn Fn(&f64) -> String,
) -> anyhow::Result<Option<String>> {
    // A ratio to a slice without any answer is none. Where the axis has no end, plotters never ends either.
    let finite = |line: &Line| -> Vec<(f64, f64)> {
        let points = line.points.iter().copied();
        points.filter(|(x, y)| x.is_finite() && y.is_finite()).collect()
    };
    let points = || lines.iter().flat_map(finite);
    let x_max = points().map(|(x, _)| x).fold(0.0, f64::max);
    let y_max = points().map(|(_, y)| y).fold(0.0, f64::max);
    if x_max <= 0.0 || y_max <= 0.0 {
        return Ok(None);
    }
    draw(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max * 1.3)?;
        chart
            .configure_mesh()
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style((FONT, 13, &INK))
            .x_desc(x_name)
            .y_desc(y_name)
            .x_label_formatter(x_label)
            .y_label_formatter(&|y| figure(Some(*y)))
            .draw()?;
        for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let series = LineSeries::new(finite(line), colour.stroke_width(2));
            chart.draw_series(series)?.label(&line.name).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3))
            });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font((FONT, 13, &INK))
            .draw()?;
        Ok(())
    })
    .map(Some)
}

fn draw_bars(bars: &[Bar], y_name: &str) -> anyhow::Result<Option<String>> {
    let height = |bar: &&Bar| bar.parts.iter().map(|(_, part)| part).sum::<f64>();
    let bars: Vec<&Bar> = bars.iter().filter(|bar| height(bar).is_finite()).collect();
    let y_max = bars.iter().map(height).fold(0.0, f64::max);
    if y_max <= 0.0 {
        return Ok(None);
    }
    draw(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(32)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..bars.len() as f64, 0.0..y_max * 1.25)?;
        let name = |x: &f64| {
            let bar = (x.fract() == 0.5).then(|| bars.get(x.floor() as usize)).flatten();
            bar.map_or_else(String::new, |bar| bar.name.clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style((FONT, 13, &INK))
            .y_desc(y_name)
            .x_label_formatter(&name)
            .y_label_formatter(&|y| figure(Some(*y)))
            .draw()?;
        let mut named = Vec::new();
        for (at, bar) in bars.iter().enumerate() {
            let left = at as f64 + 0.2;
            let mut bottom = 0.0;
            for (part, (name, value)) in bar.parts.iter().enumerate() {
                let colour = COLOURS[part % COLOURS.len()];
                let corners = [(left, bottom), (left + 0.6, bottom + value)];
                let drawn = chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                if !name.is_empty() && !named.contains(name) {
                    named.push(*name);
                    drawn.label(*name).legend(move |(x, y)| {
                        Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
                    });
                }
                bottom += value;
            }
            let above = format!("{}: {}", bar.name, figure(Some(bottom)));
            let text =
                Text::new(above, (left, bottom + y_max * 0.05), (FONT, 13).into_font().color(&INK));
            chart.draw_series([text])?;
        }
        if !named.is_empty() {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .label_font((FONT, 13, &INK))
                .draw()?;
        }
        Ok(())
    })
    .map(Some)
}

fn draw(
    drawing: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = drawing(&area).and_then(|()| Ok(area.present()?));
        drawn.map_err(|error| anyhow!("a plot can't be drawn: {error}"))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A slice without any answer makes a ratio infinite.
    #[test]
    fn a_point_at_infinity_is_left_out_and_ends_no_program() {
        let (drawn, done) = mpsc::channel();
        thread::spawn(move || {
            let points = vec![(1.0, f64::INFINITY), (2.0, f64::NAN), (3.0, 1.5)];
            let line = Line { name: "win".to_owned(), points };
            let bars =
                [f64::INFINITY, 2.0].map(|part| Bar { name: "a".into(), parts: vec![("", part)] });
            let lines = draw_lines(&[line], "pair", "B / A", &|x| figure(Some(*x)));
            drawn.send((lines.unwrap().is_some(), draw_bars(&bars, "rows/s").unwrap().is_some()))
        });
        // plotters looks for the marks of an endless axis for ever.
        let drawn = done.recv_timeout(Duration::from_secs(60));
        assert_eq!(drawn, Ok((true, true)));
    }
}
