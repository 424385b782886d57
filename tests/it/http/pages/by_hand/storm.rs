//! Storms whose crowd is a script of the test: the lines that it prints, the facts of the stores, and the verdict.

use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::storm::lines::{Answers, End, Line, Outcome, Repeats};
use flash_sale::sale::storm::plan::{Plan, Program};
use flash_sale::sale::storm::{Storms, Watching};
use futures_util::FutureExt;
use private_servers::testing::DataFolder;
use serde_json::{Value, json};
use sqlx::Postgres;
use sqlx::pool::PoolConnection;

use super::{pass, redis_settles, service, settle, still};
use crate::support::lines::Lines;
use crate::support::played::soon;
use crate::support::{TestApp, bounded, eventually, patience, user};

/// A crowd that does what its variable says.
struct Crowd {
    folder: DataFolder,
}

impl Crowd {
    /// The shell makes the file: one that this process has written might be open in a child that is about to begin.
    fn new() -> Self {
        let folder = DataFolder::made(0o755);
        let make = "printf '#!/bin/sh\\neval \"$CROWD\"\\n' >\"$0\" && chmod 755 \"$0\"";
        let path = folder.path().join("crowd");
        let made = Command::new("sh").args(["-c", make]).arg(path).status();
        assert!(made.expect("there is a shell").success());
        Self { folder }
    }

    fn program(&self, script: &str) -> Program {
        let variables = vec![("CROWD", script.into()), ("OTHER", "a secret".into())];
        let path = self.folder.path().join("crowd");
        Program { path, variables, url: "http://127.0.0.1:1".to_owned() }
    }
}

/// Storms over the stores of a service.
fn storms(app: &TestApp, shutdown: &Shutdown) -> Storms {
    let service = &app.app;
    let coupons = (service.coupons.clone(), service.coupon_changes.clone());
    let told = (service.backlog.clone(), service.traces.clone());
    Storms::new(&service.stores, coupons, told, shutdown.clone())
}

fn plan(shoppers: u32, stock: u32) -> Plan {
    Plan { shoppers, stock, over_s: 1, twice_percent: 50 }
}

/// A command that prints these lines.
fn prints(lines: &[Line]) -> String {
    let texts = lines.iter().map(|line| serde_json::to_string(line).expect("JSON"));
    texts.map(|text| format!("echo '{text}'; ")).collect()
}

/// Lines of a crowd of three: two have won these orders, and one was told "sold out".
fn lines_of_three(coupon: CouponId, orders: [i64; 2]) -> [Line; 3] {
    let told = orders
        .into_iter()
        .zip([1, 2])
        .map(|(order, buyer)| (order.to_string().parse().expect("an order id"), user(buyer)));
    let answers = Answers {
        outcomes: vec![(Outcome::Won, 2), (Outcome::SoldOut, 1)],
        told: told.collect(),
        repeats: Repeats { same: 1, other: 0 },
    };
    let end = End { took_ms: 9, sold_out_ms: Some(8), p50_us: 7, p99_us: 6 };
    [Line::Sale { coupon_id: coupon }, Line::Answers(answers), Line::End(end)]
}

/// A sale of two units that users 1 and 2 have, and their orders.
async fn sold_out(app: &TestApp) -> (CouponId, [i64; 2]) {
    let coupon = app.create_flash(2).await;
    let orders =
        [app.claim_traced(1, coupon, "1").await.order_id(), app.claim(2, coupon).await.order_id()];
    (coupon, orders)
}

async fn state(app: &TestApp, coupon: CouponId) -> String {
    app.get(&format!("/v1/coupons/{coupon}"), "").await.text("state").to_owned()
}

