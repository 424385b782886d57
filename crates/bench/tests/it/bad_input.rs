//! Runs that can't be done: each says why, and the way out.

use private_servers::testing::run;

use crate::support::{Folder, assert_exit_code, bench, path};

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
    for (arguments, says) in [
        (&["--goals", "/nowhere/performance.md"][..], "can't be read"),
        (&["--goals", document], "has no line `<!-- goals"),
        (&["--goals", document, "--scenario", "win"], "needs a run of everything"),
        (&["compare", "--a", "x", "--b", "y", "--scenario", "bare"], "the bench's own"),
    ] {
        let mut command = bench(arguments);
        // A service would need a folder for its data.
        command.env("TMPDIR", "/nowhere");
        let finished = run(command).await;
        assert_exit_code(&finished, 2);
        assert!(finished.stderr.contains(says), "{arguments:?}: {}", finished.stderr);
    }
}
