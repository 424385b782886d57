//! The list of recoveries: filtered and paged.

use clap::ValueEnum;
use flash_sale::sale::fence::ClosureReason;
use serde_json::Value;

use crate::support::{TestApp, bounded};

/// A claim that could not be kept.
const LOST: &str =
    r#"[{"coupon_id": "1", "user_id": "1", "order_id": "1", "reason": "superseded"}]"#;

/// 44 closures, one a minute from 10:00 on: each reason on four lanes, in each state.
async fn with_closures() -> TestApp {
    let app = TestApp::start().await;
    for (number, reason) in ClosureReason::value_variants().iter().enumerate() {
        let reason = reason.sentence();
        app.execute(&format!(
            "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at, lost, settled_at, note)
             SELECT lane, 1, '{reason}', '2026-03-01T10:00:00Z'::timestamptz + ({number} * 4 + lane) * interval '1 min',
                    CASE WHEN lane > 0 THEN now() END, CASE WHEN lane > 1 THEN '{LOST}'::jsonb ELSE '[]' END,
                    CASE WHEN lane > 2 THEN now() END, CASE WHEN lane > 2 THEN 'told' END
             FROM generate_series(0, 3) AS lane"
        ))
        .await;
    }
    app
}

fn ids(recoveries: &[Value]) -> Vec<i64> {
    let ids = recoveries.iter().map(|recovery| recovery["id"].as_str().expect("an id"));
    ids.map(|id| id.parse().expect("a number")).collect()
}

async fn over_http(app: &TestApp, query: &str) -> Vec<i64> {
    let path = format!("/v1/recoveries?limit=100{query}");
    let reply = app.get(&path, &app.admin_token()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    ids(reply.body["recoveries"].as_array().expect("a list"))
}

#[tokio::test]
async fn recoveries_are_filtered_by_lane_state_reason_and_time() {
    let app = with_closures().await;
    let mut rows = vec![
        ("".to_owned(), (1..=44).rev().collect::<Vec<i64>>()),
        ("&lane=62".to_owned(), vec![]),
        ("&lane=2".to_owned(), (0..11).rev().map(|number| 4 * number + 3).collect()),
        ("&state=unfinished".to_owned(), (0..11).rev().map(|number| 4 * number + 1).collect()),
        ("&state=kept_all".to_owned(), (0..11).rev().map(|number| 4 * number + 2).collect()),
        ("&state=unsettled".to_owned(), (0..11).rev().map(|number| 4 * number + 3).collect()),
        ("&state=settled".to_owned(), (0..11).rev().map(|number| 4 * number + 4).collect()),
        ("&state=settled&lane=2".to_owned(), vec![]),
        ("&state=kept_all&reason=operator".to_owned(), vec![42]),
        ("&from=2026-03-01T10:41:00Z".to_owned(), vec![44, 43, 42]),
        ("&to=2026-03-01T10:02:00Z".to_owned(), vec![2, 1]),
        ("&from=2026-03-01T10:05:00Z&to=2026-03-01T10:14:00Z&lane=0".to_owned(), vec![13, 9]),
    ];
    for (number, reason) in (0..).zip(ClosureReason::value_variants()) {
        let word = reason.to_possible_value().expect("a word");
        let found = (1..=4).rev().map(|lane| 4 * number + lane).collect();
        rows.push((format!("&reason={}", word.get_name()), found));
    }
    for (query, expected) in rows {
        assert_eq!(over_http(&app, &query).await, expected, "{query}");
    }
    assert_eq!(over_http(&app, "&lane=7").await, [0_i64; 0]);
}

#[tokio::test]
async fn recoveries_are_paged_by_the_time_of_the_closure() {
    let app = with_closures().await;
    // Ten closures of one moment, and a lane that another attempt recovers: the newer row has the older closure.
    app.execute("UPDATE recoveries SET closed_at = '2026-03-01' WHERE id <= 10 OR id = 40").await;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    bounded("the last page", async {
        loop {
            let path = format!("/v1/recoveries?limit=7{cursor}");
            let reply = app.get(&path, &app.admin_token()).await;
            let page = ids(reply.body["recoveries"].as_array().expect("a list"));
            assert!(!page.is_empty(), "no page is empty");
            seen.extend(page);
            let Some(next) = reply.body["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
    })
    .await;
    let expected: Vec<i64> =
        (41..=44).rev().chain((11..40).rev()).chain([40]).chain((1..=10).rev()).collect();
    assert_eq!(seen, expected);
    assert_eq!(over_http(&app, "&cursor=9000").await, [0_i64; 0], "it has been deleted");
}
