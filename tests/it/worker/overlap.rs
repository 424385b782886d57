//! Two owners of a lane that write the same entries at the same time, in opposite order: neither waits for the other in a
//! circle, and each entry is written and counted once.

use std::time::Duration;

use flash_sale::log::{LoggedClaim, OrderLog};
use flash_sale::order::insert::{NotWritten, Written};
use flash_sale::order::write::Origin;
use flash_sale::store::ids::Lane;
use tokio_util::sync::CancellationToken;

use crate::support::{Bounded, TestApp, claims_in, done, lane, user};

/// Each of two workers has two thirds of the entries, so one third is in both hands.
const THIRD: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn overlapping_batches_in_opposite_order_are_written_once_and_without_a_deadlock() {
    let app = TestApp::start().await;
    // A slow insert has both in the middle of it at the same time.
    app.execute(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$;
         CREATE TRIGGER slowly BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION slowly()",
    )
    .await;
    let coupons = [app.create_flash(1_000).await, app.create_flash(1_000).await];
    let lane = lane();
    let stores = &app.app.stores;
    let log = OrderLog::new(stores.fleet.first().clone(), &stores.keys, lane);
    log.ensure_group().bounded().await.expect("Redis answers");
    for round in 0..5 {
        for n in 0..3 * THIRD {
            let coupon = coupons[n % 2];
            let id = i64::try_from(1 + n + round * 1_000).unwrap();
            app.app.claims.claim(coupon, user(id)).await.expect("it is accepted");
        }
        let entries = log.read_new(3 * THIRD, Duration::ZERO).await.unwrap().entries;
        let claims = claims_in(&entries);
        assert_eq!(claims.len(), 3 * THIRD);
        let forwards = &claims[..2 * THIRD];
        let backwards: Vec<LoggedClaim> = claims[THIRD..].iter().rev().copied().collect();

        let (one, other) = tokio::join!(write(&app, lane, forwards), write(&app, lane, &backwards));
        let one = one.expect("no deadlock");
        let other = other.expect("no deadlock");
        assert_eq!(one.inserted + other.inserted, 3 * THIRD, "{one:?} {other:?}");
        assert_eq!(one.repeated + other.repeated, THIRD, "{one:?} {other:?}");
        let letters = one.dead_letters.iter().chain(&other.dead_letters);
        assert_eq!(letters.count(), 0, "{one:?} {other:?}");
        log.acknowledge(1, &done(&entries), None).await.unwrap();
    }
    let sold = app.number("SELECT sum(sold)::bigint FROM flash_sales").await;
    assert_eq!(sold, i64::try_from(5 * 3 * THIRD).unwrap());
}

async fn write(app: &TestApp, lane: Lane, claims: &[LoggedClaim]) -> Result<Written, NotWritten> {
    app.app.orders.write((lane, 1), Origin::Lane(None), claims, &CancellationToken::new()).await
}
