//! Pictures as files and within a page, whose colours they take.

use plotters::style::RGBColor;

/// Stand for the page's own colours: plotters knows no such thing, so the page replaces them.
pub const INK: RGBColor = RGBColor(0x10, 0x20, 0x31);
pub const GRID: RGBColor = RGBColor(0x10, 0x20, 0x32);

/// As text of a page or a picture.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Within the page it takes the page's colours, and needs no name space.
pub fn inline(svg: &str) -> String {
    svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "")
        .replace(&hex(INK), "currentColor")
        .replace(&hex(GRID), "var(--grid)")
        .replace("fill=\"#FFFFFF\"", "fill=\"none\"")
}

/// As a file, a plot has a background of its own, because the background of its viewer is unknown.
pub fn alone(svg: &str) -> String {
    let svg = svg.replace(&hex(GRID), "#D8DCE0");
    let paper = "<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>";
    match svg.find('>') {
        Some(end) => format!("{}{paper}{}", &svg[..=end], &svg[end + 1..]),
        None => svg,
    }
}

/// As SVG writes a colour.
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_takes_the_colours_of_its_page_and_names_no_address() {
        let svg = "<svg width=\"1\" xmlns=\"http://www.w3.org/2000/svg\"><line stroke=\"#102031\"/></svg>";
        assert_eq!(inline(svg), "<svg width=\"1\"><line stroke=\"currentColor\"/></svg>");
        assert!(alone(svg).contains("<rect width=\"100%\""));
    }

    #[test]
    fn text_is_text() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
