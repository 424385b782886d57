//! Bars on a logarithmic scale, as SVG. They name no font of a machine.

use anyhow::anyhow;
use plotters::prelude::*;

/// A bar.
pub struct Bar {
    /// Name, at its left.
    pub name: String,
    /// Length; more than 0.
    pub value: f64,
    /// Text at its right.
    pub label: String,
    /// Whether the design keeps its promises: those that don't have another colour.
    pub is_right: bool,
}

const WIDTH: u32 = 860;
const ROW: u32 = 20;
const NAMES: i32 = 320;
const LABELS: i32 = 90;
/// Told apart by most people who don't see all colours.
const RIGHT: RGBColor = RGBColor(0x2b, 0x7b, 0xba);
const WRONG: RGBColor = RGBColor(0xe0, 0x7b, 0x00);
const INK: RGBColor = RGBColor(0x55, 0x55, 0x55);

/// The plot: one bar below the other.
///
/// # Errors
///
/// When there is no bar, or one without length.
pub fn svg(title: &str, bars: &[Bar]) -> anyhow::Result<String> {
    let positive = |value: &f64| *value > 0.0;
    let values = || bars.iter().map(|bar| bar.value).filter(positive);
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    anyhow::ensure!(bars.len() == values().count() && most > 0.0, "each bar needs a length");
    // The shortest bar is seen, too.
    let (from, decades) = (least / 2.0, (most / least * 2.0).log10());
    let room = f64::from(WIDTH) - f64::from(NAMES + LABELS);
    let height = ROW * (u32::try_from(bars.len())? + 3);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
        let draw = || -> Result<(), Box<dyn std::error::Error>> {
            area.draw(&Text::new(title.to_owned(), (8, 6), text(15)))?;
            for (row, bar) in (2..).zip(bars) {
                let top = row * ROW.cast_signed();
                let colour = if bar.is_right { RIGHT } else { WRONG };
                let length = (bar.value / from).log10() / decades * room;
                let end = NAMES + length.round() as i32;
                area.draw(&Text::new(bar.name.clone(), (8, top), text(12)))?;
                area.draw(&Rectangle::new([(NAMES, top), (end, top + 14)], colour.filled()))?;
                area.draw(&Text::new(bar.label.clone(), (end + 6, top), text(12)))?;
            }
            Ok(area.present()?)
        };
        draw().map_err(|error| anyhow!("the plot can't be drawn: {error}"))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64, is_right: bool) -> Bar {
        Bar { name: format!("n{value}"), value, label: String::new(), is_right }
    }

    #[test]
    fn a_longer_bar_is_longer_and_a_wrong_one_has_another_colour() {
        let svg = svg("t", &[bar(10.0, true), bar(1000.0, false)]).unwrap();
        let width = |colour: &str| -> u32 {
            let rect = svg.lines().find(|line| line.starts_with("<rect") && line.contains(colour));
            let (_, rest) = rect.unwrap().split_once("width=\"").unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        assert!(width("#E07B00") > 3 * width("#2B7BBA"), "{svg}");
    }

    #[test]
    fn a_bar_without_length_is_refused() {
        assert!(svg("t", &[bar(0.0, true)]).is_err());
        assert!(svg("t", &[]).is_err());
    }
}
