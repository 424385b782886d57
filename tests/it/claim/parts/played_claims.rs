//! Claims whose replies are played: each reply of the script that decides nothing, and the store that is asked then.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flash_sale::app::App;
use flash_sale::sale::ids::CouponId;
use tokio::time::Instant;

use crate::support::lines::number;
use crate::support::played::{Play, Played, Still, hash, list};
use crate::support::{TestApp, bounded, eventually, user};

/// A process on the app's data whose claim script is played.
async fn process(app: &TestApp) -> (Played, Arc<App>) {
    let script = hash(include_str!("../../../../lua/claim.lua"));
    let played = Played::before(app.redis_url(), move |command| match command {
        [_, of, ..] if *of == script => Play::Later,
        _ => Play::Real,
    })
    .await;
    let process = played.process(app).await;
    (played, process)
}

/// Replies of the script, each a letter, or an error.
fn answer(played: &Played, replies: &[&str]) {
    for (reply, shards) in replies.iter().zip(2..) {
        played.answer(match reply.starts_with('-') {
            true => format!("{reply}\r\n"),
            false => list(&[reply, &format!("{shards}@9")]),
        });
    }
}

/// One claim: its replies, the answer, and whether the sale is looked at then, as one that Redis may have lost.
type Row<'a> = (CouponId, i64, &'a [&'a str], &'a str, bool);

async fn check(app: &TestApp, rows: &[Row<'_>]) {
    let (played, process) = process(app).await;
    for (coupon, id, replies, told, is_suspected) in rows {
        process.lanes.take_suspected_sales();
        answer(&played, replies);
        // To a call too many.
        answer(&played, &["P"]);
        let reply = bounded("an answer", process.claims.claim(*coupon, user(*id))).await;
        let (reply, case) = (format!("{reply:?}"), format!("{replies:?} to {id}"));
        assert!(reply.starts_with(told), "{case}: {reply}");
        assert_eq!(played.take_asked().len(), replies.len(), "{case}");
        let suspected = process.lanes.take_suspected_sales();
        assert_eq!(suspected.into_iter().any(|it| it == *coupon), *is_suspected, "{case}");
        played.forget_answers();
    }
}

#[tokio::test]
async fn ask_further_gives_each_reply_of_a_sale_its_meaning() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sale = app.create_flash(5).await;
    let lost = "Err(DataLost(";
    let stale = "Err(Stale(";
    let rows: &[Row<'_>] = &[
        (sale, 1, &["P"], "Ok(Paused)", false),
        (sale, 1, &["S"], "Ok(SoldOut)", false),
        (sale, 1, &["L", "E"], "Ok(Ended)", false),
        (sale, 1, &["L", "S"], "Ok(SoldOut)", false),
        (sale, 1, &["L", "L"], lost, true),
        (sale, 1, &["L", "X"], lost, true),
        (sale, 1, &["L", "T"], stale, true),
        (sale, 1, &["L", "V"], "Err(Recovering(", false),
        (sale, 1, &["X"], lost, true),
        (sale, 1, &["T", "E"], "Ok(Ended)", false),
        (sale, 1, &["T", "S"], "Ok(SoldOut)", false),
        (sale, 1, &["T", "T"], stale, true),
        (sale, 1, &["T", "L"], lost, true),
        (sale, 1, &["R", "R", "R"], stale, true),
        (sale, 1, &["C", "C", "C"], stale, true),
        (sale, 1, &["V", "E"], "Ok(Ended)", false),
        (sale, 1, &["V", "S"], "Ok(SoldOut)", false),
        (sale, 1, &["V", "X"], lost, true),
        (sale, 1, &["V", "V"], "Err(Recovering(", false),
        (sale, 1, &["-WRONGTYPE a key of another type"], "Err(Shared(Redis(", true),
        (sale, 1, &["-OOM command not allowed"], "Err(Shared(Redis(", false),
        (sale, 1, &["Q"], "Err(Shared(UnknownReply(", true),
    ];
    check(&app, rows).await;
}

#[tokio::test]
async fn ask_further_raises_one_alarm_for_a_lost_sale() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sale = app.create_flash(5).await;
    let (played, process) = process(&app).await;
    let lost = || number(&process, "flash_sale_redis_data_lost_total");
    for (replies, alarms) in [(&["P"][..], 0.0), (&["X"], 1.0), (&["L", "L"], 2.0)] {
        answer(&played, replies);
        drop(bounded("an answer", process.claims.claim(sale, user(1))).await);
        assert!((lost() - alarms).abs() < 0.1, "{replies:?}: {}", lost());
    }
}

