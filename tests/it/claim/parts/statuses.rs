//! Statuses of claims: the store that is believed about each.

use std::sync::Arc;

use flash_sale::app::App;
use flash_sale::sale::claim::status::Inquiry;
use flash_sale::sale::ids::CouponId;

use crate::support::played::{Play, Played, list, text};
use crate::support::{TestApp, bounded, eventually, lane, user};

const RECOVERING: &str = "Err(Recovering(";
const CLOSE: &str = "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x'";

/// Another claim's row makes this one a dead letter, once it is written.
#[tokio::test]
async fn status_of_a_claim_is_not_that_of_a_row_of_another_coupon() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (coupon, other) = (app.create_flash(5).await, app.create_flash(5).await);
    let order = app.claim(1, coupon).await.order_id();
    for (of, status) in [(other, "pending"), (coupon, "unpaid")] {
        app.execute(&format!(
            "DELETE FROM orders;
             INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             VALUES ({}, {of}, 'flash', 1, now())",
            app.inner(order)
        ))
        .await;
        let mine = app.my_claim(1, coupon).await;
        assert_eq!((mine.order_id(), mine.text("status")), (order, status));
    }
}

/// A sale whose users have these in Redis and in Postgres:
///
/// | user | buyer by order | row | open letter |
/// |---|---|---|---|
/// | 1 | 101 | 101, unpaid | |
/// | 2 | 102 | | 102, which holds its unit |
/// | 3 | 103 | | |
/// | 4 | | 104, cancelled | |
/// | 5 | | | 105, without a unit |
/// | 6 | | | 106, which holds its unit |
/// | 7 | | | |
/// | 8 | 208 | 108, cancelled | |
/// | 9 | 109 | 209, unpaid | |
/// | 10 | | 110, cancelled | 210, without a unit |
async fn sale() -> (TestApp, CouponId) {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(50).await;
    for (id, order) in [(1, 101), (2, 102), (3, 103), (8, 208), (9, 109)] {
        app.set_buyer(coupon, id, order).await;
    }
    let number = coupon.sequence();
    app.write_rows(&[
        (101, number, "flash", 1, "unpaid"),
        (104, number, "flash", 4, "cancelled"),
        (108, number, "flash", 8, "cancelled"),
        (209, number, "flash", 9, "unpaid"),
        (110, number, "flash", 10, "cancelled"),
    ])
    .await;
    app.execute(&format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, holds_unit)
         SELECT 0, letter || '-0', '{{}}', 'oversold', 'x', {coupon}, id, letter, holds_unit
         FROM (VALUES (102::bigint, 2, true), (105, 5, false), (106, 6, true), (210, 10, false))
             AS letters (letter, id, holds_unit)"
    ))
    .await;
    (app, coupon)
}

async fn inquire(process: &App, coupon: CouponId, id: i64) -> String {
    let told = bounded("an answer", process.claim_statuses.inquire(coupon, user(id))).await;
    match told {
        Ok(Inquiry::Claimed(claim)) => format!("{} {:?}", claim.order_id.get(), claim.status),
        // Whether the failure is another caller's doesn't matter.
        told => format!("{told:?}").replace("Shared(", ""),
    }
}

async fn check(process: &App, coupon: CouponId, rows: &[(i64, &str)]) {
    for (id, expected) in rows {
        let told = inquire(process, coupon, *id).await;
        assert!(told.starts_with(expected), "user {id}: {told}, not {expected}");
    }
}

const OPEN: [(i64, &str); 10] = [
    (1, "101 Unpaid"),
    (2, "102 InReview"),
    (3, "103 Pending"),
    (4, "104 Cancelled"),
    (5, "105 InReview"),
    (6, "Ok(NotClaimed)"),
    (7, "Ok(NotClaimed)"),
    (8, "208 Pending"),
    (9, "109 Pending"),
    (10, "110 Cancelled"),
];

/// Postgres alone is believed, unless Redis names a newer order.
const CLOSED: [(i64, &str); 10] = [
    (1, "101 Unpaid"),
    (2, "102 InReview"),
    (3, RECOVERING),
    (4, "104 Cancelled"),
    (5, "105 InReview"),
    (6, "106 InReview"),
    (7, RECOVERING),
    (8, RECOVERING),
    (9, "209 Unpaid"),
    (10, "210 InReview"),
];

#[tokio::test]
async fn inquire_believes_redis_first_in_an_open_lane_and_postgres_in_a_closed_one() {
    let (app, coupon) = sale().await;
    check(&app.app, coupon, &OPEN).await;
    let lane_of_sale = app.keys().lane(lane());
    let set = async |state: &str| {
        let _: i64 = app.redis(&["HSET", &lane_of_sale, "state", state]).await;
    };
    // Another process has closed it in Redis a moment ago.
    set("recovering").await;
    check(&app.app, coupon, &CLOSED).await;
    set("open").await;
    check(&app.app, coupon, &OPEN).await;

    app.execute(CLOSE).await;
    app.app.lanes.read_now().await.expect("Postgres answers");
    check(&app.app, coupon, &CLOSED).await;
    let regular = app.create_regular().await;
    let unknown = CouponId::compose(regular.sequence() + 1_000, 1);
    check(&app.app, regular, &[(1, "Ok(NotClaimed)")]).await;
    check(&app.app, unknown, &[(1, "Ok(NoCoupon)")]).await;
}

