//! Looks at lanes at rest: which of them are compared, and what these prove of the others.

use std::str::FromStr;

use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::sale::ids::{CouponId, Lane};
use private_servers::testing::RedisServer;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

use crate::faults::recovery::start_with;
use crate::recovery::rolled_back::{keep_memory, put_memory_back};
use crate::support::lines::number;
use crate::support::{TestApp, bounded, later};

const LANES: usize = 24;
const WENT_BACK: &str = "SELECT count(*) FROM recoveries WHERE reason = 'Redis went back in time'";

/// An app with a sale in each lane, and all lanes at rest.
async fn at_rest() -> (RedisServer, TestApp) {
    let (server, app) = start_with(&["--lanes", &LANES.to_string()]).await;
    app.load_sales_of_lanes(LANES).await;
    look(&app.app, 3).await;
    (server, app)
}

/// Looks of this process, each when it is due.
async fn look(app: &App, looks: u32) {
    for _ in 0..looks {
        later(limits::BEAT_PERIOD).await;
        bounded("a look", app.keeper.tick()).await;
    }
}

/// Claims of the sale in each lane. Returns the sales.
async fn claim_in_each(app: &TestApp) -> Vec<CouponId> {
    let coupons = app.numbers("SELECT coupon_id FROM flash_sales").await;
    let coupons = coupons.into_iter().map(|id| CouponId::new(id).expect("a positive number"));
    let coupons: Vec<CouponId> = coupons.collect();
    for coupon in &coupons {
        assert_eq!(app.claim(1, *coupon).await.status, 202);
    }
    coupons
}

async fn beats(app: &TestApp) -> Vec<i64> {
    app.numbers("SELECT beat FROM lane_beats ORDER BY lane").await
}

#[tokio::test]
async fn a_lane_at_rest_is_compared_in_its_turn_and_when_a_claim_has_it_awake() {
    let (_server, app) = at_rest().await;
    let before = beats(&app).await;
    look(&app.app, limits::BEAT_REST_LOOKS).await;
    let raised: Vec<i64> =
        beats(&app).await.iter().zip(before).map(|(now, was)| now - was).collect();
    assert!(raised.iter().all(|beats| *beats >= 1), "{raised:?}");
    let most = LANES + limits::BEAT_REST_LOOKS as usize * limits::BEAT_WITNESSES;
    assert!(raised.iter().sum::<i64>() <= most as i64, "{raised:?}");

    // The next look notes what was promised, in whichever lane.
    claim_in_each(&app).await;
    look(&app.app, 1).await;
    let promised = "SELECT count(*) FROM lane_beats WHERE promised = 1";
    assert_eq!(usize::try_from(app.number(promised).await), Ok(LANES));
}

/// Most lanes have the beat that was noted, because none has come since the moment to which Redis went back.
#[tokio::test]
async fn a_memory_that_went_back_behind_the_beats_of_some_lanes_closes_all() {
    let (_server, app) = at_rest().await;
    let other = app.another_instance().await;
    for (round, keeper) in [&app.app, &other].into_iter().enumerate() {
        keep_memory(&app).await;
        look(&app.app, 2).await;
        put_memory_back(&app).await;
        let before = round * LANES;
        assert_eq!(usize::try_from(app.number(WENT_BACK).await), Ok(before));
        app.app.keeper.give_up().await;
        look(keeper, 1).await;
        assert_eq!(usize::try_from(app.number(WENT_BACK).await), Ok(before + LANES));
        assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state <> 'open'").await, 0);
        keeper.keeper.give_up().await;
        look(&app.app, 3).await;
    }
    assert_eq!(usize::try_from(app.number("SELECT count(*) FROM recoveries").await), Ok(2 * LANES));
}

#[tokio::test]
async fn a_lane_at_rest_that_is_gone_or_has_no_log_counts_as_awake_and_is_closed() {
    let (_server, app) = at_rest().await;
    let coupons = claim_in_each(&app).await;
    app.write_orders().await;
    look(&app.app, 3).await;
    // Neither in its turn nor a witness, whichever of them are.
    let before = beats(&app).await;
    look(&app.app, 1).await;
    let resting = beats(&app).await.into_iter().zip(before).map(|(now, was)| now == was);
    let resting: Vec<CouponId> = coupons
        .into_iter()
        .filter(|coupon| resting.clone().nth(coupon.lane().get() as usize) == Some(true))
        .collect();
    let keys = app.keys();
    let lost = [keys.lane(resting[0].lane()), app.log(resting[1].lane())];
    for (closed, key) in lost.iter().enumerate() {
        let _: i64 = app.redis(&["DEL", key]).await;
        look(&app.app, 1).await;
        let recoveries = app.number("SELECT count(*) FROM recoveries").await;
        assert_eq!(usize::try_from(recoveries), Ok(closed + 1), "{key}");
    }
    assert_eq!(app.number(WENT_BACK).await, 0);
}

