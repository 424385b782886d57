//! Order ids: unique with any clocks and instances, and a clear failure where they can't be.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::kit::id::{IdError, IdGenerator};
use flash_sale::kit::redis::{Link, Redis};
use flash_sale::sale::claim::outcome::ClaimOutcome;
use private_servers::testing::RedisServer;

use crate::support::process::{Process, flash_sale, try_claim};
use crate::support::servers::Addresses;
use crate::support::{OwnServers, TestApp, eventually, now, shared};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a valid time")
}

fn generator(app: &TestApp, block: u32, clock: &Clock) -> IdGenerator {
    IdGenerator::new(app.keys().order_sequence(), block, clock.clone())
}

#[tokio::test]
async fn ids_of_several_instances_are_unique() {
    let app = TestApp::start().await;
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
    let link = app.app.stores.redis.link().await.unwrap();
    let generators: Vec<_> =
        [1, 7, 100].iter().map(|block| generator(&app, *block, &clock)).collect();
    let mut ids = HashSet::new();
    for _ in 0..50 {
        let next = generators.iter().flat_map(|generator| (0..4).map(|_| generator.next(&link)));
        for id in futures_util::future::join_all(next).await {
            assert!(ids.insert(id.unwrap()), "an id came twice");
        }
    }
    assert_eq!(ids.len(), 600);
}

#[tokio::test]
async fn a_day_has_its_own_sequence_and_a_clock_set_back_keeps_ids_unique() {
    let app = TestApp::start().await;
    let clock = Clock::manual(at("2026-11-21T23:59:59.999Z"));
    let link = app.app.stores.redis.link().await.unwrap();
    let ids = generator(&app, 100, &clock);
    let mut seen = HashSet::new();
    for time in [
        "2026-11-21T23:59:59.999Z",
        "2026-11-22T00:00:00Z",
        "2026-11-21T23:59:59.999Z",
        "2026-11-22T00:00:00Z",
    ] {
        clock.set(at(time));
        for _ in 0..3 {
            assert!(seen.insert(ids.next(&link).await.unwrap()), "{time}");
        }
    }
    for day in ["2026:11:21", "2026:11:22"] {
        let key = format!("{}:{day}", app.keys().order_sequence());
        let sequence: i64 = app.redis(&["GET", &key]).await;
        let blocks = sequence % (100 * limits::ID_BLOCKS_LEFT_OUT);
        assert_eq!(blocks, 200, "{day}: two blocks, because the clock came back");
        let expires: i64 = app.redis(&["TTL", &key]).await;
        assert!(expires > 0, "{day} is kept for ever");
    }
}

#[tokio::test]
async fn a_block_dies_with_the_redis_that_gave_it() {
    let app = TestApp::start().await;
    let other = OwnServers::start();
    let first = app.app.stores.redis.clone();
    let second = Redis::new(&other.at.redis_url).unwrap();
    let ids = generator(&app, 100, &Clock::manual(at("2026-11-21T12:00:00Z")));
    let key = format!("{}:2026:11:21", app.keys().order_sequence());
    // The other Redis is told the highest known number, as by a rebuild.
    let _: () = second.query(redis::cmd("SET").arg(&key).arg(5_000)).await.unwrap();

    let number = |id: i64| id & 0xffff_ffff;
    let first = first.link().await.unwrap();
    let second = second.link().await.unwrap();
    let before = number(ids.next(&first).await.unwrap());
    // In a life that isn't known yet, the numbers that other instances may have had are left out.
    let room = 100 * limits::ID_BLOCKS_LEFT_OUT;
    let raised = number(ids.next(&second).await.unwrap());
    assert_eq!(raised, before.max(5_000) + room + if before > 5_000 { 100 } else { 1 });
    assert_eq!(number(ids.next(&second).await.unwrap()), raised + 1);
    // The same life, for the next caller.
    let another = generator(&app, 100, &Clock::manual(at("2026-11-21T12:00:00Z")));
    assert_eq!(number(another.next(&second).await.unwrap()), raised + 100);
}

