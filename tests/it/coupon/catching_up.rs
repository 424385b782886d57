//! Sales of which Redis has an older revision, and lists of coupons, by a Redis that is played: failures of one sale, and
//! those of Redis.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use flash_sale::app::App;
use flash_sale::sale::coupon::model::CouponFilter;
use flash_sale::sale::coupon::read::CouponReader;
use flash_sale::sale::ids::CouponId;

use crate::support::lines::Lines;
use crate::support::played::{Play, Played, Still, hash, text};
use crate::support::{Bounded, TestApp};

const BEHIND: &str = "Redis had an older revision of this coupon, and has the newest one now";
const NOT_NOTED: &str = "Redis has an older revision of this coupon, and that can't be noted";

async fn process(
    app: &TestApp,
    play: impl Fn(&[String]) -> Play + Send + Sync + 'static,
) -> (Played, Arc<App>) {
    let played = Played::before(app.redis_url(), play).await;
    let process = played.process(app).await;
    (played, process)
}

/// A sale that has revision 5 in Postgres, which believes that Redis has that, too; Redis has revision 1.
async fn behind(app: &TestApp) -> CouponId {
    let coupon = app.create_flash(5).await;
    app.execute("UPDATE coupons SET revision = 5; UPDATE flash_sales SET applied_revision = 5")
        .await;
    coupon
}

#[tokio::test]
async fn catch_up_with_a_sale_fails_only_with_a_store() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    behind(&app).await;
    let script = hash(include_str!("../../../lua/apply_coupon.lua"));
    let (played, process) = process(&app, move |command| match command {
        [_, of, ..] if *of == script => Play::Later,
        _ => Play::Real,
    })
    .await;
    let applied = "SELECT applied_revision FROM flash_sales";
    for (reply, told, revision, warnings) in [
        (text("APPLIED"), Some(1), 5, 1),
        (text("RECOVERING"), Some(1), 5, 0),
        (text("MISSING"), Some(1), 5, 0),
        // The pass over changes tries these again.
        (text("STALE"), Some(1), 1, 0),
        (text("WHAT"), Some(1), 1, 0),
        ("-WRONGTYPE a key of another type\r\n".to_owned(), Some(1), 1, 0),
        ("-OOM it says\r\n".to_owned(), None, 5, 0),
    ] {
        app.execute("UPDATE flash_sales SET applied_revision = 5").await;
        let lines = Lines::heard();
        played.answer(reply.as_str());
        let caught_up = process.coupon_changes.catch_up().bounded().await;
        assert_eq!(caught_up.ok(), told, "{reply}");
        assert_eq!(app.number(applied).await, revision, "{reply}");
        assert_eq!(lines.count(BEHIND), warnings, "{reply}");
    }
}

/// Should Postgres refuse the note, the next look finds the coupon again.
#[tokio::test]
async fn note_behind_that_is_refused_is_said_and_holds_up_no_other() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = behind(&app).await;
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "total", "x"]).await;
    for (sqlstate, told, lines_said) in [("23514", Some(1), 1), ("53100", None, 0)] {
        app.refuse("UPDATE", "flash_sales", "true", sqlstate).await;
        let lines = Lines::heard();
        let caught_up = app.app.coupon_changes.catch_up().bounded().await;
        assert_eq!(caught_up.ok(), told, "{sqlstate}");
        assert_eq!(lines.count(NOT_NOTED), lines_said, "{sqlstate}");
        app.accept("flash_sales").await;
    }
    assert_eq!(app.app.coupon_changes.catch_up().bounded().await.expect("both stores answer"), 1);
    assert_eq!(app.number("SELECT applied_revision FROM flash_sales").await, 1);
}