/// That Redis went back is the reason, and the lane is closed once.
#[tokio::test]
async fn a_look_closes_an_unproven_lane_once_though_its_log_is_gone_too() {
    let (_server, app) = at_rest().await;
    let coupons = claim_in_each(&app).await;
    app.write_orders().await;
    look(&app.app, 3).await;
    keep_memory(&app).await;
    look(&app.app, 2).await;
    put_memory_back(&app).await;
    for coupon in coupons {
        let deleted: i64 = app.redis(&["DEL", &app.log(coupon.lane())]).await;
        assert_eq!(deleted, 1);
    }
    look(&app.app, 1).await;
    assert_eq!(usize::try_from(app.number(WENT_BACK).await), Ok(LANES));
    assert_eq!(usize::try_from(app.number("SELECT count(*) FROM recoveries").await), Ok(LANES));
    assert_eq!(number(&app.app, "flash_sale_redis_data_lost_total"), 0.0, "no log is looked for");
}

/// The other witnesses tell that Redis has what it had.
#[tokio::test]
async fn a_lane_that_went_back_alone_is_closed_alone() {
    let (_server, app) = at_rest().await;
    let latest = "SELECT lane::bigint FROM lane_beats ORDER BY beat_at DESC, lane LIMIT 1";
    let lane = app.number(latest).await;
    let lane = Lane::numbered(i32::try_from(lane).expect("below 1,024"));
    let set: i64 = app.redis(&["HSET", &app.keys().lane(lane), "beat", "0"]).await;
    assert_eq!(set, 0);
    look(&app.app, 1).await;
    assert_eq!(app.number(WENT_BACK).await, 1);
    assert_eq!(app.number("SELECT count(*) FROM recoveries").await, 1);
}

/// Its claims of the lost time would be forgotten, were it believed once the witnesses are closed.
#[tokio::test]
async fn a_lane_without_a_proof_whose_row_takes_no_change_holds_up_no_other_and_stays_doubted() {
    let (_server, app) = at_rest().await;
    keep_memory(&app).await;
    look(&app.app, 2).await;
    put_memory_back(&app).await;
    let lane =
        app.number("SELECT lane::bigint FROM lane_beats ORDER BY beat_at, lane LIMIT 1").await;
    app.refuse("UPDATE", "lanes", &format!("NEW.lane = {lane}"), "23514").await;
    for _ in 0..2 {
        look(&app.app, 1).await;
        assert_eq!(usize::try_from(app.number(WENT_BACK).await), Ok(LANES - 1));
    }
    app.accept("lanes").await;
    // Another process, which has seen none of that.
    let other = app.another_instance().await;
    app.app.keeper.give_up().await;
    look(&other, 1).await;
    other.keeper.give_up().await;
    assert_eq!(usize::try_from(app.number(WENT_BACK).await), Ok(LANES));
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state <> 'open'").await, 0);
    look(&app.app, 3).await;
    assert_eq!(usize::try_from(app.number("SELECT count(*) FROM recoveries").await), Ok(LANES));
}

/// Looks once, and says whether all lanes were compared.
async fn compares_all(app: &TestApp, keeper: &App) -> bool {
    let before = beats(app).await;
    look(keeper, 1).await;
    beats(app).await.into_iter().zip(before).all(|(now, was)| now == was + 1)
}

#[tokio::test]
async fn a_suspicion_begins_a_round_of_all_lanes() {
    let (_server, app) = at_rest().await;
    assert!(!compares_all(&app, &app.app).await);
    app.app.lanes.suspect_all();
    assert!(compares_all(&app, &app.app).await);
    assert!(!compares_all(&app, &app.app).await, "each suspicion is followed once");
}

#[tokio::test]
async fn no_lane_rests_while_postgres_can_not_tell_of_older_processes() {
    let (_server, app) = at_rest().await;
    app.execute(
        "CREATE SCHEMA nearer;
         CREATE VIEW nearer.pg_stat_activity AS SELECT * FROM pg_catalog.pg_stat_activity;
         DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET search_path = nearer, pg_catalog, public', current_database());
         END $$",
    )
    .await;
    let keeper = app.another_instance().await;
    app.execute(
        "DROP VIEW nearer.pg_stat_activity;
         CREATE VIEW nearer.pg_stat_activity AS SELECT 1 AS nothing",
    )
    .await;
    app.app.keeper.give_up().await;
    for _ in 0..4 {
        assert!(compares_all(&app, &keeper).await);
    }
    app.execute("DROP SCHEMA nearer CASCADE").await;
}

/// An older process compares each lane with its own note alone, which has to be young then.
#[tokio::test]
async fn no_lane_rests_while_a_process_of_an_older_version_may_keep_the_lanes_next() {
    let (_server, app) = at_rest().await;
    let options = PgConnectOptions::from_str(&app.database_url()).expect("a valid URL");
    let older = options.application_name("flash-sale");
    let older = PgConnection::connect_with(&older).await.expect("Postgres accepts it");
    for _ in 0..2 {
        assert!(compares_all(&app, &app.app).await);
    }
    older.close().await.expect("Postgres answers");
    let before = beats(&app).await;
    look(&app.app, 2).await;
    let rest = beats(&app).await.into_iter().zip(before).any(|(now, was)| now == was);
    assert!(rest, "they rest again");
}