/// A closed lane is no obstacle to claims that need none.
#[tokio::test]
async fn claim_elsewhere_and_claim_archived_answer_for_coupons_that_redis_does_not_hold() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (regular, other) = (app.create_regular().await, app.create_regular().await);
    let archived = app.create_flash(9).await;
    let closed = app.order(2, archived).await;
    assert_eq!(app.cancel(2, closed).await.status, 200);
    app.order(3, archived).await;
    let redeemed = app.paid_order(4, archived).await;
    assert_eq!(app.redeem(redeemed).await.status, 200);
    app.execute("UPDATE flash_sales SET archived_at = now()").await;
    let unknown = CouponId::compose(other.sequence() + 1_000, 1);
    let (has, ended) = ("Ok(AlreadyClaimed(", "Ok(Ended)");
    let rows: &[Row<'_>] = &[
        (regular, 1, &["L"], "Ok(Created(", false),
        (regular, 1, &["L"], has, false),
        (other, 1, &["V", "V"], "Ok(Created(", false),
        (other, 1, &["V", "V"], has, false),
        (unknown, 1, &["L"], "Ok(NotFound)", false),
        (unknown, 1, &["V", "V"], "Ok(NotFound)", false),
        (archived, 1, &["L"], ended, false),
        (archived, 2, &["L"], ended, false),
        (archived, 3, &["L"], has, false),
        (archived, 4, &["L"], has, false),
        (archived, 1, &["V", "V"], ended, false),
        (archived, 3, &["V", "V"], has, false),
        (archived, 2, &["T", "T"], ended, false),
        (archived, 3, &["T", "T"], has, false),
        (archived, 4, &["R", "R", "R"], has, false),
        (archived, 1, &["V", "L"], ended, false),
    ];
    check(&app, rows).await;
}

/// The epoch that each of the last calls has named.
fn epochs(played: &Played) -> Vec<String> {
    let asked = played.take_asked();
    asked
        .iter()
        .map(|command| command[4 + command[2].parse::<usize>().expect("keys")].clone())
        .collect()
}

#[tokio::test]
async fn ask_further_and_open_after_all_read_the_lanes_anew_before_the_script_is_asked_again() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sale = app.create_flash(5).await;
    for (first, epoch) in [("T", 2), ("V", 3)] {
        let (played, process) = process(&app).await;
        app.execute(&format!("UPDATE lanes SET epoch = {epoch}")).await;
        answer(&played, &[first, "P"]);
        let told = bounded("an answer", process.claims.claim(sale, user(1))).await;
        assert_eq!(format!("{told:?}"), "Ok(Paused)", "{first}");
        assert_eq!(epochs(&played), [(epoch - 1).to_string(), epoch.to_string()], "{first}");
    }

    let close = "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x'";
    app.execute(close).await;
    let (played, process) = process(&app).await;
    app.execute("UPDATE lanes SET state = 'open', epoch = 4").await;
    answer(&played, &["P"]);
    let told = bounded("an answer", process.claims.claim(sale, user(1))).await;
    assert_eq!(format!("{told:?}"), "Ok(Paused)", "the lane is open after all");
    assert_eq!(epochs(&played), ["4"]);
}

#[tokio::test]
async fn a_claim_in_a_lane_that_is_closed_is_not_asked_of_redis() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let sale = app.create_flash(5).await;
    let close = "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x'";
    app.execute(close).await;
    let (played, process) = process(&app).await;
    process.lanes.take_suspicion();
    let told = bounded("an answer", process.claims.claim(sale, user(1))).await;
    assert!(format!("{told:?}").starts_with("Err(Recovering("), "{told:?}");
    assert!(process.lanes.take_suspicion(), "the next look is brought forward");
    assert_eq!(epochs(&played), [""; 0]);
}

/// Most claims of a crowd come after the last unit.
#[tokio::test]
async fn claim_probed_of_a_stranger_is_refused_from_memory_once_the_sale_is_sold_out() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "60000"]).await;
    app.expect_disagreements();
    let sale = app.create_flash(1).await;
    assert_eq!(app.claim(1, sale).await.status, 202);
    let (played, process) = process(&app).await;
    let server = process.stores.redis.link().await.expect("Redis answers").server().clone();
    let memories = &process.memories;
    memories.begin_listening(server, Arc::new(AtomicBool::new(true)));
    let claim = async |id| {
        let told = bounded("an answer", process.claims.claim(sale, user(id))).await;
        format!("{told:?}")
    };
    played.answer(list(&["S", "0"]));
    assert_eq!(claim(2).await, "Ok(SoldOut)");
    // Of ten thousand strangers, one is taken for a buyer.
    let refused = || (900..903).find(|id| memories.sold_out.refuses(sale, user(*id)));
    eventually("it is remembered", async || {
        memories.heard(Instant::now());
        refused().is_some()
    })
    .await;

    let _still = Still::begin();
    memories.heard(Instant::now());
    let stranger = refused().expect("it is remembered");
    played.take_asked();
    // To a call too many.
    answer(&played, &["P"]);
    assert_eq!(claim(stranger).await, "Ok(SoldOut)");
    assert_eq!(played.take_asked().len(), 0, "Redis is not asked");
}
