//! Processes killed with SIGKILL, at any moment: an answered 202 ends as exactly one row, and the counts stay exact.
//!
//! A worker is killed at the two places that matter: before its commit, and between the commit and the
//! acknowledgement. Locks and a proxy hold it there, so no kill is early or late, however fast the worker is.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use flash_sale::claim::outcome::ClaimOutcome;
use flash_sale::store::ids::CouponId;
use flash_sale::store::postgres;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::time::Instant;

use crate::faults::processes::{assert_sold_exactly, print_recovery};
use crate::support::process::{
    Process, backlog, flash_sale, in_flight, order_id, pending, rows, small_batches, try_claim,
    waiting_writers, written,
};
use crate::support::{TestApp, eventually, proxy_before, store_arguments_behind, user};

const CLAIMS: i64 = 100;

/// The script that acknowledges, as a command names it.
static ACKNOWLEDGE: LazyLock<String> = LazyLock::new(|| {
    redis::Script::new(include_str!("../../../lua/acknowledge.lua")).get_hash().to_owned()
});

#[tokio::test]
async fn killed_before_the_first_row_nothing_is_lost() {
    // The INSERT waits.
    kill_before_commit("orders").await;
}

#[tokio::test]
async fn killed_between_insert_and_commit_nothing_is_lost_and_nothing_is_there_twice() {
    // The rows are in the transaction, and counting them waits.
    kill_before_commit("flash_sales").await;
}

#[tokio::test]
async fn killed_between_commit_and_acknowledgement_nothing_is_written_twice() {
    kill_before_acknowledgement(CLAIMS + 50).await;
}

#[tokio::test]
async fn a_redelivered_batch_of_a_sold_out_sale_is_acknowledged_and_oversells_nothing() {
    kill_before_acknowledgement(CLAIMS).await;
}

#[tokio::test]
async fn a_killed_api_loses_no_202_and_a_retry_finds_out() {
    kill_api(10).await;
}

#[tokio::test]
#[ignore = "long: make faults"]
async fn long_an_api_killed_two_hundred_times_loses_no_202() {
    kill_api(200).await;
}

async fn kill_api(rounds: i64) {
    const USERS: i64 = 30;
    // Number of users who wait for their order. No worker writes it, so the kill cuts their replies.
    const WAITING: i64 = 5;
    let app = TestApp::start().await;
    let stock = rounds * USERS - 20;
    let coupon = app.create_flash(stock).await;
    let mut promised = BTreeMap::new();
    let mut unanswered = 0;
    let mut api = Process::serve(&app, &["--roles", "api"]);
    for round in 0..rounds {
        let url = api.url().await;
        let before = round * USERS;
        let waiting = before + 1..=before + WAITING;
        let waiting = join_all(
            waiting.map(async |user| (user, try_claim_and_wait(&app, &url, user, coupon).await)),
        );
        let killing = async {
            eventually("those who wait have a unit", async || {
                app.buyers_count(coupon).await >= before + WAITING
            })
            .await;
            let mut claims: FuturesUnordered<_> = (before + WAITING + 1..=before + USERS)
                .map(async |user| (user, try_claim(&app, &url, user, coupon).await))
                .collect();
            let mut replies = Vec::new();
            while let Some(reply) = claims.next().await {
                replies.push(reply);
                // Each round kills a little later.
                if replies.len() as i64 == 1 + 2 * (round % 12) {
                    api.kill();
                }
            }
            replies
        };
        let (waited, replies) = tokio::join!(waiting, killing);
        for (user, reply) in waited.into_iter().chain(replies) {
            match reply {
                Some((202, body)) => assert_eq!(promised.insert(user, order_id(&body)), None),
                Some(_) => {}
                None => unanswered += 1,
            }
        }
        // The process that answers the retries is the next one to be killed.
        api = Process::serve(&app, &["--roles", "api"]);
        let url = api.url().await;
        for user in before + 1..=before + USERS {
            retry(&app, &url, user, coupon, &mut promised).await;
        }
    }
    assert!(unanswered >= rounds, "the kills cut hardly anything");
    assert_eq!(promised.len() as i64, stock);
    app.write_orders().await;
    assert_eq!(written(&app).await, promised);
}

#[tokio::test]
async fn a_killed_worker_s_entries_are_written_by_another() {
    let app = TestApp::start().await;
    let promised = backlog(&app, 4_000).await;
    for kills in 1..=4 {
        // Each worker gets as far as this order; 500 users at a time have claimed.
        let lock = lock_order(&app, 500 * kills + 1, &promised).await;
        let mut worker = small_batches(&app);
        eventually("it is in the middle of it", async || waiting_writers(&app).await > 0).await;
        worker.kill();
        assert!(rows(&app).await < 4_000 && pending(&app).await > 0, "killed too late");
        lock.rollback().await.expect("Postgres answers");
        eventually("its transaction is gone", async || waiting_writers(&app).await == 0).await;
    }

    let killed_at = Instant::now();
    let _other = Process::serve(&app, &["--roles", "worker"]);
    eventually("everything is written", async || rows(&app).await == 4_000).await;
    print_recovery("4 workers killed", killed_at);
    eventually("everything is acknowledged", async || pending(&app).await == 0).await;
    assert_eq!(written(&app).await, promised);
    assert_sold_exactly(&app, 4_000).await;
}