/// The last state of a storm.
async fn outcome(storms: &Storms, program: Program, plan: Plan) -> Value {
    let mut watching = storms.watch().expect("there is room");
    let _before = watching.next().now_or_never();
    assert!(storms.start(5, program, plan));
    let last = bounded("the end of the storm", async {
        loop {
            let frame = json!(watching.next().await.expect("the storm goes on").as_deref());
            if frame["stage"] == "done" {
                return frame;
            }
        }
    });
    let last = last.await;
    eventually("another one may begin", async || !storms.stop()).await;
    last
}

#[tokio::test]
async fn a_program_is_started_with_its_plan_and_its_own_variables_and_ends_with_its_handle() {
    let crowd = Crowd::new();
    let script = "printf '%s\\n' \"$@\"; cat; env";
    let started = crowd.program(script).start(plan(3, 2)).expect("it can be run");
    let output = bounded("its end", started.wait_with_output()).await.expect("its output");
    let text = String::from_utf8(output.stdout).expect("text");
    let expected = [
        "storm",
        "--url",
        "http://127.0.0.1:1",
        "--shoppers",
        "3",
        "--stock",
        "2",
        "--over",
        "1",
        "--twice",
        "50",
    ];
    let (arguments, environment) = text.split_at(text.find("50\n").expect("the last one") + 3);
    assert_eq!(arguments.lines().collect::<Vec<_>>(), expected);
    assert!(environment.lines().any(|line| line == "OTHER=a secret"), "{environment}");
    // A shell adds some of its own.
    let known = ["CROWD", "OTHER", "PWD", "OLDPWD", "SHLVL", "_"];
    for (name, _) in environment.lines().filter_map(|line| line.split_once('=')) {
        assert!(known.contains(&name), "{name} is in {environment}");
    }
    let sleeping = crowd.program("exec sleep 60").start(plan(3, 2)).expect("it can be run");
    let process = format!("/proc/{}", sleeping.id().expect("it runs"));
    drop(sleeping);
    let is_gone = async || !std::path::Path::new(&process).exists();
    eventually("it ends with its handle", is_gone).await;
}

#[tokio::test]
async fn a_storm_has_a_verdict_if_its_crowd_ends_well_and_else_the_reason() {
    let app = TestApp::start().await;
    let (coupon, orders) = sold_out(&app).await;
    app.write_orders().await;
    let (crowd, storms) = (Crowd::new(), storms(&app, &Shutdown::default()));
    let [sale, answers, end] = lines_of_three(coupon, orders);
    let whole = prints(&[sale.clone(), answers.clone(), end.clone()]);
    let without_sale = prints(&[answers.clone(), end.clone()]);
    let without_end = prints(std::slice::from_ref(&answers));
    for (script, shoppers, expected) in [
        (without_end, 3, "crowd_failed"),
        (without_sale.clone(), 4, "crowd_failed"),
        (format!("{without_sale} exit 1"), 3, "crowd_failed"),
        ("echo 'no line'; exec sleep 60".to_owned(), 3, "crowd_failed"),
        (String::new(), 3, "crowd_failed"),
    ] {
        let last = outcome(&storms, crowd.program(&script), plan(shoppers, 2)).await;
        assert_eq!((&last["no_verdict"], &last["verdict"]), (&json!(expected), &Value::Null));
        assert_eq!(
            (&last["coupon_id"], &last["followed"]),
            (&Value::Null, &Value::Null),
            "{script}"
        );
    }
    let missing = Program { path: "/there/is/none".into(), ..crowd.program("") };
    assert_eq!(outcome(&storms, missing, plan(3, 2)).await["no_verdict"], "crowd_failed");
    assert_eq!(state(&app, coupon).await, "active");

    let last = outcome(&storms, crowd.program(&whole), plan(3, 2)).await;
    let verdict = &last["verdict"];
    assert_eq!((&verdict["word"], &last["no_verdict"]), (&json!("kept"), &Value::Null), "{last}");
    let numbers = ["sold", "rows", "buyers", "looked_up"].map(|name| verdict[name].as_i64());
    assert_eq!(numbers, [Some(2); 4], "{verdict}");
    let faults = ["lost", "oversold", "twice", "unexplained", "turned_away", "closed"];
    assert_eq!(faults.map(|name| verdict[name].as_i64()), [Some(0); 6], "{verdict}");
    let times = ["sold_out_ms", "p50_us", "p99_us"].map(|name| verdict[name].as_i64());
    assert_eq!(times, [Some(8), Some(7), Some(6)]);
    assert_eq!(last["followed"], orders[0].to_string());
    assert_eq!(
        (&last["id"], &last["answered"], &last["runs"]),
        (&json!("5"), &json!(3), &json!("w2s1"))
    );
    let facts = ["left", "rows", "backlog", "stock", "rate"].map(|name| last[name].as_i64());
    assert_eq!(facts, [Some(0), Some(2), Some(0), Some(2), Some(0)], "{last}");
    assert_eq!(json!(storms.last().as_deref()), last);
    assert_eq!(state(&app, coupon).await, "ended", "no later buyer meets its sale");
}

