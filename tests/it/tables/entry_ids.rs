//! Entries of one millisecond: their ids, `<ms>-<sequence>`, differ only behind the dash, and are compared as numbers there.

use std::time::Duration;

use flash_sale::sale::ids::CouponId;
use flash_sale::sale::log::{LogState, OrderLog};
use flash_sale::worker;
use flash_sale::worker::watch::LaneWatch;
use tokio_util::sync::CancellationToken;

use crate::support::{Bounded, TestApp, bounded, calls, eventually, lane, write_all};

/// A millisecond that no clock reaches while the tests run.
const MS: u64 = 4_000_000_000_000;

fn id(sequence: u64) -> String {
    format!("{MS}-{sequence}")
}

async fn add(app: &TestApp, sequence: u64, fields: &[&str]) {
    app.append_as(lane(), &id(sequence), fields).await;
}

/// The entry of a claim of user `n`, who is a buyer in Redis.
async fn claim(app: &TestApp, coupon: CouponId, n: i64, sequence: u64) {
    let coupon_text = coupon.to_string();
    let n_text = n.to_string();
    let order = (1_000 + n).to_string();
    app.set_buyer(coupon, n, 1_000 + n).await;
    let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "-1"]).await;
    add(app, sequence, &["coupon", &coupon_text, "user", &n_text, "order", &order]).await;
}

async fn app_with(units: i64, arguments: &[&str]) -> (TestApp, CouponId) {
    let app = TestApp::configured(arguments).await;
    let coupon = app.create_flash(units).await;
    (app, coupon)
}

async fn orders(app: &TestApp) -> i64 {
    app.number("SELECT count(*) FROM orders").await
}

#[tokio::test]
async fn entries_of_one_millisecond_are_all_written_in_batches() {
    for read_before in [false, true] {
        let (app, coupon) = app_with(30, &["--batch-orders-max", "5"]).await;
        let mut worker = app.worker(lane());
        worker.ensure_group().bounded().await.unwrap();
        for n in 1..=22 {
            claim(&app, coupon, n, u64::try_from(n).unwrap()).await;
        }
        if read_before {
            worker.log().read_new(100).await.unwrap();
        }
        assert_eq!(write_all(&mut worker).await.inserted, 22);
        assert_eq!((worker.recover_pass().bounded().await.unwrap(), orders(&app).await), (0, 22));
    }
}

/// With more claims than units, those become orders that came first.
#[tokio::test]
async fn who_came_first_in_a_millisecond_gets_the_unit() {
    let (app, coupon) = app_with(2, &[]).await;
    // The last claim has the lowest order id.
    for (n, sequence) in [(3, 9), (2, 10), (1, 11)] {
        claim(&app, coupon, n, sequence).await;
    }
    let report = app.write_orders().await;
    assert_eq!((report.inserted, report.dead_letters), (2, 1));
    assert_eq!(app.number("SELECT user_id FROM dead_letters").await, 1);
    app.expect_disagreements();
}

#[tokio::test]
async fn two_dead_letters_of_one_millisecond_are_two() {
    let app = TestApp::start().await;
    for sequence in 1..=3 {
        add(&app, sequence, &["junk", "junk"]).await;
    }
    assert_eq!(app.write_orders().await.dead_letters, 3);
    assert_eq!(app.number("SELECT count(DISTINCT entry_id) FROM dead_letters").await, 3);
}

/// Two orders whose entries are lost, promised in one second, and without a place in Postgres.
#[tokio::test]
async fn two_repairs_of_one_second_are_two_dead_letters() {
    let (app, coupon) = app_with(5, &[]).await;
    let regular = app.create_regular().await;
    for n in [1, 2] {
        app.set_buyer(coupon, n, 1_000 + n).await;
        let _: i64 = app.redis(&["HINCRBY", &app.keys().coupon(coupon), "stock", "-1"]).await;
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             VALUES (1000 + {n}, {regular}, 'regular', 9 + {n}, now())"
        ))
        .await;
    }
    let repaired = app.compare(true).await;
    assert_eq!(repaired.status, 200, "{repaired:?}");
    assert_eq!(app.number("SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL").await, 2);
    app.expect_disagreements();
}