#[tokio::test]
async fn revisions_that_redis_can_not_tell_are_a_failure_and_unreadable_ones_are_left_out() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    behind(&app).await;
    let (played, process) = process(&app, |command| match command {
        [name, _, field] if name == "HGET" && field == "revision" => Play::Later,
        _ => Play::Real,
    })
    .await;
    for (reply, told) in [
        ("-OOM it says\r\n", None),
        ("-WRONGTYPE a key of another type\r\n", Some(0)),
        ("$1\r\nx\r\n", Some(0)),
        ("_\r\n", Some(0)),
        ("$1\r\n5\r\n", Some(0)),
        ("$1\r\n4\r\n", Some(1)),
    ] {
        played.answer(reply);
        assert_eq!(process.coupon_changes.catch_up().bounded().await.ok(), told, "{reply:?}");
    }
    assert_eq!(app.in_redis(CouponId::compose(1, 1), ["revision"]).await, ["5"]);
}

/// Another life of Redis may have older data.
#[tokio::test]
async fn catch_up_pass_looks_at_all_sales_in_each_life_of_redis() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = behind(&app).await;
    let is_another = Arc::new(AtomicBool::new(false));
    let other = is_another.clone();
    let (played, process) = process(&app, move |command| {
        let info = "run_id:other\r\nrole:master\r\nloading:0\r\nserver_time_usec:1800000000000000\r\nuptime_in_seconds:1\r\n";
        match command {
            [name, _, ..] if name == "INFO" && other.load(Ordering::SeqCst) => {
                Play::Reply(text(info))
            }
            _ => Play::Real,
        }
    })
    .await;
    let go_back = async || {
        let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "revision", "1"]).await;
    };
    let pass = async || {
        process.coupon_changes.catch_up_pass().bounded().await.expect("both stores answer")
    };
    let still = Still::begin();
    assert_eq!([pass().await, pass().await], [1, 0]);
    go_back().await;
    assert_eq!(pass().await, 0, "the same life was looked at a moment ago");
    drop(still);
    is_another.store(true, Ordering::SeqCst);
    played.close();
    crate::support::eventually("another connection", async || {
        process.stores.redis.link().await.is_ok_and(|link| link.server().as_str() == "other")
    })
    .await;
    assert_eq!([pass().await, pass().await], [1, 0]);
}

/// Redis is asked about sales that it has to hold, one after the other, until it fails.
#[tokio::test]
async fn left_of_each_sale_of_a_list_is_asked_for_until_redis_fails() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.create_regular().await;
    for _ in 0..4 {
        app.create_flash(9).await;
    }
    app.execute("UPDATE flash_sales SET archived_at = now() WHERE coupon_id >> 10 = 4").await;
    let replies = Arc::new(Mutex::new(Vec::new()));
    let left = replies.clone();
    let (played, process) = process(&app, move |command| match command {
        [name, _, field] if name == "HGET" && field == "stock" => {
            Play::Reply(left.lock().expect("no holder panics").pop().expect("few are asked"))
        }
        _ => Play::Real,
    })
    .await;
    let reader = CouponReader::new(&process.stores);
    let (one, two, three) = (text("1"), text("2"), text("3"));
    let (fails, wrong) = ("-OOM it says\r\n".to_owned(), "-WRONGTYPE it is\r\n".to_owned());
    let none = "_\r\n".to_owned();
    // From the newest sale on; the second one is archived, and nothing of it is sold.
    for (answers, expected, asked) in [
        ([&one, &two, &three], [Some(1), Some(9), Some(2), Some(3)], 3),
        ([&one, &wrong, &three], [Some(1), Some(9), None, Some(3)], 3),
        ([&none, &two, &three], [None, Some(9), Some(2), Some(3)], 3),
        ([&one, &fails, &three], [Some(1), Some(9), None, None], 2),
        ([&fails, &two, &three], [None, Some(9), None, None], 1),
    ] {
        *replies.lock().expect("no holder panics") =
            answers.iter().rev().map(|answer| (*answer).clone()).collect();
        played.take_asked();
        let listed = reader.list(CouponFilter::default(), None, 10).bounded().await;
        let listed = listed.expect("Postgres answers");
        let left: Vec<_> =
            listed.iter().map(|it| it.sale.as_ref().and_then(|it| it.left)).collect();
        assert_eq!(left[..4], expected, "{answers:?}");
        assert_eq!((left.len(), left[4]), (5, None), "a regular coupon has no sale");
        assert_eq!(played.take_asked().len(), asked, "{answers:?}");
    }
}
