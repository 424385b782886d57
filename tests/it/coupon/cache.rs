//! Coupons that are kept in memory: no reader is shown an older one than promised, and no crowd costs the stores more
//! than a few questions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flash_sale::app::{App, start_housekeeping};
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::sale::coupon::input::CouponEdit;
use flash_sale::sale::coupon::rules::Change;
use flash_sale::sale::ids::CouponId;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use crate::support::{OwnServers, TestApp, bounded, command_calls, eventually};

/// Readers of a hot coupon.
const READERS: usize = 50;
/// Duration of the crowd.
const CROWD: Duration = Duration::from_secs(3);
/// Questions to the stores in a second, for one coupon and in one process: five for the units left, the row, and the newest
/// coupon.
const QUESTIONS_MAX: i64 = 8;

/// The coupon as this process shows it.
async fn shown(process: &App, coupon: CouponId) -> Option<Value> {
    let shown = process.coupons.cache.show(coupon).await.expect("both stores answer");
    shown.map(|shown| serde_json::from_slice(&shown.body).expect("it is JSON"))
}

async fn title(process: &App, coupon: CouponId) -> String {
    shown(process, coupon).await.expect("it is there")["title"].as_str().expect("text").to_owned()
}

fn titled(title: &str) -> Change {
    Change::Edit(CouponEdit { title: Some(title.into()), ..CouponEdit::default() })
}

/// Reads the app's coupon over HTTP.
async fn get(app: &TestApp, coupon: CouponId) -> Value {
    app.get(&format!("/v1/coupons/{coupon}"), "").await.body
}

/// A process on the app's data, and scans of the table `coupons` before it began. The app has left Postgres, so that
/// each further scan is that of the process.
async fn only_reader(app: &TestApp) -> (Arc<App>, i64) {
    app.expect_disagreements();
    app.app.stores.pool.close().await;
    let before = scans(app).await;
    (app.another_instance().await, before)
}