/// Rows of the storm's sale and no others, and of these the one that came latest.
#[tokio::test]
async fn facts_for_a_verdict_are_of_the_live_rows_of_the_sale() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (coupon, orders) = sold_out(&app).await;
    let (other, _) = sold_out(&app).await;
    app.write_orders().await;
    app.execute(&format!(
        "UPDATE orders SET created_at = claimed_at + CASE
             WHEN coupon_id = {other} THEN interval '90 s'
             WHEN user_id = 1 THEN interval '7 s' ELSE interval '3 s' END;
         UPDATE flash_sales SET sold = 1 WHERE coupon_id = {other};
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, created_at, status, cancelled_at) VALUES
         (7, {coupon}, 'regular', 7, now(), now() + interval '80 s', 'unpaid', NULL),
         (8, {coupon}, 'flash', 8, now(), now() + interval '70 s', 'cancelled', now())"
    ))
    .await;
    let (crowd, storms) = (Crowd::new(), storms(&app, &Shutdown::default()));
    let script = prints(&lines_of_three(coupon, orders));
    let last = outcome(&storms, crowd.program(&script), plan(3, 2)).await;
    let verdict = &last["verdict"];
    let told = ["rows", "buyers", "lost", "last_row_ms"].map(|name| verdict[name].as_i64());
    assert_eq!(told, [Some(2), Some(2), Some(0), Some(7_000)], "{verdict}");
    assert_eq!((&last["rows"], &verdict["word"]), (&json!(2), &json!("kept")));
    // An order of another sale is no row of this one.
    app.execute("UPDATE flash_sales SET sold = 1").await;
    let (coupon, orders) = sold_out(&app).await;
    app.write_orders().await;
    let foreign = format!("SELECT min(id) FROM orders WHERE coupon_id = {other}");
    let foreign = app.number(&foreign).await;
    let script = prints(&lines_of_three(coupon, [foreign, orders[1]]));
    let last = outcome(&storms, crowd.program(&script), plan(3, 2)).await;
    let verdict = &last["verdict"];
    let told = ["word", "lost", "unexplained"].map(|name| verdict[name].clone());
    assert_eq!(told, [json!("broken"), json!(1), json!(1)], "{verdict}");
    assert_eq!(last["rows"], 2);
}

