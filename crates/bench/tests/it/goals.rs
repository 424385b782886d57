//! A run of everything: all figures, and the goals in their document.

use serde_json::Value;

use crate::support::{Folder, answered, array, assert_exit_code, measured, path, read_json, short};

/// A document with the markers of both tables.
const DOCUMENT: &str = "Above.\n\n<!-- goals: written by make bench -->\nformer goals\n<!-- end of the goals -->\n\nBetween.\n\n\
    <!-- 16 cores: written by make bench -->\nformer cores\n<!-- end of the 16 cores -->\n\nBelow.\n";
/// Goals whose figures are rates and latencies. CPU times have steps of a clock tick, which a short slice may not reach.
const WITHOUT_TICKS: [&str; 9] = [
    "requests/s, win / no-op",
    "requests/s, sold out / no-op",
    "calls of Redis for 1,000 refusals",
    "requests/s, duplicate / no-op",
    "log to Postgres, rows/s / raw COPY",
    "p99 of a win at half load / p99 of fdatasync",
    "goodput at twice the peak / peak",
    "requests/s, win, `appendfsync always` / `everysec`",
    "append-only file for a win, everything included",
];

#[tokio::test]
async fn a_run_of_everything_writes_the_goals() {
    let folder = Folder::new();
    let temporary = Folder::new();
    let document = folder.file("performance.md");
    std::fs::write(&document, DOCUMENT).expect("it can be written");
    let json = folder.file("run.json");
    let mut command = short(&["--rounds", "1"]);
    command.args(["--goals", path(&document), "--json", path(&json)]);
    command.args(["--drain-orders", "500"]);
    command.args(["--overload-connections", "32", "--peak-connections", "8"]);
    command.env("TMPDIR", &temporary.0);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);
    assert_eq!(temporary.entries(), Vec::<String>::new(), "no process's folder is left");

    let figures = read_json(&json);
    assert_everything_was_measured(&figures);
    let text = std::fs::read_to_string(&document).expect("it is there");
    assert_tables(&text, array(&figures, "goals"));
}

fn assert_everything_was_measured(figures: &Value) {
    for beside in ["floor", "syncs", "half_load", "everysec", "overload"] {
        assert_eq!(array(figures, beside).len(), 1, "{beside}");
    }
    let without_sync = &figures["everysec"][0];
    assert_eq!(without_sync["cost"]["requests"], answered(without_sync, 202), "{without_sync}");
    let bare = array(figures, "slices").iter().find(|slice| slice["scenario"] == "bare");
    assert!(bare.is_some_and(|bare| answered(bare, 202) > 0), "{bare:?}");
    let goals = array(figures, "goals");
    for what in WITHOUT_TICKS {
        let goal = goals.iter().find(|goal| goal["what"] == what);
        let goal = goal.unwrap_or_else(|| panic!("{what} is a goal"));
        assert!(goal["figure"]["median"].is_f64() && goal["met"].is_boolean(), "{goal}");
    }
    for verdict in [&figures["overload"][0]["verdict"], &figures["drain"]["verdict"]] {
        assert_eq!(verdict["findings"], serde_json::json!([]));
    }
}

/// Each goal has a row with its aim; what is not the tool's own is as it was.
fn assert_tables(text: &str, goals: &[Value]) {
    assert!(
        text.starts_with("Above.\n\n<!-- goals") && text.ends_with("-->\n\nBelow.\n"),
        "{text}"
    );
    assert!(text.contains("\n\nBetween.\n\n") && !text.contains("former"), "{text}");
    for goal in goals {
        let what = goal["what"].as_str().expect("a text");
        let aim = goal["aim"].as_str().expect("a text");
        assert!(text.contains(&format!("| {what} | {aim} | ")), "{what}: {text}");
    }
    assert!(text.contains("| servers of Redis | wins/s |"), "{text}");
}
