//! Places of discarded dead letters that are about to be passed on while the state of their sale changes.

use flash_sale::sale::ids::CouponId;

use super::{errors, raise_epoch};
use crate::support::buyers::FIRST_ORDER_BY_HAND;
use crate::support::lines::Lines;
use crate::support::{TestApp, lane};

/// A change between the decision about a place and its execution.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Nothing,
    /// The heir has become a buyer.
    HeirComes,
    /// The letter's user is no buyer any more.
    UserLeaves,
    /// The heir's order is closed, and the lane with it.
    HeirCloses,
    LaneRecovers,
    SaleIsLost,
    ShardIsLost,
    /// The lane has another epoch.
    EpochRises,
}

/// Outcome: rows closed, words of the note about the sale if it is postponed, whether the lane is suspected, and whether a
/// place has been passed on.
type Outcome = (usize, Option<&'static str>, bool, bool);

const NO_UNIT: Option<&str> = Some("units of discarded dead letters can't come back");

/// A sale for two: user 1 is a buyer, the order of user 2 was forgotten, and in its place the letter of user 3 is a buyer.
async fn forgotten(app: &TestApp, base: i64) -> CouponId {
    let coupon = app.create_flash(2).await;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             VALUES ({base} + 1, {coupon}, 'flash', 1, now()), ({base} + 2, {coupon}, 'flash', 2, now());
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
             VALUES ({base} + 3, {coupon}, 'flash', 3, now(), 'cancelled', now());
         INSERT INTO stock_returns (order_id, coupon_id, user_id) VALUES ({base} + 3, {coupon}, 3);
         INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
             VALUES (0, '{base}-1', '{{}}', 'oversold', '', {coupon}, 3, {base} + 3, now());
         UPDATE flash_sales SET sold = 2 WHERE coupon_id = {coupon}"
    ))
    .await;
    app.set_buyer(coupon, 1, base + 1).await;
    app.set_buyer(coupon, 3, base + 3).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", "0"]).await;
    coupon
}

/// Makes the change, or takes it back.
async fn make(app: &TestApp, change: Change, coupon: CouponId, base: i64, back: bool) {
    let (sale, of_lane) = (app.keys().coupon(coupon), app.keys().lane(lane()));
    let shard = app.shard_keys(coupon).await.remove(0);
    let aside = format!("{sale}:aside");
    match (change, back) {
        (Change::Nothing, _)
        | (Change::HeirComes | Change::UserLeaves | Change::EpochRises, true) => {}
        (Change::HeirComes, false) => app.set_buyer(coupon, 2, base + 2).await,
        (Change::UserLeaves, false) => app.forget_buyer(coupon, 3).await,
        (Change::HeirCloses | Change::LaneRecovers, _) => {
            let state = if back { "open" } else { "recovering" };
            let _: i64 = app.redis(&["HSET", &of_lane, "state", state]).await;
        }
        (Change::SaleIsLost, false) => {
            let _: String = app.redis(&["RENAME", &sale, &aside]).await;
        }
        (Change::SaleIsLost, true) => {
            let _: String = app.redis(&["RENAME", &aside, &sale]).await;
        }
        (Change::ShardIsLost, false) => {
            let _: i64 = app.redis(&["HDEL", &shard, "-"]).await;
        }
        (Change::ShardIsLost, true) => {
            let _: i64 = app.redis(&["HSET", &shard, "-", "1"]).await;
        }
        (Change::EpochRises, false) => raise_epoch(app, 2, &[coupon]).await,
    }
}

/// A pass that waits for the heir's row, while that change is made.
async fn pass_while(app: &TestApp, change: Change, coupon: CouponId, base: i64) -> Outcome {
    let heir = base + 2;
    let lock = match change {
        Change::HeirCloses => format!(
            "UPDATE orders SET status = 'cancelled', cancelled_at = now(), updated_at = now() WHERE id = {heir}"
        ),
        _ => format!("SELECT FROM orders WHERE id = {heir} FOR UPDATE"),
    };
    let other = app.holding(&lock).await;
    app.app.lanes.take_suspicion();
    let lines = Lines::heard();
    let changing = async {
        app.a_session_waits_for_a_row().await;
        make(app, change, coupon, base, false).await;
        let ended = match change {
            Change::HeirCloses => other.commit().await,
            _ => other.rollback().await,
        };
        ended.expect("Postgres answers");
    };
    let (items, ()) = tokio::join!(app.give_back(), changing);
    let is_suspected = app.app.lanes.take_suspicion();
    let told = lines.count("places of discarded dead letters have made up for it");
    make(app, change, coupon, base, true).await;
    let noted = errors(app).await;
    assert!(
        noted.len() <= 1 && noted.iter().all(|it| it.starts_with("withdrawals: ")),
        "{noted:?}"
    );
    let words =
        noted.first().map(|it| if it.contains(NO_UNIT.unwrap_or("")) { NO_UNIT } else { None });
    assert_ne!(words, Some(None), "{noted:?}");
    (items, words.flatten(), is_suspected, told > 0)
}

#[tokio::test]
async fn a_place_is_passed_on_only_if_redis_still_agrees_when_the_script_runs() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let changes: [(Change, Outcome); 8] = [
        (Change::Nothing, (1, None, false, true)),
        (Change::HeirComes, (0, NO_UNIT, false, false)),
        (Change::UserLeaves, (1, None, false, false)),
        // Redis isn't asked about a place without an heir.
        (Change::HeirCloses, (0, NO_UNIT, false, false)),
        (Change::LaneRecovers, (0, None, true, false)),
        (Change::SaleIsLost, (0, NO_UNIT, false, false)),
        (Change::ShardIsLost, (0, NO_UNIT, false, false)),
        (Change::EpochRises, (0, NO_UNIT, false, false)),
    ];
    for (base, (change, expected)) in (1..).map(|n| FIRST_ORDER_BY_HAND + 10 * n).zip(changes) {
        let coupon = forgotten(&app, base).await;
        assert_eq!(pass_while(&app, change, coupon, base).await, expected, "{change:?}");
        let buyers = app.buyers(coupon).await;
        let holds = |user, order| buyers.get(&user) == Some(&(base + order));
        let has_passed = change == Change::Nothing;
        let has_heir = has_passed || change == Change::HeirComes;
        assert_eq!((holds(1, 1), holds(2, 2)), (true, has_heir), "{change:?}");
        assert_eq!(holds(3, 3), !has_passed && change != Change::UserLeaves, "{change:?}");
        if change == Change::EpochRises {
            app.let_postponed_be_due().await;
            assert_eq!((app.give_back().await, app.postponed().await.len()), (1, 0), "it is known");
        }
        app.execute("DELETE FROM stock_returns; DELETE FROM postponed").await;
    }
}
