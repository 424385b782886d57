//! The memory of sold-out sales in a process: refusals without Redis, and never a wrong promise or a forgotten buyer.

use flash_sale::app::start_housekeeping;
use flash_sale::base::clock::Clock;
use flash_sale::store::ids::CouponId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{OwnServers, TestApp, eventually, script_calls, user};

/// Longer than any test: a remembered sale stays remembered.
const LONG: [&str; 2] = ["--sold-out-memory-ms", "60000"];

#[tokio::test]
async fn a_sold_out_sale_is_refused_without_redis_and_its_buyers_are_not() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &LONG, Clock::System).await;
    start_housekeeping(&app.app);
    let coupon = app.create_flash(500).await;
    let mut orders = Vec::new();
    for id in 1..=500 {
        orders.push(app.claim(id, coupon).await.order_id());
    }
    assert_remembered(&app, coupon).await;

    let _: String = app.redis(&["CONFIG", "RESETSTAT"]).await;
    for id in 10_000..20_000 {
        let told = app.app.claims.claim(coupon, user(id)).await.expect("nothing is broken");
        assert_eq!(told.status().code, "sold_out");
        // No claim waits here, and messages of Redis have to be heard in between.
        tokio::task::yield_now().await;
    }
    let asked = script_calls(&app).await;
    assert!(asked <= 10, "Redis was asked {asked} times for 10,000 refusals");
    println!("10,000 refusals asked Redis {asked} times");
    for (id, order) in (1..=500).zip(orders) {
        let repeat = app.claim(id, coupon).await;
        assert_eq!((repeat.refusal(), repeat.order_id()), ((409, "already_claimed"), order));
    }

    // A Redis that hangs can tell of no unit, so the memory ends, however long it is.
    let redis = Pid::from_raw(servers.at.redis_pid);
    kill(redis, Signal::SIGSTOP).expect("it runs");
    eventually("nothing is believed", async || app.claim(30_000, coupon).await.status == 503).await;
    let buyer = app.claim(1, coupon).await;
    kill(redis, Signal::SIGCONT).expect("it runs");
    assert_eq!(buyer.refusal(), (503, "unavailable"));
    eventually("Redis is back", async || app.claim(1, coupon).await.status == 409).await;
    assert_remembered(&app, coupon).await;
}

#[tokio::test]
async fn a_unit_that_comes_back_is_told_to_every_process() {
    let app = TestApp::configured(&LONG).await;
    start_housekeeping(&app.app);
    let coupon = app.create_flash(1).await;
    let order = app.order(1, coupon).await;
    assert_remembered(&app, coupon).await;

    assert_eq!(app.cancel(1, order).await.status, 200);
    assert_eq!(app.release().await, 1);
    // The memory is far longer than this test waits.
    eventually("the sale is asked about again", async || app.claim(2, coupon).await.status == 202)
        .await;
    app.write_orders().await;
}

#[tokio::test]
async fn units_that_come_back_are_sold_within_the_memory_and_their_buyers_are_found() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "200"]).await;
    start_housekeeping(&app.app);
    let coupon = app.create_flash(20).await;
    for id in 1..=20 {
        assert_eq!(app.claim(id, coupon).await.status, 202);
    }
    for (round, back) in (1..=5_i64).zip([1, 2, 3, 4, 5]) {
        assert_remembered(&app, coupon).await;
        // The same as a script that gives units back: the buyer, the stock, and the count, in one step.
        let script = "redis.call('HDEL', KEYS[1], ARGV[1])
            redis.call('HINCRBY', KEYS[2], 'stock', 1)
            return redis.call('HINCRBY', KEYS[2], 'restocks', 1)";
        let buyers = app.shard_of(coupon, back).await;
        let sale = app.keys().coupon(coupon);
        let returns: i64 =
            app.redis(&["EVAL", script, "2", &buyers, &sale, &back.to_string()]).await;
        assert_eq!(returns, round);

        let newcomer = 100 + round;
        let told = async || app.claim(newcomer, coupon).await;
        let mut accepted = told().await;
        eventually("the unit is sold", async || {
            if accepted.status != 202 {
                accepted = told().await;
            }
            accepted.status == 202
        })
        .await;
        assert_eq!(app.claim(900 + round, coupon).await.refusal(), (410, "sold_out"));
        assert_remembered(&app, coupon).await;
        let repeat = told().await;
        let expected = ((409, "already_claimed"), accepted.order_id());
        assert_eq!((repeat.refusal(), repeat.order_id()), expected);
    }
    // Postgres doesn't know of the units that came back.
    app.expect_disagreements();
}

