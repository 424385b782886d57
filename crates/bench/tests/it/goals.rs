//! A run of everything: the goals, the budget of a win, and wins over lanes and processes.

use private_servers::testing::Process;
use serde_json::Value;

use crate::support::{
    Folder, Service, answered, assert_exit_code, bench, measured, path, read_json, service_binary,
    short,
};

/// A document with the markers of both tables.
const DOCUMENT: &str = "Above.\n\n<!-- goals: written by make bench -->\nformer goals\n<!-- end of the goals -->\n\nBetween.\n\n\
    <!-- 16 cores: written by make bench -->\nformer cores\n<!-- end of the 16 cores -->\n\nBelow.\n";
/// Goals whose figures are rates and latencies. CPU times have steps of a clock tick, which a short slice may not reach.
const WITHOUT_TICKS: [&str; 8] = [
    "requests/s, win / no-op",
    "requests/s, sold out / no-op",
    "calls of Redis for 1,000 refusals",
    "requests/s, duplicate / no-op",
    "log to Postgres, rows/s / raw COPY",
    "p99 of a win at half load / p99 of fdatasync",
    "requests/s, win, `appendfsync always` / `everysec`",
    "append-only file for a win, everything included",
];

fn array<'a>(figures: &'a Value, name: &str) -> &'a Vec<Value> {
    figures[name].as_array().unwrap_or_else(|| panic!("{name} is a list: {figures}"))
}

#[tokio::test]
async fn a_run_of_everything_writes_the_goals_and_draws_the_budget() {
    let folder = Folder::new();
    let temporary = Folder::new();
    let document = folder.file("performance.md");
    std::fs::write(&document, DOCUMENT).expect("it can be written");
    let json = folder.file("run.json");
    let budget = folder.file("budget.svg");
    let before = service_binary();
    let mut command = short(&["--rounds", "1", "--before", path(&before)]);
    command.args(["--goals", path(&document), "--budget", path(&budget), "--json", path(&json)]);
    command.args(["--drain-orders", "500", "--script-calls", "0"]);
    command.args(["--overload-connections", "32", "--peak-connections", "8"]);
    command.env("TMPDIR", &temporary.0);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);
    assert_eq!(temporary.entries(), Vec::<String>::new(), "no process's folder is left");

    let figures = read_json(&json);
    assert_everything_was_measured(&figures);
    let text = std::fs::read_to_string(&document).expect("it is there");
    assert_tables(&text, array(&figures, "goals"));
    let svg = std::fs::read_to_string(&budget).expect("it has been drawn");
    for part in ["XADD", "script, protocol", "own code", "Postgres", ">before: "] {
        assert!(svg.contains(part) || !figures["budget"].is_object(), "{part}: {svg}");
    }
}

fn assert_everything_was_measured(figures: &Value) {
    for beside in ["before", "floor", "syncs", "half_load"] {
        assert_eq!(array(figures, beside).len(), 1, "{beside}");
    }
    let levels = array(figures, "levels").iter().map(|of| (&of["level"], &of["slice"]));
    let levels: Vec<_> = levels.map(|(level, slice)| (level.as_str().unwrap(), slice)).collect();
    assert_eq!(levels.iter().map(|of| of.0).collect::<Vec<_>>(), ["memory", "replica", "postgres"]);
    assert!(answered(levels[2].1, 201) > 0, "{}", levels[2].1);
    let confirmed_in_redis = levels[..2].iter().map(|of| of.1);
    for slice in confirmed_in_redis.chain(array(figures, "before")) {
        assert!(answered(slice, 202) > 0, "{slice}");
        assert_eq!(slice["cost"]["requests"], answered(slice, 202), "{slice}");
    }
    let bare = array(figures, "slices").iter().find(|slice| slice["scenario"] == "bare");
    assert!(bare.is_some_and(|bare| answered(bare, 202) > 0), "{bare:?}");
    let goals = array(figures, "goals");
    for what in WITHOUT_TICKS {
        let goal = goals.iter().find(|goal| goal["what"] == what);
        let goal = goal.unwrap_or_else(|| panic!("{what} is a goal"));
        assert!(goal["figure"]["median"].is_f64() && goal["met"].is_boolean(), "{goal}");
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

#[tokio::test]
async fn two_runs_make_one_picture() {
    let folder = Folder::new();
    let write = |name: &str, of: &str, us: f64| {
        let parts = serde_json::json!([{"name": "XADD", "us": us}]);
        let processes = serde_json::json!([{"name": "Redis", "parts": parts}]);
        let budget = serde_json::json!({"of": of, "wins": 1, "processes": processes});
        let file = folder.file(name);
        let figures = serde_json::json!({ "budget": budget }).to_string();
        std::fs::write(&file, figures).expect("it can be written");
        file
    };
    let old = write("old.json", "old", 4.0);
    let new = write("new.json", "new", 1.0);
    let svg = folder.file("budget.svg");
    let mut command = bench(&["budget", "--figures", path(&new), "--before", path(&old)]);
    command.args(["--svg", path(&svg)]);
    assert_exit_code(&measured(command).await, 0);
    let svg = std::fs::read_to_string(&svg).expect("it has been drawn");
    let old = svg.find(">old: 4.00").expect("the older budget is drawn");
    let new = svg.find(">new: 1.00").expect("the newer budget is drawn");
    assert!(old < new, "the older one stands above: {svg}");
}

#[tokio::test]
async fn wins_are_spread_over_lanes_and_processes() {
    let folder = Folder::new();
    let json = folder.file("scale.json");
    let mut command = bench(&["scale", "--lanes", "1,2", "--processes", "1,2", "--rounds", "2"]);
    command.args(["--seconds", "0.3", "--warm-up-seconds", "0.1", "--connections", "4"]);
    command.args(["--json", path(&json)]);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);
    let figures = read_json(&json);
    let settings = array(&figures, "settings");
    let of = |name: &str| settings.iter().map(|setting| setting[name].clone()).collect::<Vec<_>>();
    assert_eq!((of("lanes"), of("processes")), (numbers(&[1, 1, 2, 2]), numbers(&[1, 2, 1, 2])));
    let mut won = 0;
    for slice in settings.iter().flat_map(|setting| array(setting, "slices")) {
        assert!(answered(slice, 202) > 0, "{slice}");
        won += answered(slice, 202);
    }
    let verdicts = array(&figures, "verdicts");
    let rows = verdicts.iter().map(|verdict| verdict["rows"].as_u64().expect("a number"));
    assert!(rows.sum::<u64>() >= won, "{verdicts:?}");
    assert!(finished.stdout.contains("wins over lanes and processes"), "{}", finished.stdout);
}

fn numbers(numbers: &[u64]) -> Vec<Value> {
    numbers.iter().map(|number| Value::from(*number)).collect()
}

/// Only then the difference of the two is the frame of a request and its token.
#[tokio::test]
async fn the_bare_route_answers_as_the_service_s_own() {
    let service = Service::start(&["--no-op-route"]).await;
    let bare = Process::spawn(bench(&["bare-route"]));
    let line = bare.logged("the API listens on http://").await;
    let (_, address) = line.split_once("http://").expect("the line has a URL");
    let bare = format!("http://{address}");
    let own = service.no_op(&service.url).await;
    assert_eq!(own.0, 202);
    assert_eq!(service.no_op(&bare).await, own);
}
