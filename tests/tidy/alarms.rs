//! Each alert of `deploy/prometheus` has its section in docs/alarms.md, in the same order, and a test; alerts and dashboard
//! speak of metrics that docs/metrics.md explains.

use std::collections::BTreeSet;

use super::source::{assert_complaints, no_complaints, read};

const ALERTS: &str = "deploy/prometheus/alerts.yml";
const TESTS: &str = "deploy/prometheus/alerts.test.yml";
const DASHBOARD: &str = "deploy/grafana/flash-sale.json";
const ALARMS: &str = "docs/alarms.md";
const METRICS: &str = "docs/metrics.md";

#[test]
fn each_alert_has_its_section_and_its_test() {
    let alerts = read(ALERTS).text;
    assert!(after(&alerts, "- alert: ").len() > 10, "few alerts were found in {ALERTS}");
    no_complaints(sections(&alerts, &read(ALARMS).text, &read(TESTS).text));
}

#[test]
fn alerts_and_dashboard_speak_of_known_metrics() {
    let metrics_page = read(METRICS).text;
    let explained = metrics(&metrics_page);
    assert!(explained.len() > 20, "few metrics were found in {METRICS}");
    let mut complaints = Vec::new();
    for path in [ALERTS, DASHBOARD] {
        complaints.extend(unknown(path, &read(path).text, &explained));
    }
    no_complaints(complaints);
}

#[test]
fn the_checker_sees_what_is_missing() {
    let alerts = "- alert: Low\n  runbook: docs/alarms.md#low\n- alert: High\n  runbook: docs/alarms.md#hihg\n";
    let alarms = "## High\n\ntext\n\n## Gone\n";
    assert_complaints(
        &sections(alerts, alarms, "alertname: High\n"),
        &["sections", "#hihg", "Low"],
    );
    let explained = metrics("| `flash_sale_claims_total{outcome}` | claims |");
    let query = "rate(flash_sale_claims_total[1m]) / flash_sale_clams_total";
    assert_complaints(&unknown("a file", query, &explained), &["flash_sale_clams_total"]);
}

fn sections(alerts: &str, alarms: &str, tests: &str) -> Vec<String> {
    let names = after(alerts, "- alert: ");
    let mut complaints = Vec::new();
    if after(alarms, "## ") != names {
        complaints
            .push(format!("{ALARMS}: its sections are not the alerts of {ALERTS}, in their order"));
    }
    for (name, runbook) in names.iter().zip(after(alerts, "runbook: ")) {
        if runbook != format!("{ALARMS}#{}", name.to_lowercase()) {
            complaints.push(format!("{ALERTS}: the runbook of {name} is {runbook}"));
        }
    }
    let tested: BTreeSet<&str> = after(tests, "alertname: ").into_iter().collect();
    let untested = names.iter().filter(|name| !tested.contains(*name));
    complaints.extend(untested.map(|name| format!("{TESTS}: {name} never fires")));
    complaints
}

/// What follows these words, of each line that begins with them.
fn after<'a>(text: &'a str, words: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix(words)).collect()
}

fn unknown(path: &str, text: &str, explained: &BTreeSet<&str>) -> Vec<String> {
    let unknown = metrics(text).into_iter().filter(|name| {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|part| name.strip_suffix(part));
        !explained.contains(name) && !base.is_some_and(|base| explained.contains(base))
    });
    unknown.map(|name| format!("{path}: {METRICS} doesn't explain {name}")).collect()
}

fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("flash_sale_")).collect()
}