/// Scans of the table `coupons`, once all sessions that have made one have ended, and have reported it by that.
async fn scans(app: &TestApp) -> i64 {
    let mut connection =
        PgConnection::connect(&app.database_url()).await.expect("Postgres answers");
    let sessions = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    bounded("the sessions end", async {
        while sqlx::query_scalar::<_, i64>(sessions)
            .fetch_one(&mut connection)
            .await
            .expect("it counts")
            > 0
        {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let scans = "SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relname = 'coupons'";
    let scans = sqlx::query_scalar(scans).fetch_one(&mut connection).await.expect("it counts");
    connection.close().await.expect("Postgres answers");
    scans
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_coupon_costs_a_few_questions_a_second_however_many_read_it() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    let coupon = app.create_flash(5).await;
    let (reader, before) = only_reader(&app).await;
    let _: String = app.redis(&["CONFIG", "RESETSTAT"]).await;
    let reads = AtomicU64::default();
    let end = Instant::now() + CROWD;
    let began = Instant::now();
    let read = async || {
        while Instant::now() < end {
            assert_eq!(shown(&reader, coupon).await.expect("it is there")["sale"]["left"], 5);
            reads.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    };
    join_all((0..READERS).map(|_| read())).await;
    let seconds = began.elapsed().as_secs_f64();
    let to_redis = command_calls(&app, "hmget").await;
    reader.stores.pool.close().await;
    let to_postgres = scans(&app).await - before;

    let reads = i64::try_from(reads.into_inner()).expect("not so many");
    // In the first moment the newest id, the row and the units left are asked for.
    let questions_max = QUESTIONS_MAX * seconds.floor() as i64 + 3 + QUESTIONS_MAX;
    assert!(reads > 10 * questions_max, "{reads} reads are no crowd");
    assert!(
        to_redis + to_postgres <= questions_max,
        "{to_redis} questions to Redis and {to_postgres} to Postgres in {seconds} s, for {reads} reads"
    );
    assert!(to_redis > 0 && to_postgres > 0, "nothing is counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_readers_of_an_expired_coupon_ask_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let (reader, before) = only_reader(&app).await;
    assert!(shown(&reader, coupon).await.is_some());
    sleep(limits::COUPON_SHOWN_MAX).await;

    // Postgres answers no reader before all have come.
    let mut holder = PgConnection::connect(&app.database_url()).await.expect("Postgres answers");
    let lock = "BEGIN; LOCK TABLE coupons IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut holder).await.expect("Postgres answers");
    let come = AtomicU64::default();
    let began = Instant::now();
    let readers = join_all((0..10_000).map(async |_| {
        come.fetch_add(1, Ordering::Relaxed);
        shown(&reader, coupon).await.is_some()
    }));
    let let_go = async {
        eventually("all have come", async || come.load(Ordering::Relaxed) == 10_000).await;
        sqlx::raw_sql("COMMIT").execute(&mut holder).await.expect("Postgres answers");
    };
    let (told, ()) = bounded("they are answered", async { tokio::join!(readers, let_go) }).await;
    assert!(told.into_iter().all(|is_there| is_there));
    holder.close().await.expect("Postgres answers");
    reader.stores.pool.close().await;
    // At first the newest id and the row were asked for, and now once more, for all. Where the crowd takes a second to come,
    // the answers are too old for those that came last, and one of them asks for the others.
    let seconds = began.elapsed().as_secs().cast_signed();
    let queries = scans(&app).await - before;
    assert!((3..=5 + 2 * seconds).contains(&queries), "{queries} queries in {seconds} s");
}

#[tokio::test]
async fn a_hundred_thousand_ids_that_are_made_up_cost_next_to_nothing() {
    let app = TestApp::with_lanes(4).await;
    let mut coupon = app.create_regular().await;
    for _ in 0..4 {
        coupon = app.create_regular().await;
    }
    let (reader, before) = only_reader(&app).await;
    let began = Instant::now();
    // In a row behind a known one, and all over the range.
    let behind = (1..=50_000).map(|step| coupon.get() + step);
    let mixed =
        |n: i64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed()) & i64::MAX).max(1);
    for id in behind.chain((1..=50_000).map(mixed)) {
        let id = CouponId::new(id).expect("it is positive");
        assert_eq!(shown(&reader, id).await, None, "{id}");
    }
    assert!(shown(&reader, coupon).await.is_some());
    // The newest coupon is asked for anew all the time, which counts on a slow machine.
    let renewals = began.elapsed().as_millis() / limits::NEWEST_COUPON_MEMORY.as_millis();
    reader.stores.pool.close().await;
    let queries = u128::try_from(scans(&app).await - before).expect("they only grow");
    assert!(queries <= 10.max(4 + renewals), "{queries} queries for 100,000 ids");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_makes_a_change_shows_it_at_once() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let done = AtomicBool::default();
    // Each of these may have asked the stores just before a change, and have its answer after it.
    let crowd = join_all((0..8).map(async |_| {
        while !done.load(Ordering::Relaxed) {
            shown(&app.app, coupon).await.expect("it is there");
            app.app.coupons.cache.forget();
            tokio::task::yield_now().await;
        }
    }));
    let changes = async {
        for round in 1..=20 {
            let edited = app.edit(coupon, &json!({ "title": format!("t{round}") })).await;
            assert_eq!(edited.status, 200);
            assert_eq!(get(&app, coupon).await, edited.body, "edit {round}");
            let restocked = app.restock(coupon, 1, &format!("k{round}")).await;
            assert_eq!(restocked.body["sale"]["left"], 5 + round);
            assert_eq!(get(&app, coupon).await, restocked.body, "restock {round}");
        }
        done.store(true, Ordering::Relaxed);
    };
    let ((), _) = tokio::join!(changes, crowd);

    // Without a reader that forgets: the coupon has been shown a moment ago.
    for title in ["a", "b"] {
        get(&app, coupon).await;
        app.edit(coupon, &json!({ "title": title })).await;
        assert_eq!(get(&app, coupon).await["title"], title);
        get(&app, coupon).await;
        app.r#move(coupon, if title == "a" { "pause" } else { "end" }).await;
        let state = if title == "a" { "paused" } else { "ended" };
        assert_eq!(get(&app, coupon).await["state"], state);
    }
}

#[tokio::test]
async fn a_new_coupon_is_shown_at_once_though_its_id_was_asked_for_before() {
    for lanes in [1, 4] {
        let app = TestApp::with_lanes(lanes).await;
        let mut sequence = app.create_regular().await.sequence();
        for _ in 0..3 {
            sequence += 1;
            let next = CouponId::compose(sequence, lanes);
            for _ in 0..2 {
                let early = app.get(&format!("/v1/coupons/{next}"), "").await;
                assert_eq!(early.refusal(), (404, "coupon_not_found"));
            }
            assert_eq!(app.create_flash(1).await, next);
            assert_eq!(get(&app, next).await["id"], next.to_string());
        }
    }
}

#[tokio::test]
async fn a_change_by_another_process_is_seen_without_a_message() {
    let app = TestApp::start().await;
    // This process doesn't listen: every message to it is lost.
    let other = app.another_instance().await;
    let sale = app.create_flash(5).await;
    for coupon in [sale, app.create_regular().await] {
        for (round, applied) in [true, false, true].into_iter().enumerate() {
            assert_ne!(title(&other, coupon).await, format!("t{round}"));
            if applied {
                app.edit(coupon, &json!({ "title": format!("t{round}") })).await;
            } else {
                app.decide(coupon, titled(&format!("t{round}"))).await.expect("it may");
            }
            let seen = async || title(&other, coupon).await == format!("t{round}");
            eventually("readers see the change", seen).await;
        }
    }

    // A coupon of a creation that was still on its way when a newer one was there already.
    app.execute("SELECT nextval('coupon_sequence')").await;
    let newest = app.create_regular().await;
    let late = CouponId::compose(newest.sequence() - 1, 1);
    eventually("the newest is shown", async || shown(&other, newest).await.is_some()).await;
    assert_eq!(shown(&other, late).await, None);
    let insert = "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents, currency)
         SELECT $, kind, title, sub_title, rules, pay_cents, value_cents, currency FROM coupons ORDER BY id DESC LIMIT 1";
    app.execute(&insert.replace('$', &late.to_string())).await;
    eventually("it is shown", async || shown(&other, late).await.is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_hears_of_a_change_shows_it_before_its_copy_is_old() {
    let app = TestApp::start().await;
    let other = app.another_instance().await;
    start_housekeeping(&other);
    let channel = app.keys().changes_channel();
    eventually("it listens", async || {
        let listeners: (String, i64) = app.redis(&["PUBSUB", "NUMSUB", &channel]).await;
        listeners.1 > 0
    })
    .await;
    let coupon = app.create_regular().await;
    // On a busy machine the message may come later than the copy is read again, but not each time: a regular coupon has
    // nothing in Redis that could tell of the change.
    let mut early = false;
    for round in 0..20 {
        let read_at = Instant::now();
        title(&other, coupon).await;
        app.edit(coupon, &json!({ "title": format!("t{round}") })).await;
        eventually("it is shown", async || title(&other, coupon).await == format!("t{round}"))
            .await;
        early |= read_at.elapsed() < limits::COUPON_ROW_MEMORY;
    }
    assert!(early, "no message has been heard");
}

#[tokio::test]
async fn the_units_left_are_those_of_200_ms_ago_at_most() {
    let app = TestApp::start().await;
    let other = app.another_instance().await;
    let coupon = app.create_flash(9).await;
    let left = async || shown(&other, coupon).await.expect("it is there")["sale"]["left"].clone();
    for buyer in 1..=3 {
        left().await;
        assert_eq!(app.claim(buyer, coupon).await.status, 202);
        sleep(limits::LEFT_SHOWN_MAX).await;
        assert_eq!(left().await, 9 - buyer);
    }
    // More units than the copy of the coupon has: both are read again.
    app.restock(coupon, 4, "k").await;
    sleep(limits::LEFT_SHOWN_MAX).await;
    let sale = &shown(&other, coupon).await.expect("it is there")["sale"];
    assert_eq!((&sale["total"], &sale["left"]), (&json!(13), &json!(10)));
}
