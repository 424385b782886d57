//! `ask_now`, `look`, `note_settled` and `give_up`: an operator's request, by sales that differ in one fact.

use std::collections::BTreeSet;

use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::sale::Failure;
use flash_sale::sale::archive::{ArchiveOutcome, ArchiveRefusal, Archived};
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::CouponId;
use serde_json::{Value, json};

use crate::support::lines::Lines;
use crate::support::played::{Play, Played, hash, text};
use crate::support::{TestApp, lane, proxy_before};

async fn tried(app: &App, coupon: CouponId, accept_loss: bool) -> Result<ArchiveOutcome, Failure> {
    app.archive.ask(coupon, accept_loss, &Actor::command_line()).await
}

/// Buyers and live orders that an archived sale had.
async fn archived(app: &TestApp, coupon: CouponId, accept_loss: bool) -> Archived {
    match tried(&app.app, coupon, accept_loss).await.expect("both stores answer") {
        ArchiveOutcome::Archived(archived) => archived,
        refused => panic!("{refused:?}"),
    }
}

/// The open things of a sale that isn't settled.
async fn obstacles(app: &App, coupon: CouponId) -> Vec<String> {
    match tried(app, coupon, false).await.expect("both stores answer") {
        ArchiveOutcome::Refused(ArchiveRefusal::NotSettled(obstacles)) => obstacles,
        other => panic!("{other:?}"),
    }
}

async fn ended_sale(app: &TestApp, units: i64) -> CouponId {
    let coupon = app.create_flash(units).await;
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    coupon
}

/// Entries of the book of changes about the archiving of this sale, each with the states before and after.
async fn noted(app: &TestApp, coupon: CouponId) -> Vec<Value> {
    let query = format!(
        "SELECT json_build_array(before, after)::text FROM audit
         WHERE action = 'archive_coupon' AND subject_id = {coupon} ORDER BY id"
    );
    let entries = app.texts(&query).await;
    entries.iter().map(|entry| serde_json::from_str(entry).expect("JSON")).collect()
}

const GIVEN_UP: &str = "a sale is archived although it isn't settled";

#[tokio::test]
async fn ask_now_archives_what_is_settled_and_gives_up_only_what_is_accepted() {
    let app = TestApp::start().await;
    let lines = Lines::heard();
    let settled = json!([{"archived": false}, {"archived": true, "accept_loss": false}]);
    let given_up = json!([{"archived": false}, {"archived": true, "accept_loss": true,
                          "dead_letters_closed": 0, "stock_returns_closed": 0}]);
    for (has_stray_buyer, accept_loss, entry, warnings) in
        [(false, false, settled.clone(), 0), (false, true, settled, 0), (true, true, given_up, 1)]
    {
        let coupon = ended_sale(&app, 5).await;
        let buyers = i64::from(has_stray_buyer);
        if has_stray_buyer {
            app.set_buyer(coupon, 3, 77).await;
            let refused = obstacles(&app.app, coupon).await;
            assert_eq!(refused.len(), 2, "{refused:?}");
            assert!(refused[1].contains("user 3 was promised order 77"), "{refused:?}");
            assert_eq!(noted(&app, coupon).await, [] as [Value; 0]);
        }
        let of_sale = Archived {
            coupon_id: coupon,
            dead_letters_closed: 0,
            stock_returns_closed: 0,
            buyers_dropped: Some(buyers),
            live_orders: Some(0),
        };
        assert_eq!(archived(&app, coupon, accept_loss).await, of_sale);
        let again = Archived { buyers_dropped: None, live_orders: None, ..of_sale };
        for accept_loss in [false, true] {
            assert_eq!(archived(&app, coupon, accept_loss).await, again);
        }
        assert_eq!(noted(&app, coupon).await, [entry], "once");
        assert_eq!(lines.count(GIVEN_UP), warnings);
        assert_eq!(app.redis::<i64>(&["EXISTS", &app.keys().coupon(coupon)]).await, 0);
    }
}

/// Postgres holds the note of `asked` back until another session has set this in the row of its sale.
async fn while_another_sets<T>(
    app: &TestApp,
    coupon: CouponId,
    set: &str,
    asked: impl Future<Output = T>,
) -> T {
    let update =
        format!("UPDATE flash_sales SET {set}, updated_at = now() WHERE coupon_id = {coupon}");
    let other = app.holding(&update).await;
    let meanwhile = async {
        app.a_session_waits_for_a_row().await;
        other.commit().await.expect("Postgres answers");
    };
    tokio::join!(asked, meanwhile).0
}

#[tokio::test]
async fn ask_now_of_a_sale_that_is_archived_meanwhile_notes_and_gives_up_nothing() {
    let app = TestApp::start().await;
    let coupon = ended_sale(&app, 5).await;
    let lines = Lines::heard();
    let asked = archived(&app, coupon, false);
    let archived = while_another_sets(&app, coupon, "archived_at = now()", asked).await;
    assert_eq!((archived.buyers_dropped, archived.live_orders), (Some(0), Some(0)));
    assert_eq!(noted(&app, coupon).await, [] as [Value; 0], "that is the other's");
    assert_eq!(lines.count(GIVEN_UP), 0);
    assert_eq!(app.redis::<i64>(&["EXISTS", &app.keys().coupon(coupon)]).await, 0);
}

