//! The shards of a sale's buyers: none sells a unit twice, and the loss of a shard is noticed.

use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::sale::buyers::shards::SENTINEL;
use flash_sale::sale::claim::outcome::ClaimOutcome;
use flash_sale::sale::ids::{CouponId, OrderId};
use futures_util::future::join_all;

use crate::coupon::load::only_in_postgres;
use crate::support::{Bounded, TestApp, user};

/// Stock of a sale with 157 shards.
const UNITS: i64 = 5_000;

/// Claims for these users, a few hundred at a time. Returns the answer to each: an order, new or not, or none.
async fn claim_all(
    app: &App,
    coupon: CouponId,
    users: impl IntoIterator<Item = i64>,
) -> Vec<Option<(OrderId, bool)>> {
    let users: Vec<i64> = users.into_iter().collect();
    let mut told = Vec::with_capacity(users.len());
    for crowd in users.chunks(400) {
        let claims = crowd.iter().map(|id| app.claims.claim(coupon, user(*id)));
        told.extend(join_all(claims).await.into_iter().map(|outcome| {
            match outcome.expect("nothing is broken") {
                ClaimOutcome::Accepted(order) => Some((order, true)),
                ClaimOutcome::AlreadyClaimed(order) => Some((order, false)),
                ClaimOutcome::SoldOut => None,
                other => panic!("{other:?}"),
            }
        }));
    }
    told
}

/// The answers to the same users when they ask again.
fn repeated(told: &[Option<(OrderId, bool)>]) -> Vec<Option<(OrderId, bool)>> {
    told.iter().map(|told| told.map(|(order, _)| (order, false))).collect()
}

async fn shards_there(app: &TestApp, coupon: CouponId) -> usize {
    let any = app.keys().buyers(coupon, 0);
    let pattern = format!("{}*", any.strip_suffix('0').expect("its number stands last"));
    app.redis::<Vec<String>>(&["KEYS", &pattern]).await.len()
}

#[tokio::test]
async fn sales_of_all_sizes_sell_each_unit_once() {
    let app = TestApp::start().await;
    let another = app.another_instance().await;
    for (units, shards) in [(1, 1), (32, 1), (33, 2), (3_000, 94)] {
        let coupon = app.create_flash(units).await;
        assert_eq!(shards_there(&app, coupon).await, shards, "{units} units");
        let told = claim_all(&app.app, coupon, 1..=units + 10).await;
        let sold = told.iter().flatten().filter(|(_, new)| *new).count();
        assert_eq!(sold as i64, units);
        // A process that has never heard of the sale.
        assert_eq!(claim_all(&another, coupon, 1..=units + 10).await, repeated(&told));
        app.write_orders().await;
        assert_eq!(app.buyers_count(coupon).await, units);
    }
}

#[tokio::test]
async fn a_shard_that_is_lost_is_noticed_by_whoever_belongs_there() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(UNITS).await;
    let shards = app.shards(coupon).await;
    let together: Vec<i64> =
        (1..).filter(|id| shards.of(user(*id)) == shards.of(user(1))).take(2).collect();
    let stranger = (1..).find(|id| shards.of(user(*id)) != shards.of(user(1))).expect("most");
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let _: i64 = app.redis(&["DEL", &app.shard_of(coupon, 1).await]).await;
    for id in &together {
        assert_eq!(app.claim(*id, coupon).await.refusal(), (503, "unavailable"), "user {id}");
        assert_eq!(app.my_claim(*id, coupon).await.refusal(), (503, "unavailable"), "user {id}");
    }
    assert_eq!(app.stock(coupon).await, UNITS - 1);
    assert_eq!(app.claim(stranger, coupon).await.status, 202);
    // A field that another client writes into a lost shard doesn't make the shard whole.
    app.set_buyer(coupon, together[1], 7).await;
    assert_eq!(app.claim(together[0], coupon).await.refusal(), (503, "unavailable"));
    app.forget_buyer(coupon, together[1]).await;

    let codes = async || -> Vec<&str> {
        app.reconcile().await.disagreements.iter().map(|found| found.code()).collect()
    };
    assert_eq!(codes().await, ["shards_missing", "not_conserved"]);
    app.write_orders().await;
    assert_eq!(codes().await, ["shards_missing", "not_conserved", "buyer_missing"]);
    // The order can be told again, since it is a row.
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "unpaid");
    app.expect_disagreements();
}

