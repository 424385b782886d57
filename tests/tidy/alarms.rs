//! Each alert of `deploy/prometheus` has its row in the table of alarms of docs/operate.md, in the same order, and a test;
//! alerts and dashboard speak of metrics that docs/metrics.md explains.

use std::collections::BTreeSet;

use super::source::{assert_complaints, no_complaints, read};

const ALERTS: &str = "deploy/prometheus/alerts.yml";
const TESTS: &str = "deploy/prometheus/alerts.test.yml";
const DASHBOARD: &str = "deploy/grafana/flash-sale.json";
const RUNBOOKS: &str = "docs/operate.md";
const METRICS: &str = "docs/metrics.md";

#[test]
fn each_alert_has_its_row_and_its_test() {
    let alerts = read(ALERTS).text;
    assert!(after(&alerts, "- alert: ").len() > 10, "few alerts were found in {ALERTS}");
    no_complaints(rows(&alerts, &read(RUNBOOKS).text, &read(TESTS).text));
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
    let alerts = "- alert: Low\n  labels: {severity: page}\n  runbook: docs/operate.md#low\n\
        - alert: High\n  labels: {severity: ticket}\n  runbook: docs/operate.md#hihg\n";
    let low = "| <a id=\"low\"></a>Low (page) | means | do |\n";
    let high = "| <a id=\"high\"></a>High (ticket) | means | do |\n";
    let found = rows(alerts, &format!("{high}{low}"), "alertname: High\n");
    assert_complaints(&found, &["its rows", "#hihg", "Low"]);
    for (from, to) in [("(page)", "(ticket)"), ("id=\"low", "id=\"loww"), (" | do", "")] {
        let found = rows(alerts, &format!("{low}{high}").replace(from, to), "");
        assert!(found[0].starts_with("docs/operate.md"), "{found:?}");
    }
    let explained = metrics("| `flash_sale_claims_total{outcome}` | claims |");
    let query = "rate(flash_sale_claims_total[1m]) / flash_sale_clams_total";
    assert_complaints(&unknown("a file", query, &explained), &["flash_sale_clams_total"]);
}

/// Of the rows `anchor, name and severity | meaning | remedy`.
fn rows(alerts: &str, page: &str, tests: &str) -> Vec<String> {
    let names = after(alerts, "- alert: ");
    let mut complaints = Vec::new();
    let severities = after(alerts, "labels: {severity: ");
    let expected = names.iter().zip(severities).map(|(name, severity)| {
        let severity = severity.trim_end_matches('}');
        format!("{}\"></a>{name} ({severity})", name.to_lowercase())
    });
    let rows: Vec<Vec<&str>> = after(page, "| <a id=\"")
        .into_iter()
        .map(|row| row.trim_end_matches(" |").split(" | ").collect())
        .collect();
    if !rows.iter().map(|cells| cells[0]).eq(expected) {
        complaints.push(format!(
            "{RUNBOOKS}: its rows of alarms are not the alerts of {ALERTS}, in their order"
        ));
    }
    let incomplete = rows.iter().filter(|cells| cells.len() != 3);
    complaints.extend(incomplete.map(|cells| format!("{RUNBOOKS}: no three cells: {}", cells[0])));
    for (name, runbook) in names.iter().zip(after(alerts, "runbook: ")) {
        if runbook != format!("{RUNBOOKS}#{}", name.to_lowercase()) {
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