#[tokio::test]
async fn one_storm_is_under_way_at_a_time_until_it_is_stopped() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let (crowd, shutdown) = (Crowd::new(), Shutdown::default());
    let storms = storms(&app, &shutdown);
    assert!(!storms.stop() && storms.last().is_none());
    let sale = prints(&[Line::Sale { coupon_id: coupon }]);
    let stays = format!("{sale} exec sleep 60");
    let begin = |id| storms.start(id, crowd.program(&stays), plan(3, 2));
    assert!(begin(1) && !begin(2));
    // While the crowd goes on, the state shows what the stores say.
    eventually("the crowd is there", async || {
        let frame = json!(storms.last().as_deref());
        frame["stage"] == "running" && frame["left"] == 5 && frame["rows"] == 0
    })
    .await;
    let frame = json!(storms.last().as_deref());
    assert_eq!((&frame["id"], &frame["coupon_id"]), (&json!("1"), &json!(coupon)));
    assert!(storms.stop());
    eventually("it is over", async || !storms.stop()).await;
    let frame = json!(storms.last().as_deref());
    assert_eq!((&frame["stage"], &frame["no_verdict"]), (&json!("done"), &json!("stopped")));
    assert_eq!(state(&app, coupon).await, "ended");
    // The next one ends with the service.
    assert!(begin(3));
    assert!(shutdown.stop(patience()).await, "a task hangs");
    let frame = json!(storms.last().as_deref());
    assert_eq!((&frame["id"], &frame["no_verdict"]), (&json!("3"), &json!("stopped")));
}

/// Frames come when they change, and else with each heartbeat; there are so many places.
#[tokio::test]
async fn watchers_of_storms_have_places_and_are_told_the_newest_state_and_heartbeats() {
    let app = service("1").await;
    let shutdown = Shutdown::default();
    let storms = storms(&app, &shutdown);
    assert_eq!(limits::STORM_WATCHERS_MAX, 64);
    let mut watchers: Vec<Watching> = (0..64).map_while(|_| storms.watch()).collect();
    assert_eq!((watchers.len(), storms.watch().is_none()), (64, true));
    drop(watchers.pop());
    let mut watching = storms.watch().expect("a place is free again");
    tokio::time::pause();
    assert_eq!(watching.next().now_or_never(), Some(Some(None)), "there was no storm");
    {
        let mut next = pin!(watching.next());
        assert!(next.as_mut().now_or_never().is_none());
        pass(limits::LIVE_HEARTBEAT - Duration::from_millis(10)).await;
        assert!(next.as_mut().now_or_never().is_none());
        pass(Duration::from_millis(10)).await;
        assert_eq!(next.as_mut().now_or_never(), Some(Some(None)), "the same once more");
    }
    drop(storms);
    assert_eq!(still(watching.next()).await, None, "there will be no further one");
}

/// The stage of the storm, and what it says at its end.
fn stage(storms: &Storms) -> (String, Value) {
    let frame = json!(storms.last().as_deref());
    (frame["stage"].as_str().unwrap_or_default().to_owned(), frame["no_verdict"].clone())
}

/// Starts a storm whose crowd has gone, while time stands still: it waits for its rows then. The connection is to be held,
/// so that the test and the looks of the storm share the other one.
async fn settling(app: &TestApp, crowd: &Crowd, storms: &Storms) -> PoolConnection<Postgres> {
    let (coupon, orders) = sold_out(app).await;
    let held = app.app.stores.pool.acquire().await.expect("Postgres answers");
    tokio::time::pause();
    let script = prints(&lines_of_three(coupon, orders));
    assert!(storms.start(1, crowd.program(&script), plan(3, 2)));
    soon("the storm is settling", || stage(storms).0 == "settling").await;
    settle(app).await;
    held
}

fn waits() -> (String, Value) {
    ("settling".to_owned(), Value::Null)
}

#[tokio::test]
async fn rows_are_waited_for_a_minute_and_looked_for_four_times_a_second() {
    let (app, crowd) = (service("1").await, Crowd::new());
    let storms = storms(&app, &Shutdown::default());
    let _held = settling(&app, &crowd, &storms).await;
    assert_eq!(limits::STORM_SETTLE_MAX, Duration::from_secs(60));
    let frame = json!(storms.last().as_deref());
    let facts = ["left", "rows", "backlog"].map(|name| frame[name].as_i64());
    assert_eq!(facts, [Some(0), Some(0), Some(2)], "{frame}");
    for ms in [30_000, 29_500] {
        pass(Duration::from_millis(ms)).await;
        settle(&app).await;
        assert_eq!(stage(&storms), waits());
    }
    pass(Duration::from_millis(600)).await;
    settle(&app).await;
    assert_eq!(stage(&storms), ("done".to_owned(), json!("not_written")));
}