async fn kill_before_commit(table: &str) {
    let app = TestApp::start().await;
    let promised = sell(&app, CLAIMS).await;
    let lock = lock_table(&app, table).await;
    let mut worker = Process::serve(&app, &["--roles", "worker"]);
    eventually("its transaction waits for the table", async || waiting_writers(&app).await > 0)
        .await;
    worker.kill();
    // As long as the lock is held no process can commit.
    assert_eq!((in_flight(&app).await, rows(&app).await), (CLAIMS, 0));
    lock.rollback().await.expect("Postgres answers");
    eventually("its transaction is gone", async || waiting_writers(&app).await == 0).await;
    assert_eq!((in_flight(&app).await, rows(&app).await), (CLAIMS, 0));

    let _other = Process::serve(&app, &["--roles", "worker"]);
    eventually("everything is written", async || rows(&app).await == CLAIMS).await;
    assert_finished(&app, &promised).await;
}

async fn kill_before_acknowledgement(stock: i64) {
    let app = TestApp::start().await;
    let promised = sell(&app, stock).await;
    let proxy = proxy_before(&app, &ACKNOWLEDGE).await;
    proxy.hold();
    let arguments = ["serve", "--roles", "worker", "--database-connections", "5"];
    let arguments =
        [&arguments.map(str::to_owned)[..], &store_arguments_behind(&app, &proxy)].concat();
    let mut worker = Process::spawn(flash_sale(&arguments));
    eventually("its acknowledgement is held back", async || proxy.held() > 0).await;
    // The worker acknowledges only committed entries: all, unless it had to halve its batch.
    let committed = written(&app).await;
    assert!(!committed.is_empty());
    worker.kill();
    drop(proxy);
    assert_eq!(in_flight(&app).await, CLAIMS);
    assert!(committed.iter().all(|(user, order)| promised[user] == *order));

    let other = Process::serve(&app, &["--roles", "worker", "--admin-listen", "127.0.0.1:0"]);
    assert_finished(&app, &promised).await;
    // The other worker was given them again, and found them to be rows.
    let line = other.logged("/metrics, /livez and /readyz listen on ").await;
    let url = line.split(" listen on ").nth(1).expect("it is in the line");
    eventually("it has counted them", async || repeated(&app, url).await >= committed.len() as u64)
        .await;
}

/// Entries that the worker under `url` found to be rows already.
async fn repeated(app: &TestApp, url: &str) -> u64 {
    let page = app.client().get(format!("{url}/metrics")).send().await.expect("it listens");
    let page = page.text().await.expect("the body arrives");
    let count =
        page.lines().find_map(|line| line.strip_prefix("flash_sale_orders_repeated_total "));
    count.and_then(|count| count.parse().ok()).expect("the counter is on the page")
}

/// Checks that every promise is one row, that every unit is counted once, and that the group has no entry left.
async fn assert_finished(app: &TestApp, promised: &BTreeMap<i64, i64>) {
    eventually("everything is acknowledged", async || pending(app).await == 0).await;
    assert_eq!(&written(app).await, promised);
    assert_sold_exactly(app, CLAIMS).await;
}

/// A sale of `stock` units, of which users 1 to [`CLAIMS`] have one each. Returns the order id of each.
async fn sell(app: &TestApp, stock: i64) -> BTreeMap<i64, i64> {
    let coupon = app.create_flash(stock).await;
    let claims = (1..=CLAIMS).map(async |id| match app.app.claims.claim(coupon, user(id)).await {
        Ok(ClaimOutcome::Accepted(order)) => (id, order.get()),
        other => panic!("{other:?}"),
    });
    join_all(claims).await.into_iter().collect()
}

/// Claims again after a reply may have been cut: the answer has to fit what was promised before.
async fn retry(
    app: &TestApp,
    url: &str,
    user: i64,
    coupon: CouponId,
    promised: &mut BTreeMap<i64, i64>,
) {
    let (status, body) = try_claim(app, url, user, coupon).await.expect("it runs");
    match status {
        202 => assert_eq!(promised.insert(user, order_id(&body)), None),
        409 => {
            let order = order_id(&body);
            assert_eq!(body["code"], "already_claimed");
            assert_eq!(*promised.entry(user).or_insert(order), order);
        }
        _ => {
            assert_eq!(body["code"], "sold_out");
            assert_eq!(promised.get(&user), None);
        }
    }
}

/// A claim that is answered when its order has been written.
async fn try_claim_and_wait(
    app: &TestApp,
    url: &str,
    user: i64,
    coupon: CouponId,
) -> Option<(u16, Value)> {
    let request = app.client().post(format!("{url}/v1/coupons/{coupon}/claims"));
    let request = request.bearer_auth(app.token(user)).header("prefer", "wait=10");
    let reply = request.send().await.ok()?;
    let status = reply.status().as_u16();
    Some((status, reply.json().await.ok()?))
}

/// Holds the place of one order: a worker gets as far as the batch with that order, and then waits.
async fn lock_order(
    app: &TestApp,
    user: i64,
    promised: &BTreeMap<i64, i64>,
) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let order = promised[&user];
    lock(
        app,
        &format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
             SELECT {order}, coupon_id, kind, {user}, now() FROM flash_sales"
        ),
    )
    .await
}

/// Lets every session read the table and none write to it.
async fn lock_table(app: &TestApp, table: &str) -> sqlx::Transaction<'static, sqlx::Postgres> {
    lock(app, &format!("LOCK TABLE {table} IN EXCLUSIVE MODE")).await
}

/// Runs a statement whose locks are held until the transaction ends.
async fn lock(app: &TestApp, statement: &str) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut lock = postgres::begin(&app.app.stores.pool).await.expect("Postgres answers");
    let statement = format!("SET LOCAL idle_in_transaction_session_timeout = 0; {statement}");
    let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement));
    statement.execute(&mut *lock).await.expect("Postgres answers");
    lock
}
