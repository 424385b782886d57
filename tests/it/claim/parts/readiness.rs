//! Readiness of a process for claims.

use flash_sale::base::clock::Clock;
use flash_sale::sale::claim::readiness::{ReadyReport, ReadyStatus};

use crate::support::{OwnServers, TestApp};

#[tokio::test]
async fn check_of_a_process_that_is_about_to_stop_is_unavailable() {
    let app = TestApp::start().await;
    let ready = app.app.readiness.check().await;
    assert_eq!(ready.status, ReadyStatus::Ready);
    let good = [&ready.redis, &ready.postgres, &ready.backlog, &ready.lanes, &ready.durability];
    assert!(good.iter().all(|it| **it == "ok") && ready.process == "ok", "{ready:?}");

    app.app.shutdown.announce();
    let stopping = app.app.readiness.check().await;
    let (status, process) = (ReadyStatus::Unavailable, "stopping".to_owned());
    assert_eq!(stopping, ReadyReport { status, process, ..ready });
}

/// A replica can be read, so only the attempt tells.
#[tokio::test]
async fn check_of_a_process_whose_redis_has_become_a_replica_is_unavailable() {
    let servers = OwnServers::start();
    let app = TestApp::on(&servers.at, &[], Clock::System).await;
    app.expect_disagreements();
    assert_eq!(app.app.readiness.check().await.status, ReadyStatus::Ready);
    let _: String = app.redis(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let report = app.app.readiness.check().await;
    assert_eq!(report.status, ReadyStatus::Unavailable);
    assert_eq!(report.redis, "is a replica, which takes no writes");
    assert_eq!((&*report.backlog, &*report.postgres, &*report.process), ("unknown", "ok", "ok"));
}

#[tokio::test]
async fn check_of_a_process_with_a_full_backlog_is_unavailable() {
    let app = TestApp::configured(&["--backlog-orders-max", "2"]).await;
    let coupon = app.create_flash(10).await;
    for (claims, full) in
        [(1, None), (2, Some("overloaded: 2 orders wait to be written, at most 2 may"))]
    {
        assert_eq!(app.claim(claims, coupon).await.status, 202);
        let report = app.app.readiness.check().await;
        let status = if full.is_some() { ReadyStatus::Unavailable } else { ReadyStatus::Ready };
        assert_eq!((report.status, &*report.backlog), (status, full.unwrap_or("ok")));
        assert_eq!((&*report.redis, &*report.process), ("ok", "ok"));
    }
    app.write_orders().await;
    assert_eq!(app.app.readiness.check().await.status, ReadyStatus::Ready);
}

/// Claims are taken without Postgres.
#[tokio::test]
async fn check_without_postgres_is_degraded_and_learn_lanes_says_so() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    assert!(app.app.readiness.learn_lanes().await);
    let good = app.app.readiness.check().await;
    app.app.stores.pool.close().await;
    assert!(!app.app.readiness.learn_lanes().await);
    let (status, postgres) = (ReadyStatus::Degraded, "can't be reached".to_owned());
    assert_eq!(app.app.readiness.check().await, ReadyReport { status, postgres, ..good });
}

#[tokio::test]
async fn learn_lanes_has_the_logs_of_new_lanes_looked_at() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let logs = async || app.app.backlog.states().await.expect("Redis answers").len();
    let of_one = logs().await;
    app.execute("UPDATE settings SET lanes = 2").await;
    assert_eq!(logs().await, of_one);
    assert!(app.app.readiness.learn_lanes().await);
    assert_eq!(logs().await, 2 * of_one);
}

/// A lane that is closed, and a durability that can't be kept, hold up some claims.
#[tokio::test]
async fn check_of_a_process_with_a_recovering_lane_or_without_its_durability_is_degraded() {
    let app = TestApp::configured(&["--lanes", "3"]).await;
    app.expect_disagreements();
    let good = app.app.readiness.check().await;
    assert_eq!(good.status, ReadyStatus::Ready);
    let status = ReadyStatus::Degraded;
    for (closed, lanes) in [("1", "recovering: 1"), ("0, 2", "recovering: 0, 2")] {
        app.execute(&format!(
            "UPDATE lanes SET state = 'open';
             UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'x' WHERE lane IN ({closed})"
        ))
        .await;
        app.app.lanes.read_now().await.expect("Postgres answers");
        let report = app.app.readiness.check().await;
        assert_eq!(report, ReadyReport { status, lanes: lanes.to_owned(), ..good.clone() });
    }

    // A server of tests syncs nothing.
    let app = TestApp::configured(&["--durability", "fsync"]).await;
    let durability =
        "fsync isn't kept: Redis has no appendonly yes with appendfsync always".to_owned();
    let report = app.app.readiness.check().await;
    assert_eq!(report, ReadyReport { status, durability, ..good });
}

/// A table that isn't there is no answer about the lanes.
#[tokio::test]
async fn learn_lanes_fails_without_the_settings() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    app.execute("ALTER TABLE settings RENAME TO away").await;
    assert!(!app.app.readiness.learn_lanes().await);
    assert_eq!(app.app.readiness.check().await.status, ReadyStatus::Degraded);
}
