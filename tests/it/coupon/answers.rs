//! The load of a sale, and changes of it, by a Redis whose scripts are played: the meaning of each reply.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::coupon::create::Creation;
use flash_sale::sale::coupon::input::{CouponEdit, Restock};
use flash_sale::sale::coupon::model::CouponState;
use flash_sale::sale::coupon::rules::Change;
use flash_sale::sale::coupon::stock;
use flash_sale::sale::ids::CouponId;
use serde_json::{Value, json};

use super::load::only_in_postgres;
use super::new_coupon;
use crate::support::lines::{Lines, number};
use crate::support::played::{Play, Played, Still, hash, list, text};
use crate::support::{TestApp, bounded, eventually, lane, now};

const LOST: &str = "Err(DataLost(";
const RECOVERING: &str = "Err(Recovering(";

/// A process on the app's data, of which one script is played.
async fn process(
    app: &TestApp,
    script: &str,
    play: impl Fn() -> Play + Send + Sync + 'static,
) -> (Played, Arc<App>) {
    let script = hash(script);
    let played = Played::before(app.redis_url(), move |command| match command {
        [_, of, ..] if *of == script => play(),
        _ => Play::Real,
    })
    .await;
    let process = played.process(app).await;
    (played, process)
}

#[track_caller]
fn assert_told(told: &impl Debug, expected: &str, case: &str) {
    let told = format!("{told:?}");
    assert!(told.starts_with(expected), "{case}: {told}, not {expected}");
}

#[tokio::test]
async fn open_loads_a_sale_or_raises_the_alarm_by_its_reply() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    let script = include_str!("../../../lua/open_sale.lua");
    let (played, process) = process(&app, script, || Play::Later).await;
    for (reply, expected, is_suspected) in [
        ("OPENED", "Ok(Loaded)", false),
        ("PRESENT", "Ok(Loaded)", false),
        ("MISSING", LOST, true),
        ("BEHIND", LOST, true),
        ("RECOVERING", RECOVERING, false),
        ("WHAT", "Err(UnknownReply(\"WHAT\"))", false),
    ] {
        process.lanes.take_suspected_sales();
        process.lanes.take_suspicion();
        played.answer(text(reply));
        let told = bounded("an answer", process.loader.resolve_now(coupon)).await;
        assert_told(&told, expected, reply);
        let suspected = process.lanes.take_suspected_sales().contains(&coupon);
        assert_eq!(suspected, is_suspected, "{reply}");
        let looks = process.lanes.take_suspicion();
        assert_eq!(looks, is_suspected || reply == "RECOVERING", "{reply}");
    }
    // The sale has been archived since Postgres was asked.
    let change = async {
        eventually("the script is asked", async || played.asked().len() == 7).await;
        app.execute("UPDATE flash_sales SET archived_at = now()").await;
        played.answer(text("MISSING"));
    };
    let both = async { tokio::join!(process.loader.resolve_now(coupon), change) };
    let (told, ()) = bounded("an answer", both).await;
    assert_told(&told, "Ok(Archived)", "archived meanwhile");
}

#[tokio::test]
async fn make_shards_goes_on_or_not_by_its_reply() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let script = include_str!("../../../lua/make_shards.lua");
    let (played, process) = process(&app, script, || Play::Later).await;
    let large = 32 * 1_000 + 1;
    for (units, replies, expected, is_loaded) in [
        (5, &["MADE"][..], "Ok(Loaded)", true),
        (5, &["PRESENT"], "Ok(Loaded)", true),
        (large, &["MADE", "MADE"], "Ok(Loaded)", true),
        (large, &["PRESENT"], "Ok(Loaded)", true),
        (large, &["MADE", "PRESENT"], "Ok(Loaded)", true),
        (5, &["MISSING"], LOST, false),
        (large, &["MADE", "MISSING"], LOST, false),
        (5, &["RECOVERING"], RECOVERING, false),
        (5, &["WHAT"], "Err(UnknownReply(\"WHAT\"))", false),
    ] {
        let coupon = only_in_postgres(&app, units).await;
        played.take_asked();
        replies.iter().for_each(|reply| played.answer(text(reply)));
        played.answer(text("one too many"));
        let told = bounded("an answer", process.loader.resolve_now(coupon)).await;
        assert_told(&told, expected, replies[0]);
        let asked = played.take_asked();
        let keys: Vec<usize> = asked.iter().map(|it| it[2].parse().expect("keys")).collect();
        let expected = if units == 5 { &[3][..] } else { &[1_002, 3][..replies.len()] };
        assert_eq!(keys, expected, "{replies:?}");
        let stored = app.stored_sale(coupon).await.stage;
        assert_eq!(stored != stock::Stage::Unloaded, is_loaded, "{replies:?}");
        played.forget_answers();
    }
}