#[tokio::test]
async fn a_buyer_whose_shard_is_lost_is_never_told_that_it_is_sold_out() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(64).await;
    let another = app.another_instance().await;
    claim_all(&another, coupon, 1..=64).await;
    let lost = app.shard_of(coupon, 1).await;
    let _: i64 = app.redis(&["DEL", &lost]).await;
    // This process reads the buyers only now, and goes on believing "sold out".
    let shards = app.shards(coupon).await;
    let others = (1_000..).filter(|id| shards.of(user(*id)) != shards.of(user(1)));
    for id in others.take(200) {
        assert_eq!(app.claim(id, coupon).await.refusal(), (410, "sold_out"));
        assert_eq!(app.claim(1, coupon).await.refusal(), (503, "unavailable"));
    }
    app.expect_disagreements();
}

#[tokio::test]
async fn a_shard_is_missed_also_if_nobody_was_in_it() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(UNITS).await;
    let _: i64 = app.redis(&["DEL", &app.shard_of(coupon, 1).await]).await;
    assert_eq!(app.claim(1, coupon).await.refusal(), (503, "unavailable"));
    let named = app.reconcile().await.disagreements;
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].to_string().contains("1 of its shards of buyers are missing"), "{named:?}");
    app.expect_disagreements();
}

#[tokio::test]
async fn who_remembers_a_wrong_number_of_shards_is_put_right() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(UNITS).await;
    let first = claim_all(&app.app, coupon, 1..=100).await;
    app.write_orders().await;
    // As if the sale had been rebuilt with another number.
    let buyers = app.buyers(coupon).await;
    for shards in ["7", "300", "1"] {
        app.lose_buyers(coupon).await;
        let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "shards", shards]).await;
        for key in app.shard_keys(coupon).await {
            let _: i64 = app.redis(&["HSET", &key, SENTINEL, ""]).await;
        }
        for (id, order) in &buyers {
            app.set_buyer(coupon, *id, *order).await;
        }
        assert_eq!(claim_all(&app.app, coupon, 1..=100).await, repeated(&first), "{shards}");
        assert_eq!(app.stock(coupon).await, UNITS - 100);
        // No buyer was remembered in a wrong shard.
        assert_eq!(shards_there(&app, coupon).await.to_string(), shards);
    }
    let order = app.claim(200, coupon).await.order_id();
    app.write_orders().await;
    assert_eq!(app.cancel(200, order).await.status, 200);
    app.give_back().await;
    assert_eq!(app.stock(coupon).await, UNITS - 100);
}

#[tokio::test]
async fn the_buyers_of_a_sold_out_sale_are_kept_compact() {
    // A quarter of what Redis allows a listpack by default, and the sentinel is one of them.
    const FIELDS_MAX: i64 = 128;
    let app = TestApp::start().await;
    let coupon = app.create_flash(UNITS).await;
    let told = claim_all(&app.app, coupon, 1..=UNITS).await;
    assert!(told.iter().all(|told| matches!(told, Some((_, true)))));
    for key in app.shard_keys(coupon).await {
        assert!(app.redis::<i64>(&["HLEN", &key]).await <= FIELDS_MAX);
        assert_eq!(app.redis::<String>(&["OBJECT", "ENCODING", &key]).await, "listpack");
    }
    app.write_orders().await;
}

#[tokio::test]
async fn ten_times_the_units_fill_the_same_shards() {
    // A process that remembers "sold out" sells added units a moment later.
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]).await;
    let coupon = app.create_flash(100).await;
    let first = claim_all(&app.app, coupon, 1..=110).await;
    assert_eq!(app.restock(coupon, 900, "more").await.status, 200);
    assert_eq!(shards_there(&app, coupon).await, 4);
    let all = claim_all(&app.app, coupon, 1..=1_010).await;
    assert_eq!(all[..100], repeated(&first)[..100]);
    assert_eq!(all.iter().flatten().filter(|(_, new)| *new).count(), 900);
    assert_eq!(all.iter().filter(|told| told.is_none()).count(), 10);
    app.write_orders().await;

    // A sale of 1,000 units would have been loaded with more.
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    app.app.archive.pass().bounded().await.expect("both stores answer");
    assert_eq!(shards_there(&app, coupon).await, 0);
}

