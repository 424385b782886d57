//! The shards of a sale's buyers: none sells a unit twice, and the loss of a shard is noticed.

use flash_sale::app::App;
use flash_sale::claim::outcome::ClaimOutcome;
use flash_sale::store::ids::{CouponId, OrderId};
use futures_util::future::join_all;

use crate::coupon::load::only_in_postgres;
use crate::support::{TestApp, user};

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
