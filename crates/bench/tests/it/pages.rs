//! The budgets of the pages: a row for each, with what was measured.

use crate::support::{Folder, assert_exit_code, bench, measured, path};

/// A document with the markers of the table.
const DOCUMENT: &str = "Above.\n\n<!-- budgets: written by make budgets -->\nformer\n<!-- end of the budgets -->\n\nBelow.\n";

#[tokio::test]
async fn the_budgets_of_the_pages_are_measured_and_written() {
    let folder = Folder::new();
    let temporary = Folder::new();
    let document = folder.file("pages.md");
    std::fs::write(&document, DOCUMENT).expect("it can be written");
    let mut command = bench(&["pages", "--watchers", "1200", "--pairs", "1", "--connections", "8"]);
    command.args(["--seconds", "0.3", "--warm-up-seconds", "0.1", "--watched-seconds", "2.5"]);
    command.args(["--document", path(&document)]).env("TMPDIR", &temporary.0);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);
    assert_eq!(temporary.entries(), Vec::<String>::new(), "no process's folder is left");

    let text = std::fs::read_to_string(&document).expect("it is there");
    assert!(
        text.starts_with("Above.\n\n<!-- budgets") && text.ends_with("-->\n\nBelow.\n"),
        "{text}"
    );
    assert!(!text.contains("former"), "{text}");
    for part in [
        "| the shopper's page, compressed | <= 25.0 KB | ",
        "| all pages, compressed | <= 70.0 KB | ",
        "with 1,200 watchers of a sale that changes each second | <= 20.0 % of a core | ",
        "| memory of the service with 1,200 watchers | <= 350 MB | ",
        "| claims/s, with 1,200 watchers / without | >= 0.97 | ",
        "| stop with 1,200 streams open | <= 1 s | ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
        assert!(finished.stdout.contains(part), "{part}: {}", finished.stdout);
    }
    // Each watcher has had an event a second, more or less.
    let (_, events) = text.split_once(" without them); ").expect("the figure");
    let (events, _) = events.split_once(" events/s").expect("the figure");
    let events: f64 = events.replace(',', "").parse().expect("a number");
    assert!(events > 200.0, "{events} events a second for 1,200 watchers");
}