#[tokio::test]
async fn an_archived_sale_leaves_no_shard_behind() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(100_000).await;
    let order = app.paid_order(1, coupon).await;
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    // The process that removed the sale died on the way, after the sale itself.
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    let gone = [app.keys().coupon(coupon), app.keys().buyers(coupon, 7)];
    let _: i64 = app.redis(&["UNLINK", &gone[0], &gone[1]]).await;
    assert_eq!(shards_there(&app, coupon).await, 3_124);
    app.app.archive.pass().bounded().await.expect("both stores answer");
    assert_eq!(shards_there(&app, coupon).await, 0);
    let repeat = app.claim(1, coupon).await;
    assert_eq!((repeat.refusal(), repeat.order_id()), ((409, "already_claimed"), order));
}

/// Runs `lua/make_shards.lua` for these shards, as a load of this id does.
async fn make_shards(app: &TestApp, coupon: CouponId, load: &str, shards: &[String]) -> String {
    let script = include_str!("../../../lua/make_shards.lua");
    let key = app.keys().coupon(coupon);
    let lane = app.keys().lane(coupon.lane());
    let count = (2 + shards.len()).to_string();
    let mut words = vec!["EVAL", script, &count, &key, &lane];
    words.extend(shards.iter().map(String::as_str).chain([load]));
    app.redis(&words).await
}

#[tokio::test]
async fn a_load_that_was_cut_off_is_finished_before_the_first_claim() {
    let app = TestApp::start().await;
    for made in [0, 50, 157] {
        let coupon = only_in_postgres(&app, UNITS).await;
        let script = include_str!("../../../lua/load_sale.lua");
        let values = ["a load", "0", "9999999999999", "5000", "1", "1", "157", "active", ""];
        let key = app.keys().coupon(coupon);
        let lane = app.keys().lane(coupon.lane());
        let _: (String, String, u32) =
            app.redis(&[&["EVAL", script, "2", &key, &lane], &values[..]].concat()).await;
        let shards = app.shard_keys(coupon).await;
        if made > 0 {
            assert_eq!(make_shards(&app, coupon, "a load", &shards[..made]).await, "MADE");
        }
        assert_eq!(shards_there(&app, coupon).await, made);
        let told = claim_all(&app.app, coupon, 1..=400).await;
        assert!(told.iter().all(|told| matches!(told, Some((_, true)))));
        assert_eq!(shards_there(&app, coupon).await, 157);
        assert!(app.number("SELECT count(*) FROM flash_sales WHERE load_id = 'a load'").await > 0);
    }
    app.execute(
        "UPDATE flash_sales SET opens_at = 'epoch', closes_at = to_timestamp(9999999999.999)",
    )
    .await;
    app.write_orders().await;
}

#[tokio::test]
async fn whoever_slept_through_the_load_makes_no_shard_of_an_open_sale() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(UNITS).await;
    let shards = app.shard_keys(coupon).await;
    let [load] = app.in_redis(coupon, ["load"]).await;
    let _: i64 = app.redis(&["DEL", &shards[3]]).await;
    assert_eq!(make_shards(&app, coupon, &load, &shards).await, "PRESENT");
    assert_eq!(make_shards(&app, coupon, "another load", &shards).await, "MISSING");
    assert_eq!(shards_there(&app, coupon).await, 156, "a loss was hidden");
    app.expect_disagreements();
}

#[tokio::test]
async fn two_processes_load_a_sale_of_many_shards_together() {
    let app = TestApp::start().await;
    let another = app.another_instance().await;
    let coupon = only_in_postgres(&app, 100_000).await;
    let ahead = limits::WARM_UP_AHEAD;
    let (here, there, claimed) = tokio::join!(
        app.app.loader.pass(ahead),
        another.loader.pass(ahead),
        claim_all(&another, coupon, 1..=200),
    );
    assert!(here.is_ok() && there.is_ok());
    assert!(claimed.iter().all(|told| matches!(told, Some((_, true)))));
    assert_eq!(shards_there(&app, coupon).await, 3_125);
    app.write_orders().await;
}
