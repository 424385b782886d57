//! One of two lanes is closed: only its claims wait.

use flash_sale::base::clock::Clock;
use flash_sale::sale::ids::CouponId;
use tokio::task::block_in_place;

use crate::faults::recovery::{code, keep, sell};
use crate::support::{OwnServers, TestApp, eventually};

/// State of a lane in Redis.
async fn state(app: &TestApp, coupon: CouponId) -> String {
    app.redis(&["HGET", &app.keys().lane(coupon.lane()), "state"]).await
}

/// Closures of this lane for 3, 30 and 7 s.
async fn earlier_recoveries(app: &TestApp, coupon: CouponId) {
    app.execute(&format!(
        "INSERT INTO recoveries (lane, epoch, reason, closed_at, opened_at)
         SELECT {}, 0, 'earlier', now() - interval '1 hour', now() - interval '1 hour' + seconds * interval '1 second'
         FROM unnest(ARRAY[3, 30, 7]) AS seconds",
        coupon.lane()
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_lane_stops_its_claims_and_nothing_else() {
    let mut servers = block_in_place(OwnServers::durable);
    let app = TestApp::on(&servers.at, &["--lanes", "2"], Clock::System).await;
    let (closed, open) = (app.create_flash(10).await, app.create_flash(10).await);
    assert_ne!(closed.lane(), open.lane());
    sell(&app, closed, 1..=3).await;
    app.write_orders().await;
    keep(&app).await;
    earlier_recoveries(&app, closed).await;
    // Damage, and an entry that no worker writes: the lane can't be recovered.
    sell(&app, closed, 4..=4).await;
    let _: i64 = app.redis(&["DEL", &app.keys().coupon(closed)]).await;
    assert_eq!(code(&app, 5, closed).await.0, 503);
    for _ in 0..2 {
        assert!(app.app.keeper.pass().await.is_err(), "the log isn't written");
    }

    let ready = app.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("status")), (200, "degraded"));
    assert_eq!(ready.text("lanes"), format!("recovering: {}", closed.lane()));
    let refused = app.claim(5, closed).await;
    assert_eq!(refused.refusal(), (503, "recovering"));
    assert_eq!(refused.header("retry-after"), "7", "the median of the last recoveries");
    let first = app.number("SELECT id FROM orders WHERE user_id = 1").await;
    assert_eq!(app.status(1, first).await, "unpaid");
    assert_eq!(app.pay(1, first).await.status, 200);
    let second = app.number("SELECT id FROM orders WHERE user_id = 2").await;
    assert_eq!(app.cancel(2, second).await.status, 200);
    assert_eq!(app.my_claim(3, closed).await.text("status"), "unpaid");
    assert_eq!(app.my_claim(4, closed).await.refusal(), (503, "recovering"));
    assert_eq!(app.claim(5, open).await.status, 202);
    assert_eq!(code(&app, 5, open).await, (409, "already_claimed".to_owned()));

    servers.kill_postgres();
    assert!(app.app.keeper.pass().await.is_err());
    assert_eq!(code(&app, 6, closed).await.0, 503);
    assert_eq!(app.claim(6, open).await.status, 202, "the open lane needs no Postgres");
    assert_eq!(state(&app, closed).await, "recovering");
    assert_eq!(app.app.lanes.recovering(), [closed.lane()]);
    block_in_place(|| servers.bring_back());
    for _ in 0..app.config.stores.database_connections {
        eventually("a connection works", async || {
            sqlx::query("SELECT").execute(&app.app.stores.pool).await.is_ok()
        })
        .await;
    }
    app.recover().await;
    assert_eq!(app.claim(5, closed).await.status, 202);
    app.write_orders().await;
}
