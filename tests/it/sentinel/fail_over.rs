//! Fail-overs under the whole service: claims go on, and the sale is exact.

use std::collections::BTreeMap;

use flash_sale::store::ids::CouponId;
use flash_sale::worker;

use super::watched::{Watched, info};
use crate::support::process::{Process, order_id, rows, try_claim};
use crate::support::{TestApp, bounded, eventually, patience};

const UNITS: i64 = 30;

/// Claims until the service decides. Returns the order id of a buyer; `None` when the sale is sold out.
async fn decided(app: &TestApp, user: i64, coupon: CouponId) -> Option<i64> {
    let mut order = None;
    eventually("the claim is decided", async || {
        let reply = app.claim(user, coupon).await;
        order = matches!(reply.status, 202 | 409).then(|| order_id(&reply.body));
        order.is_some() || reply.status == 410
    })
    .await;
    order
}

/// Each buyer is told the same order again, the rest is sold to others, and nothing more; all of them become rows.
async fn the_sale_is_exact(app: &TestApp, coupon: CouponId, sold: &BTreeMap<i64, i64>) {
    for (user, order) in sold {
        assert_eq!(decided(app, *user, coupon).await, Some(*order), "user {user}");
    }
    let mut buyers = sold.len();
    for user in 1_000..1_000 + UNITS {
        buyers += usize::from(decided(app, user, coupon).await.is_some());
    }
    assert_eq!(i64::try_from(buyers), Ok(UNITS));
    eventually("all are written", async || rows(app).await == UNITS).await;
}

fn start_tasks(app: &TestApp) {
    flash_sale::app::start_housekeeping(&app.app);
    worker::start(&app.app, &app.config);
}

async fn stop_tasks(app: &TestApp) {
    assert!(app.app.shutdown.stop(patience()).await);
}

/// The process that has confirmed the claims dies with the master, and no worker has written any.
#[tokio::test]
async fn a_killed_master_takes_no_claim_along_that_its_replicas_have() {
    let mut watched = Watched::start().await;
    let app = watched.app().await;
    let coupon = app.create_flash(UNITS).await;
    let roles = ["--roles", "api", "--durability", "replica:2"];
    let mut process = Process::serve(&app, &roles);
    let url = process.url().await;
    let mut sold = BTreeMap::new();
    for user in 1..=10 {
        eventually("the claim is confirmed", async || {
            let told = try_claim(&app, &url, user, coupon).await;
            let confirmed = told.filter(|(status, _)| matches!(status, 202 | 409));
            confirmed.is_some_and(|(_, body)| sold.insert(user, order_id(&body)).is_none())
        })
        .await;
    }

    watched.be_quick().await;
    process.kill();
    watched.servers[0].0.kill();
    start_tasks(&app);
    the_sale_is_exact(&app, coupon, &sold).await;
    stop_tasks(&app).await;
}

#[tokio::test]
async fn a_master_that_was_paused_and_replaced_sells_nothing_more() {
    let watched = Watched::start().await;
    let app = watched.app().await;
    start_tasks(&app);
    let coupon = app.create_flash(UNITS).await;
    let mut sold = BTreeMap::new();
    for user in 1..=5 {
        sold.insert(user, decided(&app, user, coupon).await.expect("there are units"));
    }

    watched.be_quick().await;
    let old = &watched.servers[0].0;
    old.pause();
    // Waits in a socket of the paused master, which accepts the claim when it goes on.
    let late = app.claim(6, coupon);
    let change = async {
        eventually("another server is the master", async || {
            watched.led_to(&app.app.stores.fleet.first().another()).await.is_some_and(|at| at > 0)
        })
        .await;
        old.resume();
    };
    let (late, ()) = bounded("a late reply", async { tokio::join!(late, change) }).await;
    println!("a claim that waited for the old master was answered {}", late.status);
    let again = decided(&app, 6, coupon).await.expect("there are units");
    // Either it was not confirmed, or it reached the new master.
    assert!(late.status == 503 || order_id(&late.body) == again, "{late:?}");
    sold.insert(6, again);
    // The time in which the old master believes that it is one.
    let mut user = 6;
    eventually("the sentinels make it a replica", async || {
        if user < 20 {
            user += 1;
            sold.insert(user, decided(&app, user, coupon).await.expect("there are units"));
        }
        info(old).await.contains("role:slave")
    })
    .await;
    the_sale_is_exact(&app, coupon, &sold).await;
    stop_tasks(&app).await;
}
