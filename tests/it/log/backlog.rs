//! The bound on accepted claims that wait to be written, and a full Redis: no further claim is accepted, accepted
//! ones are written, and then claims go on. A backlog that Redis only seems to have refuses none.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::log::GROUP;
use flash_sale::store::ids::CouponId;
use flash_sale::worker::LaneWorker;

use crate::support::{Bounded, OwnServers, TestApp, eventually, lane, user, write_all};

#[tokio::test]
async fn beyond_the_bound_new_claims_are_overloaded_and_the_rest_goes_on() {
    for lanes in ["1", "4"] {
        let app = TestApp::configured(&["--backlog-orders-max", "3", "--lanes", lanes]).await;
        let coupon = app.create_flash(10).await;
        let sold_out = app.create_flash(1).await;
        let regular = app.create_regular().await;
        let first = app.claim(1, coupon).await.order_id();
        assert_eq!(app.claim(2, coupon).await.status, 202);
        assert_eq!(app.claim(1, sold_out).await.status, 202);
        app.app.backlog_job().bounded().await;

        let refused = app.claim(3, coupon).await;
        assert_eq!(refused.refusal(), (503, "overloaded"));
        let seconds = limits::OVERLOADED_RETRY_AFTER.as_secs().to_string();
        assert_eq!(refused.header("retry-after"), seconds);
        assert_eq!(app.my_claim(3, coupon).await.refusal(), (404, "not_claimed"));
        let repeat = app.claim(1, coupon).await;
        assert_eq!((repeat.refusal(), repeat.order_id()), ((409, "already_claimed"), first));
        assert_eq!(app.claim(3, sold_out).await.refusal(), (410, "sold_out"));
        assert_eq!(app.claim(3, regular).await.status, 201);
        let page = app.get("/metrics", "").await;
        let page = page.body.as_str().expect("a page");
        assert!(page.contains("flash_sale_claims_total{outcome=\"overloaded\"} 1"), "{page}");
        assert!(page.contains("flash_sale_backlog_claims 3"), "{page}");

        app.write_orders().await;
        app.app.backlog_job().bounded().await;
        assert_eq!(app.claim(3, coupon).await.status, 202);
    }
}

#[tokio::test]
async fn a_full_redis_refuses_claims_whole_and_can_be_drained() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(100).await;
    for id in 1..=50 {
        assert_eq!(app.claim(id, coupon).await.status, 202);
    }
    let maxmemory = async |bytes: &str| {
        let _: String = app.redis(&["CONFIG", "SET", "maxmemory", bytes]).await;
    };
    maxmemory("1mb").await;
    for id in 51..=70 {
        assert_eq!(app.claim(id, coupon).await.refusal(), (503, "unavailable"));
    }
    // A process that still has a block of order ids gets as far as the script, which meets the limit.
    let another = app.another_instance().await;
    maxmemory("0").await;
    let claimed = another.claims.claim(coupon, user(51)).await.expect("there is room");
    assert_eq!(claimed.status().http, 202);
    maxmemory("1mb").await;
    assert!(another.claims.claim(coupon, user(52)).await.is_err());
    let repeat = another.claims.claim(coupon, user(51)).await.expect("a repeat writes nothing");
    assert_eq!(repeat.status().code, "already_claimed");

    // No claim is half-done, and a worker that has just been started writes the accepted ones.
    let report = app.reconcile().await;
    assert!(report.agrees(), "{:?}", report.disagreements);
    assert_eq!((report.sales[0].stock, report.sales[0].buyers, report.in_flight), (49, 51, 51));
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.contended), (51, 0));
    assert_eq!(app.reconcile().await.in_flight, 0);
    for worker in app.workers() {
        worker.tidy_up_job().bounded().await.expect("a full Redis can be tidied up");
    }

    maxmemory("0").await;
    assert_eq!(app.claim(52, coupon).await.status, 202);
}

/// Sells in a sale of its own, and writes the log.
struct Seller<'a> {
    app: &'a TestApp,
    coupon: CouponId,
}

impl Seller<'_> {
    async fn sell(&self, users: RangeInclusive<i64>) {
        for first in users.clone().step_by(500) {
            let some = first..=(first + 499).min(*users.end());
            let claims = some.map(|id| self.app.app.claims.claim(self.coupon, user(id)));
            let told = futures_util::future::try_join_all(claims).await.expect("Redis answers");
            assert!(told.iter().all(|outcome| outcome.status().http == 202));
        }
    }

    fn worker(&self) -> LaneWorker {
        self.app.worker(lane())
    }

    async fn write(&self) -> usize {
        let mut worker = self.worker();
        worker.ensure_group().bounded().await.expect("Redis answers");
        write_all(&mut worker).await.inserted
    }

    /// A number of Redis's about the group.
    async fn of_group(&self, name: &str) -> redis::Value {
        let key = self.app.keys().log(lane());
        let groups: Vec<BTreeMap<String, redis::Value>> =
            self.app.redis(&["XINFO", "GROUPS", &key]).await;
        groups[0][name].clone()
    }
}

/// Redis takes its counts of a group from the last rewrite of its file. The lane itself counts orders.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_counts_from_its_last_rewrite_has_no_backlog() {
    const BOUND: u64 = 1_000;
    let mut servers = tokio::task::block_in_place(OwnServers::durable);
    let settings = ["--backlog-orders-max", &BOUND.to_string()];
    let app = TestApp::on(&servers.at, &settings, Clock::System).await;
    let coupon = app.create_flash(10_000).await;
    let seller = Seller { app: &app, coupon };
    let check = async || app.app.backlog.check().bounded().await;
    seller.sell(1..=50).await;
    assert_eq!(seller.write().await, 50);
    let _: String = app.redis(&["BGREWRITEAOF"]).await;
    let rewritten = async || {
        let info: String = app.redis(&["INFO", "persistence"]).await;
        info.contains("aof_rewrite_in_progress:0")
    };
    eventually("the file is rewritten", rewritten).await;
    seller.sell(51..=1_550).await;
    assert_eq!(seller.write().await, 1_500);
    seller.worker().tidy_up_job().bounded().await.unwrap();

    // The report of Redis after its restart, and the truth.
    servers.kill_redis();
    tokio::task::block_in_place(|| servers.bring_back());
    eventually("Redis is back", async || check().await.is_ok()).await;
    app.app.leaders.first().run_once().bounded().await.expect("both stores answer");
    println!("after the restart, Redis tells a lag of {:?}", seller.of_group("lag").await);
    assert_eq!(check().await.unwrap(), 0);
    let ready = app.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("backlog")), (200, "ok"));
    assert_eq!(app.reconcile().await.in_flight, 0);
    seller.sell(5_000..=5_000).await;

    // Each version of Redis tells that lag of a group that is said to have read what was there at the rewrite.
    let [key, delivered] =
        [app.keys().log(lane()), text(seller.of_group("last-delivered-id").await)];
    let read = ["XGROUP", "SETID", &key, GROUP, &delivered, "ENTRIESREAD", "50"];
    let _: String = app.redis(&read).await;
    assert_eq!(check().await.unwrap(), 1);
    assert_eq!(seller.write().await, 1);
}

fn text(value: redis::Value) -> String {
    redis::from_redis_value(value).expect("a text")
}
