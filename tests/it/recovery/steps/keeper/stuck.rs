//! Sales that can't be built hold up no other, however many they are.

use flash_sale::base::limits;
use flash_sale::sale::ids::{CouponId, Lane};

use crate::faults::recovery::keep;
use crate::recovery::steps::fate;
use crate::support::TestApp;

/// Sales of two lanes, so many of each.
async fn sales_of_two_lanes(app: &TestApp, of_each: i64) -> [Vec<CouponId>; 2] {
    let mut sales = [Vec::new(), Vec::new()];
    for _ in 0..2 * of_each {
        let coupon = app.create_flash(9).await;
        sales[usize::from(coupon.lane() != Lane::numbered(0))].push(coupon);
    }
    app.write_orders().await;
    keep(app).await;
    sales
}

/// Keys of another program stand where the next recoveries build this sale.
async fn block(app: &TestApp, coupon: CouponId, epoch: i64) -> Vec<String> {
    let keys: Vec<_> = (1..5).map(|n| app.keys().buyers_of(coupon, epoch + n, 0)).collect();
    for key in &keys {
        let _: String = app.redis(&["SET", key, "of another program"]).await;
    }
    keys
}

/// Lost sales of a lane that can't be built are tried again, and then one of another lane: 20 in a run.
#[tokio::test]
async fn look_at_sales_tries_a_sale_behind_many_that_are_stuck() {
    let page = limits::POSTPONED_TRIES_MAX;
    for stuck in [0, 1, page, page + 1] {
        let app = TestApp::with_lanes(2).await;
        let [mut bad, good] = sales_of_two_lanes(&app, stuck + 1).await;
        bad.pop();
        let epoch = app.number("SELECT epoch FROM lanes WHERE lane = 0").await;
        let mut in_the_way = Vec::new();
        for coupon in &bad {
            in_the_way.extend(block(&app, *coupon, epoch).await);
        }
        for (coupon, since) in bad.iter().map(|coupon| (coupon, 2)).chain([(&good[0], 1)]) {
            app.lose_sale(*coupon).await;
            app.execute(&format!(
                "INSERT INTO postponed (pass, item, error, next_try_at)
                 VALUES ('rebuild', {coupon}, 'x', now() - interval '{since} hours')"
            ))
            .await;
        }
        // Those in front fail, the one behind them is built, and then found whole.
        for _ in 0..3 {
            keep(&app).await;
            let tried =
                "UPDATE postponed SET next_try_at = now() + interval '1 hour' WHERE tries > 1";
            app.execute(tried).await;
        }
        assert_eq!(fate(&app, good[0]).await, "built 9 []", "behind {stuck}");
        let waiting: Vec<_> = bad.iter().map(|coupon| format!("rebuild {coupon} 2")).collect();
        assert_eq!(app.postponed().await, waiting);

        for key in &in_the_way {
            let _: i64 = app.redis(&["DEL", key]).await;
        }
        app.let_postponed_be_due().await;
        // One recovery builds all of them.
        keep(&app).await;
        for left in [(stuck - page).max(0), 0] {
            keep(&app).await;
            let waiting = app.postponed().await;
            assert_eq!(i64::try_from(waiting.len()), Ok(left), "20 in a run: {waiting:?}");
        }
        for coupon in bad {
            assert_eq!(fate(&app, coupon).await, "built 9 []");
        }
    }
}
