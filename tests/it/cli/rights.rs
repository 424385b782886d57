//! The least rights: a service whose user of Redis and role of Postgres have what the documents name, and no more.

use flash_sale::base::clock::Clock;

use crate::support::process::{Process, flash_sale, run, try_claim};
use crate::support::servers::OwnServers;
use crate::support::{TestApp, eventually, lane};

/// The line of docs/guarantees.md that makes the user of Redis, for keys under this prefix.
fn user_of_redis(prefix: &str) -> Vec<String> {
    let document = include_str!("../../../docs/guarantees.md");
    let line =
        document.lines().find_map(|line| line.strip_prefix("user shop ")).expect("it is there");
    let line = line.replace("PASSWORD", "p").replace("fs:", &format!("{prefix}:"));
    line.split(' ').map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_the_rights_that_the_documents_name_sells_recovers_and_satisfies_doctor() {
    let servers = OwnServers::durable();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    app.execute(include_str!("../../../deploy/postgres/roles.sql")).await;
    let lane = app.keys().lane(lane());
    let rule = user_of_redis(lane.split(':').next().expect("a prefix"));
    let words: Vec<&str> =
        ["ACL", "SETUSER", "shop"].into_iter().chain(rule.iter().map(String::as_str)).collect();
    let _: String = app.redis(&words).await;
    let redis = format!("{}?user=shop&pass=p", servers.at.redis_url);
    let postgres = app.database_url();
    let (_, place) = postgres.split_once('@').expect("a role");
    let postgres = format!("postgres://flash_sale_app@{place}");
    let mut stores = app.store_arguments();
    for (flag, url) in [("--redis-url", redis), ("--database-url", postgres)] {
        let at = stores.iter().position(|word| word == flag).expect("it is there");
        stores[at + 1] = url;
    }

    let mut service = flash_sale(&["serve", "--listen", "127.0.0.1:0"]);
    service.args(&stores);
    let mut service = Process::spawn(service);
    let url = service.url().await;
    let coupon = app.create_flash(3).await;
    for user in 1..=3 {
        assert_eq!(try_claim(&app, &url, user, coupon).await.expect("it runs").0, 202);
    }
    eventually("the orders are rows", async || {
        app.number("SELECT count(*) FROM orders").await == 3
    })
    .await;
    let order = app.number("SELECT id FROM orders WHERE user_id = 1").await;
    assert_eq!(app.cancel(1, order).await.status, 200);
    eventually("the unit is back", async || app.stock(coupon).await == 1).await;
    let _: String = app.redis(&["FLUSHALL"]).await;
    eventually("the lane is open again", async || {
        matches!(try_claim(&app, &url, 4, coupon).await, Some((202, _)))
    })
    .await;

    let mut doctor = flash_sale(&["doctor"]);
    doctor.args(&stores);
    let found = run(doctor).await;
    assert!(found.code == Some(0) && !found.stdout.contains("FAIL"), "{found:?}");
    service.assert_stops().await;
}
