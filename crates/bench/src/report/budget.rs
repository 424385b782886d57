//! The picture of the budget of a win: a bar for each process, its parts named below it.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;

use super::cells::figure;
use super::svg::{INK, alone, escape, hex};
use crate::results::budget::{Budget, Process};

const WIDTH: f64 = 760.0;
const MARGIN: f64 = 16.0;
/// Left end of the bars.
const LEFT: f64 = 150.0;
const BAR: f64 = 24.0;
/// Height of a line of names.
const LINE: f64 = 18.0;
/// Width of a character of a name, about.
const CHARACTER: f64 = 6.9;
/// Told apart on white and on black; kernel and syncs have colours of their own.
const COLOURS: [&str; 12] = [
    "#2B7BBA", "#E07B00", "#1F9E77", "#C04F9B", "#8A8D0F", "#7A6FD0", "#4FA9C9", "#B5651D",
    "#5B8C5A", "#D9A441", "#3F5F8A", "#A05A7A",
];
const KERNEL: &str = "#8A939C";
const SYNC: &str = "#C0392B";
/// Parts of less don't count.
const SMALLEST_US: f64 = 0.05;

/// Writes the picture of these budgets, the oldest first, into a file of its own.
pub fn write(budgets: &[&Budget], file: &Path) -> anyhow::Result<()> {
    let svg = alone(&svg(budgets)) + "\n";
    std::fs::write(file, svg).with_context(|| format!("{} can't be written to", file.display()))
}

/// The picture.
pub fn svg(budgets: &[&Budget]) -> String {
    let processes = || budgets.iter().flat_map(|budget| &budget.processes);
    let longest = processes().map(Process::us).fold(1.0, f64::max);
    let colours = Colours::of(processes());
    let mut body = String::new();
    let mut y = MARGIN;
    for budget in budgets {
        y += LINE;
        let title = format!(
            "{}: {} µs of CPU time for a win, and {} µs of the client",
            budget.of,
            figure(Some(budget.measured_us())),
            figure(budget.us("client"))
        );
        text(&mut body, MARGIN, y, 14, &title);
        y += LINE * 0.7;
        for process in &budget.processes {
            y = draw(&mut body, process, &colours, longest, y);
        }
        y += LINE * 0.5;
    }
    format!(
        "<svg width=\"{WIDTH}\" height=\"{y:.0}\" viewBox=\"0 0 {WIDTH} {y:.0}\" xmlns=\"http://www.w3.org/2000/svg\" \
        font-family=\"sans-serif\">\n{body}</svg>"
    )
}

/// Parts of one name have one colour, before and after.
struct Colours<'a> {
    names: Vec<&'a str>,
}

impl<'a> Colours<'a> {
    fn of(processes: impl Iterator<Item = &'a Process>) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for part in processes.flat_map(|process| &process.parts) {
            if !names.contains(&part.name.as_str()) {
                names.push(&part.name);
            }
        }
        names.retain(|name| !name.starts_with("kernel") && !name.starts_with("sync"));
        Self { names }
    }

    fn colour(&self, name: &str) -> &'static str {
        match self.names.iter().position(|known| *known == name) {
            Some(at) => COLOURS[at % COLOURS.len()],
            None if name.starts_with("sync") => SYNC,
            None => KERNEL,
        }
    }
}

/// Draws the bar of a process from `y` on. Returns where the next one begins.
fn draw(body: &mut String, process: &Process, colours: &Colours, longest: f64, y: f64) -> f64 {
    let name = format!("{}, {} µs", process.name, figure(Some(process.us())));
    text(body, MARGIN, y + BAR * 0.7, 13, &name);
    let scale = (WIDTH - MARGIN - LEFT) / longest;
    let mut x = LEFT;
    let mut name_x = LEFT;
    let mut name_y = y + BAR + LINE * 0.8;
    let parts = process.parts.iter().filter(|part| part.us >= SMALLEST_US);
    for part in parts {
        let colour = colours.colour(&part.name);
        let width = part.us * scale;
        let _ = writeln!(
            body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
        );
        x += width;
        let label = format!("{} {}", part.name, figure(Some(part.us)));
        let label_width = label.chars().count() as f64 * CHARACTER + 26.0;
        if name_x + label_width > WIDTH {
            name_x = LEFT;
            name_y += LINE;
        }
        let square_y = name_y - 9.0;
        let _ = writeln!(
            body,
            "<rect x=\"{name_x:.1}\" y=\"{square_y:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
        );
        text(body, name_x + 14.0, name_y, 11, &label);
        name_x += label_width;
    }
    name_y + LINE * 0.7
}

fn text(body: &mut String, x: f64, y: f64, size: u32, text: &str) {
    let text = escape(text);
    let ink = hex(INK);
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{ink}\">{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::budget::Part;

    fn budget(of: &str, us: f64) -> Budget {
        let parts = [("XADD", us), ("kernel", 2.0), ("other commands", 0.0)];
        let parts = parts.map(|(name, us)| Part { name: name.to_owned(), us });
        let process = Process { name: "Redis".to_owned(), parts: parts.to_vec() };
        Budget { of: of.to_owned(), wins: 1, processes: vec![process] }
    }

    #[test]
    fn each_part_is_drawn_and_named_before_and_after() {
        let svg = svg(&[&budget("a<b", 8.0), &budget("new", 3.0)]);
        for name in ["a&lt;b: 10.0 µs", "new: 5.00 µs", "XADD 8.00", "XADD 3.00", "kernel 2.00"] {
            assert!(svg.contains(name), "{name} is missing in {svg}");
        }
        assert!(!svg.contains("other commands"), "a part of nothing is not drawn");
        let drawn = |colour: &str| svg.matches(colour).count();
        assert_eq!((drawn(COLOURS[0]), drawn(KERNEL)), (4, 4), "a name keeps its colour: {svg}");
        // The longest bar fills the width, and the other one is in proportion.
        assert!(svg.contains("width=\"475.2\"") && svg.contains("width=\"178.2\""), "{svg}");
    }
}