#[tokio::test]
async fn rows_that_come_in_time_are_seen_at_the_next_look() {
    let (app, crowd) = (service("1").await, Crowd::new());
    let storms = storms(&app, &Shutdown::default());
    let _held = settling(&app, &crowd, &storms).await;
    still(app.write_orders()).await;
    settle(&app).await;
    assert_eq!(stage(&storms), waits(), "it looks now and then");
    pass(limits::STORM_PERIOD).await;
    settle(&app).await;
    assert_eq!(stage(&storms), ("done".to_owned(), Value::Null));
    assert_eq!(json!(storms.last().as_deref())["verdict"]["word"], "kept");
}

#[tokio::test]
async fn a_redis_that_cannot_tell_the_backlog_is_waited_for_for_ten_seconds() {
    let (app, crowd) = (service("1").await, Crowd::new());
    app.expect_disagreements();
    let storms = storms(&app, &Shutdown::default());
    let _held = settling(&app, &crowd, &storms).await;
    assert_eq!(limits::STORM_AWAY_MAX, Duration::from_secs(10));
    let counts = app.keys().lane(crate::support::lane());
    let aside = format!("{counts}-aside");
    for seconds in [9, 9] {
        // It is away for almost as long, and there again.
        still(app.redis::<redis::Value>(&["RENAME", &counts, &aside])).await;
        still(app.redis::<redis::Value>(&["SET", &counts, "x"])).await;
        pass(Duration::from_secs(seconds)).await;
        settle(&app).await;
        let backlog = json!(storms.last().as_deref())["backlog"].clone();
        assert_eq!((stage(&storms), backlog), (waits(), Value::Null));
        still(app.redis::<redis::Value>(&["RENAME", &aside, &counts])).await;
        pass(limits::STORM_PERIOD).await;
        settle(&app).await;
        assert_eq!(json!(storms.last().as_deref())["backlog"], 2);
    }
    still(app.redis::<redis::Value>(&["SET", &counts, "x"])).await;
    for (seconds, expected) in [(9, waits()), (2, ("done".to_owned(), json!("store_away")))] {
        pass(Duration::from_secs(seconds)).await;
        settle(&app).await;
        assert_eq!(stage(&storms), expected);
    }
}

/// A number that can't be looked up within a second is unknown; the stage is shown before it is looked up.
#[tokio::test]
async fn stores_that_hang_leave_the_stage_shown_and_the_numbers_unknown() {
    let (app, crowd) = (service("1").await, Crowd::new());
    let storms = storms(&app, &Shutdown::default());
    let (coupon, orders) = sold_out(&app).await;
    let held = [
        app.app.stores.pool.acquire().await.expect("Postgres answers"),
        app.app.stores.pool.acquire().await.expect("Postgres answers"),
    ];
    tokio::time::pause();
    // It begins when it is told to: until then, the storm has no sale to look up.
    let begins = "until [ -e \"$0.go\" ]; do sleep 0.01; done; ";
    let script = begins.to_owned() + &prints(&lines_of_three(coupon, orders));
    assert!(storms.start(1, crowd.program(&script), plan(3, 2)));
    pass(Duration::ZERO).await;
    redis_settles(&app).await;
    std::fs::write(crowd.folder.path().join("crowd.go"), "").expect("room on the disk");
    soon("the storm is settling", || stage(&storms).0 == "settling").await;
    pass(limits::STORM_LOOK_MAX).await;
    redis_settles(&app).await;
    let frame = json!(storms.last().as_deref());
    let facts = ["left", "rows", "backlog"].map(|name| frame[name].clone());
    assert_eq!((facts, stage(&storms)), ([const { Value::Null }; 3], waits()));
    let [one, _held] = held;
    drop(one);
    still(app.write_orders()).await;
    pass(limits::STORM_PERIOD).await;
    settle(&app).await;
    assert_eq!(stage(&storms), ("done".to_owned(), Value::Null));
}

