//! Measurements of services that the bench starts, and of services that run already.

use private_servers::testing::{Process, eventually};

use crate::support::{
    Folder, Service, answered, assert_exit_code, bench, measured, path, read_json, service_binary,
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
    let slices = figures["slices"].as_array().expect("slices");
    let half_load = figures["half_load"].as_array().expect("slices");
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
    let mut command = bench(&["drain", "--orders", "7000", "--rounds", "2"]);
    command.args(["--connections", "8", "--batch-orders-max", "500", "--json", path(&json)]);
    command.env("TMPDIR", &temporary.0);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);
    assert_eq!(temporary.entries(), Vec::<String>::new(), "both processes' folders are gone");

    let drain = &read_json(&json)["drain"];
    let rounds = drain["rounds"].as_array().expect("rounds");
    assert_eq!(rounds.len(), 2);
    let mut drained = 0;
    for round in rounds {
        let orders = round["orders"].as_u64().expect("a number");
        assert!((1..=7_000).contains(&orders), "{round}");
        drained += orders;
        let bytes = round["redis_bytes_per_buyer"].as_f64();
        assert!(bytes.is_some_and(|bytes| bytes > 0.0), "{round}");
    }
    assert_eq!(drain["to_copy"]["count"], 2, "{drain}");
    assert_eq!(drain["verdict"]["rows"], drained, "{drain}");
}

#[tokio::test]
async fn more_than_it_can_do() {
    let folder = Folder::new();
    let json = folder.file("run.json");
    let mut command = short(&["--scenario", "win", "--rounds", "1", "--overload"]);
    command.args(["--overload-connections", "64", "--peak-connections", "8"]);
    command.args(["--drain-orders", "200", "--json", path(&json)]);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);

    let figures = read_json(&json);
    let overload = &figures["overload"][0];
    let peak = &overload["peaks"][0];
    let flood = &overload["floods"][0];
    assert!(answered(peak, 202) > 0 && answered(flood, 202) > 0, "{overload}");
    assert_eq!(flood["connections"], 64);
    let twice = 2.0 * peak["good_per_second"].as_f64().expect("a rate");
    let rate = flood["rate"].as_f64().expect("a rate");
    // What has been text in between may differ in the last digit.
    assert!((rate / twice - 1.0).abs() < 1e-9, "{rate} is not {twice}");
    for probe in overload["probes"].as_array().expect("probes") {
        assert!(probe["asked"].as_u64() > Some(0), "{probe}");
        // Readiness may be refused by rights: it asks the stores.
        assert!(probe["path"] == "/readyz" || probe["failed"] == 0, "{probe}");
    }
    let rows = overload["verdict"]["rows"].as_u64();
    assert!(rows >= Some(answered(peak, 202) + answered(flood, 202)), "{overload}");
    for verdict in [&overload["verdict"], &figures["drain"]["verdict"]] {
        assert_eq!(verdict["findings"], serde_json::json!([]));
    }
}

#[tokio::test]
async fn two_services_are_compared() {
    let folder = Folder::new();
    let binary = service_binary();
    let binary = path(&binary);
    let mut command = bench(&["compare", "--a", binary, "--b", binary]);
    command.args(["--pairs", "2", "--seconds", "0.3", "--warm-up-seconds", "0.1"]);
    command.args(["--connections", "4", "--json", path(&folder.file("figures.json"))]);
    let finished = measured(command).await;
    assert_exit_code(&finished, 0);
    let figures = read_json(&folder.file("figures.json"));
    assert_eq!(figures["comparisons"][0]["throughput"]["count"], 2, "{figures}");
    for verdict in figures["verdicts"].as_array().expect("two") {
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
    let service = Service::start(&["--no-op-route"]).await;
    let coupon = service.create_flash(5).await;
    assert_eq!(service.claim(1, coupon).await, 202);
    let measure = || {
        let mut command = bench(&["run", "--rounds", "1", "--scenario", "win"]);
        command.args(["--seconds", "0.3", "--warm-up-seconds", "0.1", "--connections", "4"]);
        command.args(["--url", &service.url]).args(service.store_arguments());
        measured(command)
    };
    assert_exit_code(&measure().await, 0);

    service.forget_buyer(coupon, 1).await;
    let finished = measure().await;
    assert_exit_code(&finished, 4);
    assert!(finished.last_words().contains("this run is void"), "{}", finished.stderr);
    assert!(finished.stdout.contains("NOT CONSISTENT"), "{}", finished.stdout);
}

#[tokio::test]
async fn everybody_at_once_and_at_a_constant_rate() {
    let service = Service::start(&["--no-op-route"]).await;
    let folder = Folder::new();
    let json = folder.file("run.json");
    let measure = |arguments: &[&str]| {
        let mut command = bench(&["--rounds", "1", "--connections", "8"]);
        command.args(["--seconds", "0.5", "--warm-up-seconds", "0.1", "--json", path(&json)]);
        command.args(["--url", &service.url]).args(service.store_arguments()).args(arguments);
        measured(command)
    };
    assert_exit_code(&measure(&["--scenario", "countdown", "--users", "500"]).await, 0);
    let countdown = &read_json(&json)["slices"][0];
    assert_eq!((answered(countdown, 202), answered(countdown, 410)), (50, 450), "{countdown}");

    assert_exit_code(&measure(&["--scenario", "mixed,duplicate,read", "--rate", "200"]).await, 0);
    let figures = read_json(&json);
    let statuses = [("mixed", 410), ("duplicate", 409), ("read", 200)];
    for ((scenario, status), slice) in statuses.iter().zip(figures["slices"].as_array().unwrap()) {
        assert_eq!(slice["scenario"], *scenario);
        // 200 a second for 0.6 s; in the mixed scenario two of them win.
        let wins = answered(slice, 202);
        assert_eq!(answered(slice, *status) + wins, 120, "{slice}");
        assert_eq!(wins, if *scenario == "mixed" { 2 } else { 0 }, "{slice}");
        assert!(slice["latency"]["p99_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{slice}");
    }
}
