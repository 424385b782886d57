//! Looks of the pages, by their text: colours and their contrast, lines, words without digits, and the pace of questions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use regex_lite::Regex;

use super::{folder, words};

/// Least contrast of text, and of lines and shapes, with their ground (WCAG 2.2, 1.4.3 and 1.4.11).
const TEXT_MIN: f64 = 4.5;
const LINE_MIN: f64 = 3.0;

/// Colours of text, and the grounds that each may stand on.
const TEXTS: [&str; 6] = ["ink", "quiet", "main", "good", "warn", "bad"];
const GROUNDS: [&str; 6] = ["paper", "card", "groove", "good-paper", "warn-paper", "bad-paper"];

#[test]
fn each_colour_of_text_can_be_read_on_each_ground_in_both_themes() {
    let colours = colours();
    let on_buttons = [("on-main", "main"), ("on-main", "bad")];
    let pairs = TEXTS.iter().flat_map(|text| GROUNDS.map(|ground| (*text, ground)));
    for (text, ground) in pairs.chain(on_buttons) {
        assert_contrast(&colours, text, ground, TEXT_MIN);
    }
    // No rule takes another colour for text.
    let sheets = sheets();
    let known: BTreeSet<&str> = TEXTS.into_iter().chain(["on-main"]).collect();
    for colour in captures(&sheets, r"[{; ]color: var\(--([a-z-]+)\)") {
        assert!(known.contains(&*colour), "{colour} is no colour of text");
    }
}

#[test]
fn each_line_and_each_shape_is_seen_on_its_ground_in_both_themes() {
    let (colours, sheets) = (colours(), sheets());
    let mut checked = 0;
    let lines = [
        (r"path\.line-[a-z_]+ \{ stroke: var\(--([a-z-]+)\)", "card"),
        (r"\.run-[^{]*\{ fill: var\(--([a-z-]+)\)", "card"),
        (r"\.run-[^{]*\{ fill: none; stroke: var\(--([a-z-]+)\)", "card"),
        (r"\.square-[a-z_]+ \{ fill: var\(--([a-z-]+)\)", "card"),
        (r"\.square-[a-z_]+ \{ fill: var\(--([a-z-]+)\)", "square-waiting"),
    ];
    for (expression, ground) in lines {
        let found = captures(&sheets, expression);
        assert!(!found.is_empty(), "{expression}");
        for line in found {
            assert_contrast(&colours, &line, ground, LINE_MIN);
            checked += 1;
        }
    }
    assert!(checked >= 20, "{checked} lines and shapes");
}

/// Colours are not seen by all, so the lines of a chart differ by their dashes, too.
#[test]
fn the_lines_of_each_chart_differ_by_their_dashes() {
    let sheets = sheets();
    let view = fs::read_to_string(folder().join("board/view.js")).expect("it is there");
    let claims = captures(&view, r"const CLAIMS = \[([^\]]+)\]").remove(0);
    let claims: Vec<String> = captures(&claims, r"'([a-z_]+)'");
    let log = captures(&view, r"\{ key: '([a-z]+)', name: words\.of\('log\.");
    for (chart, at_least) in [(claims, 5), (log, 2)] {
        assert_eq!(chart.len(), at_least, "{chart:?}");
        let dashes: BTreeSet<String> = chart
            .iter()
            .map(|line| {
                let rule = format!(r"path\.line-{line} \{{([^}}]*)\}}");
                let rule = captures(&sheets, &rule);
                let [rule] = &rule[..] else { panic!("{line} has {rule:?}") };
                captures(rule, "stroke-dasharray: ([0-9. ]+)").pop().unwrap_or_default()
            })
            .collect();
        assert_eq!(dashes.len(), at_least, "{chart:?}: {dashes:?}");
    }
}

/// Words with a number that never changes: names of quantiles and addresses, and bounds.
const CONSTANTS: [&str; 8] = [
    "verdict.p99",
    "tile.answer",
    "tile.row",
    "tile.no_claims",
    "processes.heard",
    "crash.batch",
    "locked.wrong_host",
    "problem.wrong_host",
];

/// Digits stand outside of sentences: they are set in figures of one width, and live regions don't speak them.
#[test]
fn no_sentence_has_digits() {
    for language in ["en", "zh"] {
        let mut checked = 0;
        for page in ["js", "board", "storm", "trace", "redeem"] {
            for (key, word) in words(&format!("{page}/{language}")) {
                let has_digit = word.contains(|letter: char| letter.is_ascii_digit());
                assert!(!has_digit || CONSTANTS.contains(&&*key), "{page} {key}: {word}");
                // Only the board fills numbers in; of its live region they are taken out.
                assert!(page == "board" || !word.contains('{'), "{page} {key}: {word}");
                checked += 1;
            }
        }
        assert!(checked > 500, "{checked} sentences");
    }
}

/// A winner looks often at first, and then every 5 s. (`crates/browser/tests/it/shop.rs` counts a loser's requests.)
#[test]
fn the_pauses_between_the_looks_at_a_claim_grow() {
    let claim = fs::read_to_string(folder().join("js/claim.js")).expect("it is there");
    for line in ["const LOOKS_MS = [150, 250, 400, 800, 1500, 3000];", "const LOOK_MS = 5000;"] {
        assert!(claim.lines().any(|it| it == line), "no line {line:?}");
    }
}

// ---- steps of these tests ----

/// All sheets of styles.
fn sheets() -> String {
    let names = ["shop", "desk", "board", "trace"].map(|name| format!("{name}.css"));
    names.map(|name| fs::read_to_string(folder().join(name)).expect("it is there")).concat()
}

/// Colours by name, in the light theme and in the dark one.
fn colours() -> BTreeMap<String, [[f64; 3]; 2]> {
    let colour = r"--([a-z-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\);";
    let (colour, sheets) = (Regex::new(colour).expect("an expression"), sheets());
    let colours: BTreeMap<_, _> = colour
        .captures_iter(&sheets)
        .map(|found| (found[1].to_owned(), [parts(&found[2]), parts(&found[3])]))
        .collect();
    assert!(colours.len() > 20, "{:?}", colours.keys());
    colours
}

/// Red, green and blue, from 0 to 1.
fn parts(hex: &str) -> [f64; 3] {
    [0, 2, 4].map(|at| {
        let part = u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
        f64::from(part) / 255.0
    })
}

fn captures(text: &str, expression: &str) -> Vec<String> {
    let expression = Regex::new(expression).expect("an expression");
    expression.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

fn assert_contrast(
    colours: &BTreeMap<String, [[f64; 3]; 2]>,
    line: &str,
    ground: &str,
    least: f64,
) {
    let of = |name: &str| colours.get(name).unwrap_or_else(|| panic!("no colour {name}"));
    for (theme, (line_is, ground_is)) in
        ["light", "dark"].iter().zip(of(line).iter().zip(of(ground)))
    {
        let (one, other) = (luminance(line_is), luminance(ground_is));
        let contrast = (one.max(other) + 0.05) / (one.min(other) + 0.05);
        assert!(contrast >= least, "{line} on {ground}, {theme}: {contrast:.2}");
    }
}

/// Relative luminance (WCAG 2.2).
fn luminance(parts: &[f64; 3]) -> f64 {
    let [red, green, blue] = parts.map(|part| match part <= 0.04045 {
        true => part / 12.92,
        false => ((part + 0.055) / 1.055).powf(2.4),
    });
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}