/// Two groups in the middle of one millisecond: the entries that the slower one needs are kept, in either order of
/// the groups.
#[tokio::test]
async fn the_log_is_trimmed_to_the_slowest_group_within_a_millisecond() {
    // As text 250 comes before 99.
    for (ours, others) in [(99, 250), (250, 99), (1, 350), (350, 1)] {
        for pending in [false, true] {
            let app = TestApp::start().await;
            app.expect_disagreements();
            let key = app.log(lane());
            for sequence in 1..=350 {
                add(&app, sequence, &["x", "y"]).await;
            }
            for (group, at) in [("order-writers", ours), ("a-relay", others)] {
                // A group needs its pending entries; otherwise all entries after the last one that it was given.
                let from = if pending { id(at - 1) } else { id(at) };
                let _: String = app.redis(&["XGROUP", "CREATE", &key, group, &from]).await;
                if pending {
                    let read = ["XREADGROUP", "GROUP", group, "x", "STREAMS", &key, ">"];
                    let _: redis::Value = app.redis(&read).await;
                }
            }
            let stores = &app.app.stores;
            let log = OrderLog::new(stores.redis.clone(), &stores.keys, calls(lane()), "x".into());
            log.trim().await.unwrap();
            let needed = ours.min(others);
            let kept: i64 = app.redis(&["XLEN", &key]).await;
            let kept = u64::try_from(kept).unwrap();
            let case = format!("{ours}, {others}, pending {pending}: {kept} are kept");
            // Whole nodes of a hundred entries go, and no more.
            assert!((351 - needed..351 - needed + 100).contains(&kept), "{case}");
            let first: Vec<(String, Vec<String>)> =
                app.redis(&["XRANGE", &key, &id(needed), &id(needed)]).await;
            assert_eq!(first.len(), 1, "{case}");
        }
    }
}

/// Progress of a group, and number of entries in flight.
#[tokio::test]
async fn a_log_is_judged_to_the_entry() {
    let (app, coupon) = app_with(20, &[]).await;
    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.unwrap();
    for n in 9..=12 {
        claim(&app, coupon, n, u64::try_from(n).unwrap()).await;
    }
    let redis = &app.app.stores.redis;
    for read in 0..=4 {
        if read > 0 {
            assert_eq!(worker.log().read_new(1).await.unwrap().len(), 1);
        }
        let state = LogState::of(redis, app.keys(), calls(lane())).await.unwrap();
        assert_eq!((state.pending, state.unwritten), (read, 4));
        assert!(!state.is_settled());
        let report = app.reconcile().await;
        assert!(report.agrees() && report.in_flight == 4 && !report.at_rest, "{report:?}");
    }
    assert_eq!(write_all(&mut worker).await.positions, 4);
    assert!(LogState::of(redis, app.keys(), calls(lane())).await.unwrap().is_settled());
}

/// A group that was given some entries of the last millisecond, and holds none, has the others before it.
#[tokio::test]
async fn a_log_with_unread_entries_of_its_last_millisecond_is_not_settled() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    for sequence in 9..=11 {
        add(&app, sequence, &["x", "y"]).await;
    }
    let key = app.log(lane());
    let _: String = app.redis(&["XGROUP", "CREATE", &key, "order-writers", &id(9)]).await;
    for (delivered, settled) in [(9, false), (10, false), (11, true)] {
        let _: String =
            app.redis(&["XGROUP", "SETID", &key, "order-writers", &id(delivered)]).await;
        let state = LogState::of(&app.app.stores.redis, app.keys(), calls(lane())).await.unwrap();
        assert_eq!((state.pending, state.is_settled()), (0, settled), "{delivered}: {state:?}");
    }
}

/// Entries 1 to 3 are there. A lane that came to rest behind entry `last` is woken up if there is a later entry, or
/// if the group was given fewer.
#[tokio::test]
async fn a_lane_at_rest_is_woken_up_within_a_millisecond() {
    for (last, delivered) in [(2, 3), (3, 2), (2, 2), (1, 1)] {
        let app = TestApp::start().await;
        app.expect_disagreements();
        for sequence in 1..=3 {
            add(&app, sequence, &["x", "y"]).await;
        }
        let key = app.log(lane());
        let _: String =
            app.redis(&["XGROUP", "CREATE", &key, "order-writers", &id(delivered)]).await;
        let last = id(last).parse().expect("an entry id");
        let state = LogState { last, delivered: Some(last), ..LogState::default() };
        let watch = LaneWatch::new(&app.app.stores.redis);
        let stop = CancellationToken::new();
        let rest = async {
            watch.rest(&key, &state).await;
            stop.cancel();
        };
        let woken = async { tokio::join!(watch.run(&stop), rest) };
        bounded(&format!("the end of the rest behind {last}, delivered {delivered}"), woken).await;
    }
}

/// The same with a running worker.
#[tokio::test]
async fn entries_of_one_millisecond_are_written_one_by_one() {
    let (app, coupon) = app_with(30, &[]).await;
    worker::start(&app.app, &app.config);
    for n in 1..=12 {
        claim(&app, coupon, n, u64::try_from(n).unwrap()).await;
        eventually("it is a row", async || orders(&app).await == n).await;
    }
    assert!(app.app.shutdown.stop(Duration::from_secs(10)).await);
}