/// A load that was lost in between is begun anew.
#[tokio::test]
async fn note_load_needs_the_epoch_that_the_load_began_in() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let script = include_str!("../../../lua/make_shards.lua");
    let (played, process) = process(&app, script, || Play::Later).await;
    let coupon = only_in_postgres(&app, 5).await;
    process.lanes.take_suspicion();
    let change = async {
        eventually("shards are made", async || played.asked().len() == 1).await;
        app.execute("UPDATE lanes SET epoch = 2").await;
        played.answer(text("MADE"));
    };
    let both = async { tokio::join!(process.loader.resolve_now(coupon), change) };
    let (told, ()) = bounded("an answer", both).await;
    assert_told(&told, RECOVERING, "another epoch");
    assert!(process.lanes.take_suspicion());
    assert_eq!(app.stored_sale(coupon).await.stage, stock::Stage::Unloaded);
}

/// The lane has another epoch than the process knows, which it learns at once.
#[tokio::test]
async fn load_that_finds_another_epoch_refreshes_the_lanes() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = only_in_postgres(&app, 5).await;
    let script = include_str!("../../../lua/load_sale.lua");
    let refused = || Play::Reply(list(&["", ""]));
    let (played, process) = process(&app, script, refused).await;
    app.execute("UPDATE lanes SET epoch = 2").await;
    assert_eq!(process.lanes.epoch(lane()), 1);
    process.lanes.take_suspicion();
    let told = bounded("an answer", process.loader.resolve_now(coupon)).await;
    assert_told(&told, RECOVERING, "another epoch");
    assert_eq!((process.lanes.epoch(lane()), process.lanes.take_suspicion()), (2, true));
    assert_eq!(played.asked().len(), 1);
}

/// A sale that can't be loaded for its lane is tried once in each run, and is not postponed.
#[tokio::test]
async fn pass_tries_each_sale_that_opens_soon_once_while_its_lane_recovers() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    for _ in 0..3 {
        only_in_postgres(&app, 5).await;
    }
    let script = include_str!("../../../lua/load_sale.lua");
    let (played, process) = process(&app, script, || Play::Reply(list(&["", ""]))).await;
    let loaded = process.loader.pass(Duration::from_secs(60));
    let loaded = bounded("the end of the pass", loaded).await.expect("both stores answer");
    assert_eq!((loaded, played.asked().len()), (0, 3));
    assert!(app.postponed().await.is_empty());
}

#[tokio::test]
async fn pass_applies_each_change_once_while_its_lane_recovers() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    for _ in 0..3 {
        app.create_flash(5).await;
    }
    let script = include_str!("../../../lua/apply_coupon.lua");
    let (played, process) = process(&app, script, || Play::Reply(text("RECOVERING"))).await;
    let applied = process.coupon_changes.pass();
    let applied = bounded("the end of the pass", applied).await.expect("both stores answer");
    assert_eq!((applied, played.asked().len()), (0, 3));
    assert!(app.postponed().await.is_empty());
}