/// The other session has found Redis behind the revision of the end.
#[tokio::test]
async fn ask_now_of_a_sale_that_is_not_settled_any_more_leaves_it_in_redis() {
    let app = TestApp::start().await;
    let coupon = ended_sale(&app, 5).await;
    let behind = "applied_revision = applied_revision - 1";
    let asked = obstacles(&app.app, coupon);
    let named = while_another_sets(&app, coupon, behind, asked).await;
    assert_eq!(named, [] as [String; 0], "none was there when it was looked at");
    assert_eq!(noted(&app, coupon).await, [] as [Value; 0]);
    assert_eq!(app.redis::<i64>(&["EXISTS", &app.keys().coupon(coupon)]).await, 1);
    assert_eq!(archived(&app, coupon, false).await.buyers_dropped, Some(0), "it is told again");
}

#[tokio::test]
async fn look_names_a_sale_that_redis_is_still_loading() {
    let app = TestApp::start().await;
    let coupon = ended_sale(&app, 5).await;
    let script = hash(include_str!("../../../lua/apply_coupon.lua"));
    let played = Played::before(app.redis_url(), move |command| match command {
        [_, of, ..] if *of == script => Play::Reply(text("LOADING")),
        _ => Play::Real,
    })
    .await;
    let process = played.process(&app).await;
    assert_eq!(obstacles(&process, coupon).await, ["Redis is loading it"]);
    archived(&app, coupon, false).await;
}

#[tokio::test]
async fn look_names_the_first_twenty_obstacles() {
    let app = TestApp::start().await;
    let coupon = ended_sale(&app, 50).await;
    for buyer in 1..=25 {
        app.set_buyer(coupon, buyer, 700 + buyer).await;
    }
    let named = obstacles(&app.app, coupon).await;
    assert_eq!(named.len(), limits::LOGGED_DISAGREEMENTS_MAX, "{named:#?}");
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "{named:#?}");
    assert_eq!(archived(&app, coupon, true).await.buyers_dropped, Some(25));
}

#[tokio::test]
async fn look_names_a_sale_that_redis_has_in_another_epoch() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = ended_sale(&app, 5).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "epoch", "99"]).await;
    let named = obstacles(&app.app, coupon).await;
    assert_eq!(named[0], Failure::Stale(coupon).to_string(), "{named:#?}");
    archived(&app, coupon, true).await;
}

#[tokio::test]
async fn look_names_a_log_that_cannot_be_read_once() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = ended_sale(&app, 5).await;
    let _: String = app.redis(&["SET", &app.log(lane()), "x"]).await;
    let named = obstacles(&app.app, coupon).await;
    assert_eq!(named.len(), 1, "{named:#?}");
    assert!(named[0].contains("WRONGTYPE"), "{named:#?}");
    let of_sale = archived(&app, coupon, true).await;
    assert_eq!((of_sale.buyers_dropped, of_sale.live_orders), (None, None), "nothing was counted");
}

/// Claims on their way are looked for before the sale.
#[tokio::test]
async fn look_names_a_log_and_a_sale_that_can_not_be_read() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = ended_sale(&app, 5).await;
    let _: String = app.redis(&["SET", &app.log(lane()), "x"]).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "stock", "few"]).await;
    let named = obstacles(&app.app, coupon).await;
    assert_eq!(named.len(), 2, "{named:#?}");
    assert!(named[0].contains("WRONGTYPE") && !named[1].contains("WRONGTYPE"), "{named:#?}");
    archived(&app, coupon, true).await;
}

#[tokio::test]
async fn look_ends_with_a_failure_that_is_not_the_sale_s() {
    let app = TestApp::start().await;
    let coupon = ended_sale(&app, 5).await;
    let of_lane = app.keys().lane(lane());
    let _: i64 = app.redis(&["HSET", &of_lane, "state", "recovering"]).await;
    for accept_loss in [false, true] {
        let failed = tried(&app.app, coupon, accept_loss).await;
        assert!(matches!(failed, Err(Failure::Recovering(..))), "{failed:?}");
    }
    let _: i64 = app.redis(&["HSET", &of_lane, "state", "open"]).await;
    // The end of the log, and the buyers.
    for command in ["XINFO", "HSCAN"] {
        let proxy = proxy_before(&app, command).await;
        let behind = app.another_instance_behind(&proxy).await;
        proxy.lose_next_reply();
        let failed = tried(&behind, coupon, true).await;
        assert!(matches!(failed, Err(Failure::Redis(_))), "{command}: {failed:?}");
    }
    assert_eq!(noted(&app, coupon).await, [] as [Value; 0]);
}

#[tokio::test]
async fn give_up_allows_long_statements() {
    // A statement of another transaction may take 9 s here.
    let app = TestApp::configured(&["--database-timeout-ms", "9000"]).await;
    let coupon = ended_sale(&app, 5).await;
    app.set_buyer(coupon, 3, 77).await;
    app.execute(
        "CREATE TABLE seen (n bigint GENERATED ALWAYS AS IDENTITY, timeout text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO seen (timeout) VALUES (current_setting('statement_timeout')); RETURN NEW; END $$;
         CREATE TRIGGER seen BEFORE UPDATE ON flash_sales FOR EACH ROW EXECUTE FUNCTION see()",
    )
    .await;
    archived(&app, coupon, true).await;
    let seen = app.texts("SELECT timeout FROM seen ORDER BY n").await;
    assert_eq!(seen, ["10s", "9s"], "the note of the archiving, and of the removal");
}
