//! Runs that can't be done: each says why, and the way out.

use private_servers::testing::run;

use crate::support::{Folder, SECRET, Service, assert_exit_code, bench, path, short};

#[tokio::test]
async fn a_run_that_cannot_be_done_says_why() {
    let service = Service::start(&[]).await;
    let run_at = |arguments: &[&str]| {
        let mut command = short(&["--url", &service.url]);
        command.args(arguments);
        run(command)
    };
    let no_secret = run_at(&[]).await;
    assert_exit_code(&no_secret, 2);
    assert!(no_secret.last_words().contains("--token-secret"), "{}", no_secret.stderr);
    let no_route = run_at(&["--token-secret", SECRET, "--scenario", "no-op"]).await;
    assert_exit_code(&no_route, 1);
    assert!(no_route.last_words().contains("--no-op-route"), "{}", no_route.stderr);
    let another = "another secret that is only good for tests";
    let wrong_secret = run_at(&["--token-secret", another, "--scenario", "win"]).await;
    assert_exit_code(&wrong_secret, 1);
    assert!(wrong_secret.last_words().contains("(401)"), "{}", wrong_secret.stderr);
}

#[tokio::test]
async fn a_missing_binary_is_named_with_the_command_that_builds_it() {
    for command in ["run", "drain"] {
        let finished = run(bench(&[command, "--binary", "/nowhere/flash-sale"])).await;
        assert_exit_code(&finished, 2);
        let said = finished.last_words();
        assert!(said.contains("/nowhere/flash-sale") && said.contains("cargo build"), "{said}");
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused_before_anything_starts() {
    let folder = Folder::new();
    let document = folder.file("performance.md");
    std::fs::write(&document, "no markers").expect("it can be written");
    let document = path(&document);
    let here = std::env::current_exe().expect("this program is a file");
    let here = path(&here);
    for (arguments, says) in [
        (&["--before", "/nowhere/flash-sale"][..], "there is no older binary at /nowhere"),
        (&["--before", here, "--scenario", "no-op"], "--before measures wins"),
        (&["--before", here, "--url", "http://127.0.0.1:1"], "cannot be used with"),
        (&["--before", here, "--rate", "10"], "cannot be used with"),
        (&["--goals", "/nowhere/performance.md"], "can't be read"),
        (&["--goals", document], "has no line `<!-- goals"),
        (&["--goals", document, "--scenario", "win"], "need a run of everything"),
        (&["--budget", "b.svg", "--rate", "10"], "need a run of everything"),
        (&["compare", "--a", "x", "--b", "y", "--scenario", "bare"], "the bench's own"),
        (&["scale", "--lanes", "0"], "0 is not in 1..=64"),
        (&["scale", "--processes", "65"], "65 is not in 1..=64"),
        (&["scale", "--lanes", ""], "invalid value"),
        (&["scale", "--rounds", "0"], "0 is not in 1..=100"),
        (&["scale", "--binary", "/nowhere/flash-sale"], "/nowhere/flash-sale"),
        (&["rows", "--parts", "columns"], "invalid value 'columns'"),
        (&["rows", "--ways", "copy"], "invalid value 'copy'"),
        (&["rows", "--batches", "0"], "0 is not in 1..=10000"),
        (&["rows", "--rows", "999"], "999 is not in 1000..=5000000"),
        (&["rows", "--rounds", "0"], "0 is not in 1..=100"),
        (&["rows", "--large-orders", "999"], "999 is not in 1000..=1000000000"),
        (&["rows", "--binary", "/nowhere/flash-sale"], "/nowhere/flash-sale"),
        (&["pages", "--document", "/nowhere/pages.md"], "named with --document, can't be read"),
        (&["pages", "--document", document], "has no line `<!-- budgets"),
        (&["pages", "--watchers", "0"], "0 is not in 1..=20000"),
        (&["pages", "--pairs", "0"], "0 is not in 1..=100"),
        (&["pages", "--watched-seconds", "0"], "give a number from"),
        (&["pages", "--binary", "/nowhere/flash-sale"], "/nowhere/flash-sale"),
        (&["budget", "--figures", "/nowhere.json", "--svg", "b.svg"], "can't be read"),
        (&["budget", "--figures", document, "--svg", "b.svg"], "is no JSON"),
        (&["budget", "--svg", "b.svg"], "--figures"),
    ] {
        let mut command = bench(arguments);
        // A service would need a folder for its data.
        command.env("TMPDIR", "/nowhere");
        let finished = run(command).await;
        assert_exit_code(&finished, 2);
        assert!(finished.stderr.contains(says), "{arguments:?}: {}", finished.stderr);
    }
}

#[tokio::test]
async fn figures_without_a_budget_are_named() {
    let folder = Folder::new();
    let figures = folder.file("figures.json");
    let svg = folder.file("budget.svg");
    for (text, says) in [
        (r#"{"budget": null}"#, "holds no budget"),
        (r#"{"slices": []}"#, "holds no budget"),
        (r#"{"budget": {"of": 3}}"#, "can't be understood"),
    ] {
        std::fs::write(&figures, text).expect("it can be written");
        let command = bench(&["budget", "--figures", path(&figures), "--svg", path(&svg)]);
        let finished = run(command).await;
        assert_exit_code(&finished, 2);
        assert!(finished.stderr.contains(says), "{text}: {}", finished.stderr);
        assert!(!svg.exists(), "nothing is drawn");
    }
}
