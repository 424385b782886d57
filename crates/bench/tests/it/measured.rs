//! Measurements of services that the bench starts.

use std::os::unix::fs::PermissionsExt;

use private_servers::testing::{Process, eventually};

use crate::support::{
    Folder, answered, array, assert_exit_code, bench, measured, path, read_json, service_binary,
    short,
};

#[tokio::test]
async fn a_service_of_its_own_is_measured_judged_and_removed() {
    let folder = Folder::new();
    let temporary = Folder::new();
    let json = folder.file("run.json");
    let mut command = short(&["--rounds", "1", "--scenario", "no-op,win,sold-out", "--saturate"]);
    command.args(["--json", path(&json)]);
    command.env("TMPDIR", &temporary.0);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);
    assert_eq!(temporary.entries(), Vec::<String>::new(), "the service's folder is gone");

    let figures = read_json(&json);
    let slices = array(&figures, "slices");
    let half_load = array(&figures, "half_load");
    assert_eq!((slices.len(), half_load.len()), (3, 3));
    let wins = slices.iter().chain(half_load).filter(|slice| slice["scenario"] == "win");
    let won: u64 = wins.map(|slice| answered(slice, 202)).sum();
    let sold_out = slices.iter().chain(half_load).filter(|slice| slice["scenario"] == "sold-out");
    let refused: Vec<u64> = sold_out.map(|slice| answered(slice, 410)).collect();
    assert!(won > 0 && refused.iter().all(|refused| *refused > 0), "{won} {refused:?}");
    let verdict = &figures["verdict"];
    // One buyer took the only unit of each sale that was sold out.
    let sold = won + refused.len() as u64;
    assert_eq!(verdict["accepted"], sold, "{verdict}");
    // On a machine that is busy with other tests, claims may time out; each may have taken a unit or not.
    let rows = verdict["rows"].as_u64().expect("a number");
    let unknown = verdict["unknown"].as_u64().expect("a number");
    assert!((sold..=sold + unknown).contains(&rows), "{verdict}");
    for name in ["stock_sold", "appended", "distinct_buyers"] {
        assert_eq!(verdict[name], rows, "{name}: {verdict}");
    }
    assert_eq!(verdict["findings"], serde_json::json!([]));
    assert!(finished.stdout.contains("consistent"), "{}", finished.stdout);
}

#[tokio::test]
async fn a_backlog_is_drained_beside_copy() {
    let folder = Folder::new();
    let temporary = Folder::new();
    let json = folder.file("drain.json");
    // Enough for what the buyers take to stand out from what Redis needs for its connections.
    let mut command = bench(&["drain", "--orders", "20000", "--rounds", "2"]);
    command.args(["--json", path(&json)]).env("TMPDIR", &temporary.0);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);
    assert_eq!(temporary.entries(), Vec::<String>::new(), "both processes' folders are gone");

    let drain = &read_json(&json)["drain"];
    let rounds = array(drain, "rounds");
    assert_eq!(rounds.len(), 2);
    let mut drained = 0;
    for round in rounds {
        let orders = round["orders"].as_u64().expect("a number");
        assert!((1..=20_000).contains(&orders), "{round}");
        drained += orders;
        let bytes = round["redis_bytes_per_buyer"].as_f64();
        assert!(bytes.is_some_and(|bytes| bytes > 0.0), "{round}");
    }
    assert_eq!(drain["to_copy"]["count"], 2, "{drain}");
    let verdict = &drain["verdict"];
    assert!(verdict["rows"].as_u64() >= Some(drained), "{verdict}");
}

#[tokio::test]
async fn two_services_are_compared() {
    let folder = Folder::new();
    let binary = service_binary();
    let binary = path(&binary);
    let mut command = bench(&["compare", "--a", binary, "--b", binary, "--drain-orders", "500"]);
    command.args(["--pairs", "2", "--seconds", "0.3", "--warm-up-seconds", "0.1"]);
    command.args(["--connections", "4", "--json", path(&folder.file("figures.json"))]);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);
    let figures = read_json(&folder.file("figures.json"));
    assert_eq!(figures["comparisons"][0]["throughput"]["count"], 2, "{figures}");
    assert_eq!(figures["drain"]["count"], 2, "{figures}");
    let verdicts = array(&figures, "verdicts");
    assert_eq!(verdicts.len(), 6);
    for verdict in verdicts {
        assert!(verdict["rows"].as_u64() > Some(0), "{verdict}");
    }
}

#[tokio::test]
async fn a_bench_that_is_killed_leaves_nothing_behind() {
    // While the servers start, and when they answer: then the lock file says where they are.
    for (file, part) in [("postgres.log", ""), ("lock", "redis+unix")] {
        let temporary = Folder::new();
        let mut command = short(&["--scenario", "win", "--seconds", "60"]);
        command.env("TMPDIR", &temporary.0);
        let mut bench = Process::spawn(command);
        let says = |folder: &String| {
            let text = std::fs::read_to_string(temporary.file(folder).join(file));
            text.is_ok_and(|text| text.contains(part))
        };
        eventually("its servers start", async || temporary.entries().iter().any(says)).await;
        bench.kill();
        eventually("its folder is gone", async || temporary.entries().is_empty()).await;
        bench.output_ended().await;
    }
}

#[tokio::test]
async fn a_service_whose_stores_disagree_makes_the_run_void() {
    let folder = Folder::new();
    let binary = folder.file("disagreeing");
    let service = service_binary();
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = reconcile ]; then echo 'DISAGREE a buyer without an order'; exit 1; fi\nexec {} \"$@\"\n",
        service.display()
    );
    std::fs::write(&binary, script).expect("it can be written");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&binary, executable).expect("it is ours");
    let mut command = short(&["--rounds", "1", "--scenario", "win", "--rate", "200"]);
    command.args(["--binary", path(&binary)]);
    let finished = measured(command).await;
    assert_exit_code(&finished, 4);
    assert!(finished.last_words().contains("this run is void"), "{}", finished.stderr);
    assert!(finished.stdout.contains("NOT CONSISTENT"), "{}", finished.stdout);
}
