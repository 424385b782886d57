//! Statements and commands that a recovery does without, and that it does where there is a reason.

use super::{BY_HAND, close_lanes, damage, fate, no_process_keeps, promise_in_redis, sold_to_two};
use crate::support::lines::Lines;
use crate::support::played::Played;
use crate::support::{TestApp, bounded, lane};

/// Words of the statements that ask for the shards of recoveries that were broken off, for the letters and the newest
/// orders of buyers without a row, that add lanes, and that write orders.
const STATEMENTS: [&str; 5] = [
    "SELECT total FROM flash_sales WHERE coupon_id = $1",
    "FROM dead_letters WHERE order_id = ANY($1)",
    "WHERE user_id = ANY($1) AND coupon_id = $2 GROUP BY user_id",
    "INSERT INTO lanes (lane, epoch)",
    "INSERT INTO orders (id, coupon_id, kind, user_id",
];

/// A recovery was broken off, Redis has promised a unit, and the installation has a lane more.
const REASONS: &str = "
    INSERT INTO recoveries (lane, epoch, reason, closed_at) VALUES (0, 4, 'x', now());
    UPDATE settings SET lanes = 2";

#[tokio::test]
async fn statements_of_a_recovery_each_have_a_reason_and_lists_that_are_in_use_are_not_removed() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let [sale] = sold_to_two::<1>(&app).await;
    let played = Played::hearing(app.redis_url(), "UNLINK").await;
    let other = played.process(&app).await;
    no_process_keeps(&app).await;
    for (epoch, before, expected, built) in
        [(3, 0, [0; 5], "built 7 [1, 2]"), (5, 3, [1; 5], "built 6 [1, 2, 5]")]
    {
        if expected != [0; 5] {
            promise_in_redis(&app, sale, 5, BY_HAND + 5).await;
            app.execute(REASONS).await;
        }
        damage(&app, sale).await;
        close_lanes(&app).await;
        let lines = Lines::down_to(tracing::Level::DEBUG);
        let pass = bounded("the end of the pass", other.keeper.pass()).await;
        pass.expect("both stores answer");
        assert_eq!(STATEMENTS.map(|words| lines.count(words)), expected, "{epoch}");
        assert_eq!(fate(&app, sale).await, built);
        let removed: Vec<String> = played.take_asked().concat();
        assert!(removed.contains(&app.keys().buyers_of(sale, before, 0)), "{removed:?}");
        let lists = app.keys().unpaid_built(lane(), epoch);
        assert!(!removed.contains(&lists), "they are in use by another name: {removed:?}");
    }
}