#[tokio::test]
async fn inquire_reads_the_lanes_anew_before_it_takes_one_for_closed() {
    let (app, coupon) = sale().await;
    app.execute(CLOSE).await;
    let process = app.another_instance().await;
    app.execute("UPDATE lanes SET state = 'open'").await;
    check(&process, coupon, &OPEN).await;
}

#[tokio::test]
async fn inquire_says_never_only_while_redis_has_the_shard_of_the_user() {
    let (app, coupon) = sale().await;
    let shard = app.shard_of(coupon, 7).await;
    let _: i64 = app.redis(&["HDEL", &shard, "-"]).await;
    check(&app.app, coupon, &[(7, "Err(DataLost("), (3, "103 Pending"), (4, "104 Cancelled")])
        .await;
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    let process = app.another_instance().await;
    check(&process, coupon, &[(7, "Ok(NotClaimed)")]).await;
}

/// In a closed lane, a sale that can't be read is like one that Redis lacks. A Redis that fails is not.
#[tokio::test]
async fn inquire_fails_with_redis_but_not_for_a_sale_that_can_not_be_read_in_a_closed_lane() {
    let (app, coupon) = sale().await;
    let sale = app.keys().coupon(coupon);
    let _: i64 = app.redis(&["HSET", &sale, "shards", "x"]).await;
    check(&app.app, coupon, &[(1, "Err(Redis("), (4, "Err(Redis(")]).await;
    app.execute(CLOSE).await;
    app.app.lanes.read_now().await.expect("Postgres answers");
    check(&app.app, coupon, &[(1, "101 Unpaid"), (4, "104 Cancelled"), (8, "108 Cancelled")]).await;

    let (played, process) = process(&app, |command| match command {
        [name, _, field] if name == "HGET" && field == "shards" => {
            Play::Reply("-OOM it says\r\n".to_owned())
        }
        _ => Play::Real,
    })
    .await;
    check(&process, coupon, &[(1, "Err(Redis("), (4, "Err(Redis(")]).await;
    assert_eq!(played.asked().len(), 2);
}

/// A process on the app's data whose Redis is played.
async fn process(app: &TestApp, play: fn(&[String]) -> Play) -> (Played, Arc<App>) {
    let played = Played::before(app.redis_url(), play).await;
    let process = played.process(app).await;
    (played, process)
}

/// A look whether a lane is open.
fn looks(command: &[String]) -> Play {
    match command {
        [name, lane, epoch, state]
            if name == "HMGET"
                && lane.ends_with(":lane")
                && (epoch.as_str(), state.as_str()) == ("epoch", "state") =>
        {
            Play::Later
        }
        _ => Play::Real,
    }
}

#[tokio::test]
async fn still_open_has_to_be_a_lane_before_and_after_never_is_said() {
    let (app, coupon) = sale().await;
    let (played, process) = process(&app, looks).await;
    let (open, closed, older) =
        (list(&["1", "open"]), list(&["1", "recovering"]), list(&["0", "open"]));
    for (id, looks, told) in [
        (7, vec![&open, &open], "Ok(NotClaimed)"),
        (7, vec![&open, &closed], RECOVERING),
        (7, vec![&open, &older], RECOVERING),
        (7, vec![&closed], RECOVERING),
        (3, vec![&open], "103 Pending"),
        (3, vec![&closed], RECOVERING),
        (3, vec![&older], RECOVERING),
        (4, vec![&open], "104 Cancelled"),
    ] {
        played.take_asked();
        looks.iter().for_each(|look| played.answer(look.as_str()));
        // To a look too many.
        played.answer(list(&["1", "open"]));
        let found = inquire(&process, coupon, id).await;
        assert!(found.starts_with(told), "user {id}: {found}, not {told}");
        assert_eq!(played.asked().len(), looks.len(), "user {id}: {looks:?}");
        played.forget_answers();
    }
}

/// The process learns of another epoch while Redis answers.
#[tokio::test]
async fn still_known_has_to_be_the_epoch_of_the_approval() {
    let (app, coupon) = sale().await;
    let (played, process) = process(&app, looks).await;
    let change = async {
        eventually("it looks", async || played.asked().len() == 1).await;
        app.execute("UPDATE lanes SET epoch = 2").await;
        process.lanes.read_now().await.expect("Postgres answers");
        played.answer(list(&["1", "open"]));
    };
    let (told, ()) = tokio::join!(inquire(&process, coupon, 3), change);
    assert!(told.starts_with(RECOVERING), "{told}");
}

/// Another connection to the same life may lead to another state of it: Redis has gone back, perhaps, in between.
#[tokio::test]
async fn still_the_same_has_to_be_the_link_of_the_approval() {
    let (app, coupon) = sale().await;
    let (played, process) = process(&app, |command| match command {
        [name, _, id] if name == "HGET" && id == "3" => Play::Later,
        [name, ..] if name == "GET" => Play::Later,
        command => looks(command),
    })
    .await;
    let asked = async |count| {
        eventually("it is asked", async || played.asked().len() == count).await;
    };
    let get = redis::cmd("GET").arg("a key").clone();
    let change = async {
        asked(1).await;
        let replies = async {
            asked(2).await;
            played.answer(text("103"));
            asked(3).await;
            played.answer("-READONLY it is a replica\r\n");
        };
        let (refused, ()) = tokio::join!(process.stores.redis.query::<String>(&get), replies);
        assert!(refused.is_err(), "which ends the connection for all later commands");
        played.answer(list(&["1", "open"]));
    };
    let (told, ()) = tokio::join!(inquire(&process, coupon, 3), change);
    assert!(told.starts_with(RECOVERING), "{told}");
}