/// Sells under a clock that stands still, so that every id carries the same second; Redis can go back.
#[tokio::test]
async fn ids_that_were_told_are_never_told_again_after_a_roll_back() {
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
    for what_they_know in ["themselves", "the orders", "the log"] {
        let mut server = RedisServer::start(&[]);
        let servers = Addresses { redis_url: server.url(), ..shared().clone() };
        let app = TestApp::on(&servers, &[], clock.clone()).await;
        app.expect_disagreements();
        let coupon = app.create_flash(2_000).await;
        let another = app.another_instance_at(clock.clone()).await;
        let mut told = HashSet::new();
        let mut user = 0;
        let mut sell = async |apps: &[&App], claims: i64| {
            for app in apps.iter().cycle().take(usize::try_from(claims).unwrap()) {
                user += 1;
                let outcome = app.claims.claim(coupon, crate::support::user(user)).await.unwrap();
                let ClaimOutcome::Accepted(order) = outcome else { panic!("{outcome:?}") };
                assert!(told.insert(order), "{what_they_know}: order {order} was told twice");
            }
        };
        sell(&[&app.app, &another], 40).await;
        let _: String = app.redis(&["SAVE"]).await;
        for _ in 0..3 {
            sell(&[&app.app, &another], 400).await;
            let news = match what_they_know {
                "the orders" => app.write_orders().await.inserted,
                _ => 0,
            };
            println!("{what_they_know}: {news} orders are written when Redis goes back");
            // This process has sold nothing: it has read the ids that it knows. The log goes back, too.
            let reader = app.another_instance_at(clock.clone()).await;
            server.kill();
            server.start_again();
            for app in [&app.app, &another] {
                let ping = redis::cmd("PING");
                let answers = async || app.stores.redis.query::<String>(&ping).await.is_ok();
                eventually("the old connection has been noticed to be gone", answers).await;
            }
            app.recover().await;
            let first = match what_they_know {
                "themselves" => another.clone(),
                "the orders" => app.another_instance_at(clock.clone()).await,
                _ => reader,
            };
            for app in [&first, &another] {
                app.lanes.read_now().await.expect("Postgres answers");
            }
            sell(&[&first, &another, &app.app], 60).await;
        }
    }
}

#[tokio::test]
async fn a_life_of_redis_leaves_room_once_and_a_new_day_none() {
    let servers = OwnServers::start();
    let redis = Redis::new(&servers.at.redis_url).unwrap();
    let link = redis.link().await.unwrap();
    let number = |id: i64| id & 0xffff_ffff;
    // A day that begins after this life of Redis did: its sequence has only begun.
    let clock = Clock::manual(now() + TimeDelta::days(2));
    for expected in [1, 11, 21] {
        let ids = IdGenerator::new("room".to_owned(), 10, clock.clone());
        assert_eq!(number(ids.next(&link).await.unwrap()), expected);
    }
    // An instance takes ids above those that it learns from the stores, without any new life.
    let ids = IdGenerator::new("room".to_owned(), 10, clock.clone());
    let known = ids.next(&link).await.unwrap() + 500;
    ids.learn(known);
    let room = 10 * limits::ID_BLOCKS_LEFT_OUT;
    let next = generator_after(&ids, &link).await;
    assert_eq!(number(next), number(known) + room + 1);
}

/// The first id of the next block.
async fn generator_after(ids: &IdGenerator, link: &Link) -> i64 {
    for _ in 0..9 {
        ids.next(link).await.unwrap();
    }
    ids.next(link).await.unwrap()
}

#[tokio::test]
async fn a_full_day_is_a_failure_and_no_wrapped_id() {
    let app = TestApp::start().await;
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
    let link = app.app.stores.redis.link().await.unwrap();
    let key = format!("{}:2026:11:21", app.keys().order_sequence());
    let ids = generator(&app, 1, &clock);
    ids.next(&link).await.unwrap();
    let _: String = app.redis(&["SET", &key, &(u32::MAX - 1).to_string()]).await;
    assert_eq!(ids.next(&link).await.unwrap() & 0xffff_ffff, i64::from(u32::MAX));
    let refused = ids.next(&link).await;
    assert!(matches!(refused, Err(IdError::SequenceExhausted(_))), "{refused:?}");
    // Tomorrow is another day.
    clock.set(at("2026-11-21T12:00:00Z") + TimeDelta::days(1));
    assert!(ids.next(&link).await.is_ok());
}

#[tokio::test]
async fn claims_go_on_over_midnight() {
    let clock = Clock::manual(at("2026-12-31T23:59:59Z"));
    let app = TestApp::on(shared(), &[], clock.clone()).await;
    let coupon = app.create_flash(10).await;
    let before = app.claim(1, coupon).await.order_id();
    clock.set(at("2027-01-01T00:00:00Z"));
    let after = app.claim(2, coupon).await.order_id();
    assert_eq!(after >> 32, (before >> 32) + 1);
    clock.set(at("2021-01-01T00:00:00Z"));
    assert_eq!(app.claim(3, coupon).await.refusal(), (503, "unavailable"));
}

#[tokio::test]
async fn the_day_of_a_sequence_is_that_of_utc_in_every_time_zone() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(2).await;
    let sequences = app.keys().order_sequence();
    let before = now().date_naive();
    // Fourteen hours ahead of UTC and twelve behind: at any time one of them has another day.
    for (user, zone) in [(1, "AHEAD-14"), (2, "BEHIND+12")] {
        let mut command = flash_sale(&["serve", "--listen", "127.0.0.1:0", "--roles", "api"]);
        command.args(["--database-connections", "5"]).args(app.store_arguments()).env("TZ", zone);
        let api = Process::spawn(command);
        let reply = try_claim(&app, &api.url().await, user, coupon).await;
        assert_eq!(reply.map(|(status, _)| status), Some(202), "{zone}");
    }
    let days = [before, now().date_naive()];
    let days = days.map(|day| format!("{sequences}:{}", day.format("%Y:%m:%d")));
    let used: Vec<String> = app.redis(&["KEYS", &format!("{sequences}:*")]).await;
    assert!(used.iter().all(|key| days.contains(key)), "{used:?}");
}