/// Each order is looked up while the stage says so.
#[tokio::test]
async fn a_storm_whose_rows_are_written_is_checking_until_each_order_is_looked_up() {
    let (app, crowd) = (TestApp::start().await, Crowd::new());
    let storms = storms(&app, &Shutdown::default());
    let (coupon, orders) = sold_out(&app).await;
    app.write_orders().await;
    let lock = app.holding("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
    let script = prints(&lines_of_three(coupon, orders));
    assert!(storms.start(1, crowd.program(&script), plan(3, 2)));
    eventually("it looks orders up", async || stage(&storms).0 == "checking").await;
    lock.rollback().await.expect("Postgres answers");
    eventually("it is over", async || stage(&storms).0 == "done").await;
    assert_eq!(json!(storms.last().as_deref())["verdict"]["word"], "kept");
    eventually("another one may begin", async || !storms.stop()).await;
}

/// A storm that was held up looks at the stores once, and not for each time that it has missed.
#[tokio::test]
async fn a_storm_that_is_late_follows_its_crowd_with_one_look() {
    let (app, crowd) = (service("1").await, Crowd::new());
    let storms = storms(&app, &Shutdown::default());
    let coupon = app.create_flash(5).await;
    let _held = app.app.stores.pool.acquire().await.expect("Postgres answers");
    tokio::time::pause();
    let script = prints(&[Line::Sale { coupon_id: coupon }]) + "exec sleep 60";
    assert!(storms.start(1, crowd.program(&script), plan(3, 2)));
    let asked = Lines::down_to(tracing::Level::DEBUG);
    let looks = || asked.count("SELECT sold FROM flash_sales WHERE coupon_id = $1");
    let is_running = async || {
        pass(limits::STORM_PERIOD).await;
        settle(&app).await;
        stage(&storms).0 == "running" && looks() > 0
    };
    still(async { while !is_running().await {} }).await;
    let before = looks();
    pass(limits::STORM_PERIOD * 40).await;
    settle(&app).await;
    assert_eq!(looks() - before, 1);
    assert!(storms.stop());
    soon("the storm is done", || stage(&storms).0 == "done").await;
}

/// The window of the sale ends it then, so an operator need only know.
#[tokio::test]
async fn a_sale_of_a_storm_that_cannot_be_ended_is_logged() {
    let (app, crowd) = (service("1").await, Crowd::new());
    let storms = storms(&app, &Shutdown::default());
    let coupon = app.create_flash(5).await;
    let pool = &app.app.stores.pool;
    let held = [
        pool.acquire().await.expect("Postgres answers"),
        pool.acquire().await.expect("Postgres answers"),
    ];
    tokio::time::pause();
    let heard = Lines::heard();
    let script = prints(&[Line::Sale { coupon_id: coupon }]) + "exec sleep 60";
    assert!(storms.start(1, crowd.program(&script), plan(3, 2)));
    still(async {
        while stage(&storms).0 != "running" {
            pass(limits::STORM_LOOK_MAX).await;
            redis_settles(&app).await;
        }
    })
    .await;
    assert!(storms.stop());
    redis_settles(&app).await;
    assert_eq!(heard.count("could not be ended"), 0);
    pass(limits::POSTGRES_ACQUIRE_TIMEOUTS * app.config.stores.database_timeout()).await;
    soon("the storm is done", || stage(&storms).0 == "done").await;
    let [line] = &heard.with("could not be ended")[..] else { panic!("one line") };
    assert!(line.contains(&format!("coupon={coupon}")) && line.contains("WARN"), "{line}");
    drop(held);
    assert_eq!(still(state(&app, coupon)).await, "active");
}