#[tokio::test]
async fn a_redis_that_was_restarted_has_its_buyers_read_anew() {
    let mut servers = OwnServers::durable();
    let memory = ["--sold-out-memory-ms", "400"];
    let app = TestApp::on(&servers.at, &memory, Clock::System).await;
    start_housekeeping(&app.app);
    let coupon = app.create_flash(1).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    assert_remembered(&app, coupon).await;

    // Redis comes back with older data, and another process sells the unit once more.
    servers.kill_redis();
    servers.bring_back();
    let another = app.another_instance().await;
    let buyers = app.keys().buyers(coupon, 0);
    let sale = app.keys().coupon(coupon);
    let script =
        "redis.call('HDEL', KEYS[1], '1') return redis.call('HINCRBY', KEYS[2], 'stock', 1)";
    let again = async || another.claims.claim(coupon, user(2)).await;
    let back = async || {
        another
            .stores
            .fleet
            .first()
            .query::<i64>(redis::cmd("EVAL").arg(script).arg(2).arg(&buyers).arg(&sale))
            .await
    };
    let ping = redis::cmd("PING");
    let answers = async || app.app.stores.fleet.first().query::<String>(&ping).await.is_ok();
    eventually("Redis is back", answers).await;
    app.recover().await;
    assert!(back().await.is_ok());
    assert_eq!(again().await.expect("nothing is broken").status().code, "accepted");

    // The memory of this process runs out, as it has to. (Half-way, one caller is sent to ask, and the next one is
    // refused: two that aren't refused mean the end.)
    let believes = || app.app.memories.first().sold_out.refuses(coupon, user(999_998));
    eventually("the belief has ended", async || !believes() && !believes()).await;
    assert_eq!(app.claim(2, coupon).await.status, 409);
    // Then the process asks again, and reads the buyers again.
    assert_remembered(&app, coupon).await;
    assert!(
        !app.app.memories.first().sold_out.refuses(coupon, user(2)),
        "a buyer is taken for another user"
    );
    app.expect_disagreements();
}

#[tokio::test]
async fn a_crowd_after_the_last_unit_renews_the_belief_with_one_question_at_a_time() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &["--sold-out-memory-ms", "300"], Clock::System).await;
    start_housekeeping(&app.app);
    let coupon = app.create_flash(1).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    assert_remembered(&app, coupon).await;
    let _: String = app.redis(&["CONFIG", "RESETSTAT"]).await;
    let began = tokio::time::Instant::now();
    let mut refused = 0;
    while began.elapsed().as_millis() < 1_500 {
        let crowd = (0..100).map(|n| app.app.claims.claim(coupon, user(1_000 + refused + n)));
        for told in futures_util::future::join_all(crowd).await {
            assert_eq!(told.expect("nothing is broken").status().code, "sold_out");
        }
        refused += 100;
        tokio::task::yield_now().await;
    }
    let took = began.elapsed();
    let asked = script_calls(&app).await;
    println!("{refused} refusals in {took:?} asked Redis {asked} times");
    // It is renewed when half of its time is over.
    assert!(asked <= 2 + 2 * took.as_millis() as i64 / 150, "{asked} questions in {took:?}");
}

/// Waits until the buyers have been read: a newcomer is refused, and no question reaches Redis.
async fn assert_remembered(app: &TestApp, coupon: CouponId) {
    eventually("it is remembered", async || {
        let told = app.claim(999_999, coupon).await;
        assert_eq!(told.refusal(), (410, "sold_out"));
        app.app.memories.first().sold_out.refuses(coupon, user(999_998))
    })
    .await;
}