#[tokio::test]
async fn apply_values_notes_the_revision_or_says_why_not_by_the_reply() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    app.execute("UPDATE coupons SET revision = 7").await;
    let script = include_str!("../../../lua/apply_coupon.lua");
    let (played, process) = process(&app, script, || Play::Later).await;
    let values = app.stored_sale(coupon).await;
    for (reply, expected, revision) in [
        ("APPLIED", "Ok(true)", 7),
        ("PRESENT", "Ok(true)", 7),
        ("LOADING", "Ok(false)", 0),
        ("MISSING", LOST, 0),
        ("STALE", "Err(Stale(", 0),
        ("RECOVERING", RECOVERING, 0),
        ("WHAT", "Err(UnknownReply(\"WHAT\"))", 0),
    ] {
        app.execute("UPDATE flash_sales SET applied_revision = 0").await;
        played.answer(text(reply));
        let told = bounded("an answer", process.coupon_changes.apply_values(coupon, &values)).await;
        assert_told(&told, expected, reply);
        let applied = app.number("SELECT applied_revision FROM flash_sales").await;
        assert_eq!(applied, revision, "{reply}");
    }
    // The second half of a change asks Redis again after the load.
    played.take_asked();
    for (replies, expected) in [
        (&["APPLIED"][..], "Ok(true)"),
        (&["LOADING", "APPLIED"], "Ok(true)"),
        (&["LOADING", "LOADING"], "Ok(false)"),
        (&["LOADING", "STALE"], "Err(Stale("),
    ] {
        replies.iter().for_each(|reply| played.answer(text(reply)));
        let told = bounded("an answer", process.coupon_changes.apply(coupon)).await;
        assert_told(&told, expected, replies[0]);
        assert_eq!(played.take_asked().len(), replies.len(), "{replies:?}");
    }
    // Nothing of a sale can be applied before it is loaded.
    let unloaded = only_in_postgres(&app, 5).await;
    let values = app.stored_sale(unloaded).await;
    let told = bounded("an answer", process.coupon_changes.apply_values(unloaded, &values)).await;
    assert_told(&told, "Ok(false)", "a sale that is not loaded");
    assert_eq!(played.take_asked().len(), 0);
}

/// A sale that is archived while its load is resumed: Postgres alone answers for it then.
#[tokio::test]
async fn apply_that_resumes_a_load_leaves_a_sale_that_is_archived_meanwhile() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    let script = include_str!("../../../lua/apply_coupon.lua");
    let (played, process) = process(&app, script, || Play::Later).await;
    let meanwhile = async {
        eventually("the script is asked", async || played.asked().len() == 1).await;
        app.execute("UPDATE flash_sales SET archived_at = now()").await;
        played.answer(text("LOADING"));
    };
    let both = async { tokio::join!(process.coupon_changes.apply(coupon), meanwhile) };
    let (told, ()) = bounded("an answer", both).await;
    assert_told(&told, "Ok(true)", "archived meanwhile");
    assert_eq!(played.asked().len(), 1);
}

/// Postgres alone answers for these.
#[tokio::test]
async fn apply_asks_redis_about_no_coupon_that_is_archived_regular_or_unknown() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (archived, regular) = (app.create_flash(5).await, app.create_regular().await);
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    let unknown = CouponId::compose(regular.sequence() + 1_000, 1);
    let script = include_str!("../../../lua/apply_coupon.lua");
    let (played, process) = process(&app, script, || Play::Reply(text("STALE"))).await;
    for coupon in [archived, regular, unknown] {
        let told = bounded("an answer", process.coupon_changes.apply(coupon)).await;
        assert_told(&told, "Ok(true)", &coupon.to_string());
    }
    assert_eq!(played.asked().len(), 0);
}

/// A sale that Redis has lost is told the staff, and a Redis that fails, or can't yet, makes a change a decided one.
#[tokio::test]
async fn change_is_decided_or_changed_by_the_reply() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    let script = include_str!("../../../lua/apply_coupon.lua");
    let (played, process) = process(&app, script, || Play::Later).await;
    for (units, (reply, expected)) in (1..).zip([
        (text("APPLIED"), "Ok(Changed("),
        (text("RECOVERING"), "Ok(Decided("),
        (text("STALE"), "Ok(Decided("),
        (text("MISSING"), LOST),
        ("-OOM it says\r\n".to_owned(), "Ok(Decided("),
    ]) {
        played.answer(reply.as_str());
        let restock = Change::Restock(Restock { key: format!("k{units}"), units });
        let by = Actor::command_line();
        let told = bounded("an answer", process.coupon_changes.change(coupon, restock, &by)).await;
        assert_told(&told, expected, &reply);
    }
    assert_eq!(app.number("SELECT total FROM flash_sales").await, 5 + 1 + 2 + 3 + 4 + 5);
}

/// The coupon as it is shown.
async fn shown(app: &TestApp, coupon: CouponId) -> Value {
    let shown = bounded("a coupon", app.app.coupons.cache.show(coupon)).await;
    let shown = shown.expect("both stores answer").expect("it is there");
    serde_json::from_slice(&shown.body).expect("JSON")
}

/// The first half of a change ends the memory of the older words.
#[tokio::test]
async fn decide_forgets_what_was_shown_before() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let _still = Still::begin();
    assert_eq!(shown(&app, coupon).await["title"], "t");
    let edit = CouponEdit { title: Some("new".to_owned()), ..CouponEdit::default() };
    app.decide(coupon, Change::Edit(edit)).await.expect("it may");
    assert_eq!(shown(&app, coupon).await["title"], "new");
}

/// Units that were shown between the two halves of a change may be others at its end.
#[tokio::test]
async fn change_forgets_what_was_shown_before_its_end() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    let left = async || shown(&app, coupon).await["sale"]["left"].clone();
    // The second half notes the revision in this row.
    let holder = app.holding("SELECT FROM flash_sales FOR UPDATE").await;
    let meanwhile = async {
        app.a_session_waits_for_a_row().await;
        let still = Still::begin();
        assert_eq!(left().await, 5);
        let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", "6"]).await;
        assert_eq!(left().await, 5, "it was shown a moment ago");
        holder.commit().await.expect("Postgres answers");
        still
    };
    let (pause, by) = (Change::Move(CouponState::Paused, None), Actor::command_line());
    let change = bounded("an answer", app.app.coupon_changes.change(coupon, pause, &by));
    let (told, _still) = tokio::join!(change, meanwhile);
    assert_told(&told, "Ok(Changed(", "both halves");
    assert_eq!(left().await, 6);
}

/// Its first claim tries again to load a sale that could not be loaded.
#[tokio::test]
async fn create_tells_the_other_processes_of_each_coupon_and_loads_those_with_a_sale() {
    const NOT_LOADED: &str = "a new sale could not be loaded; its first claim will try again";
    let app = TestApp::start().await;
    app.expect_disagreements();
    let script = hash(include_str!("../../../lua/load_sale.lua"));
    let played = Played::before(app.redis_url(), move |command| match command {
        [name, ..] if name == "PUBLISH" => Play::Reply(":0\r\n".to_owned()),
        [_, of, ..] if *of == script => Play::Reply(list(&["", ""])),
        _ => Play::Real,
    })
    .await;
    let process = played.process(&app).await;
    let by = Actor::command_line();
    let (opens_at, closes_at) = (now(), now() + TimeDelta::hours(1));
    let sale = json!({"total": 5, "opens_at": opens_at, "closes_at": closes_at});
    for (sale, said) in [(Value::Null, 0), (sale, 1)] {
        let lines = Lines::heard();
        played.take_asked();
        let created = bounded("an answer", process.coupons.create(new_coupon(&sale), &by)).await;
        let Ok(Creation::Created(coupon)) = created else { panic!("{created:?}") };
        assert_eq!(lines.count(NOT_LOADED), said, "{sale}");
        let publish =
            ["PUBLISH", &app.keys().changes_channel(), &coupon.id.to_string()].map(str::to_owned);
        let is_told = async || played.asked().iter().any(|command| *command == publish);
        eventually("the others are told", is_told).await;
    }

    // Nothing of a regular coupon is in Redis, so no sale is looked for.
    let lines = Lines::heard();
    app.execute("ALTER TABLE flash_sales RENAME TO away").await;
    let created = bounded("an answer", process.coupons.create(new_coupon(&Value::Null), &by)).await;
    assert!(created.is_err(), "it is there, and can't be read");
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 3);
    assert_eq!(lines.count(NOT_LOADED), 0);
}

#[tokio::test]
async fn raise_of_the_loss_alarm_counts_each_time_and_says_so_now_and_then() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let lines = Lines::heard();
    let began = std::time::Instant::now();
    for _ in 0..100 {
        let told = bounded("an answer", app.app.loader.missing(coupon)).await;
        assert_told(&told, LOST, "the sale isn't archived");
    }
    assert_eq!(number(&app.app, "flash_sale_redis_data_lost_total") as i64, 100);
    let said = lines.count("ALARM: Redis has lost this sale, or part of it");
    // At most one in each pause.
    let pauses = began.elapsed().as_millis() / limits::LOG_LINE_PAUSE.as_millis();
    assert!((1..=1 + pauses).contains(&(said as u128)), "{said} lines");
}
