//! Order ids: unique with any clocks and instances, and a clear failure where they can't be.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::kit::id::{Ceilings, IdError, IdGenerator};
use flash_sale::kit::redis::Redis;
use flash_sale::sale::claim::outcome::ClaimOutcome;
use private_servers::testing::RedisServer;

use crate::support::process::{Process, flash_sale, try_claim};
use crate::support::servers::Addresses;
use crate::support::{OwnServers, TestApp, eventually, now, shared};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a valid time")
}

pub fn generator(app: &TestApp, sequence: &str, block: u32, clock: &Clock) -> IdGenerator {
    let ceilings = Ceilings::new(app.app.stores.pool.clone(), limits::POSTGRES_TIMEOUT * 10);
    IdGenerator::new(sequence.to_owned(), block, clock.clone(), ceilings)
}

fn of_orders(app: &TestApp, block: u32, clock: &Clock) -> IdGenerator {
    generator(app, &app.keys().order_sequence(), block, clock)
}

fn number(id: i64) -> i64 {
    id & 0xffff_ffff
}

#[tokio::test]
async fn ids_of_several_instances_are_unique() {
    let app = TestApp::start().await;
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
    let link = app.app.stores.redis.link().await.unwrap();
    let generators: Vec<_> =
        [1, 7, 100].iter().map(|block| of_orders(&app, *block, &clock)).collect();
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
    let ids = of_orders(&app, 100, &clock);
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
        assert_eq!(sequence, 200, "{day}: two blocks, because the clock came back");
        for key in [&key, &format!("{{{key}}}:ceiling")] {
            let expires: i64 = app.redis(&["TTL", key]).await;
            assert!(expires > 0, "{key} is kept for ever");
        }
    }
}

/// Two servers under one ceiling, as a master and the server that succeeds it: neither gives a number of the other.
#[tokio::test]
async fn two_servers_never_give_the_same_number() {
    let app = TestApp::start().await;
    let other = OwnServers::start();
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
    let first = app.app.stores.redis.link().await.unwrap();
    let second = Redis::new(&other.at.redis_url).unwrap().link().await.unwrap();
    let mut seen = HashSet::new();
    for _ in 0..3 {
        for link in [&first, &second] {
            // Each with a block of its own, and more than one grant has room for.
            for block in [100_000, 100_000, 100_000, 7] {
                let id = of_orders(&app, block, &clock).next(link).await.unwrap();
                for number in number(id)..number(id) + i64::from(block) {
                    assert!(seen.insert(number), "{number} came twice");
                }
            }
        }
    }
}

/// As that of a machine that is set back to a snapshot.
#[tokio::test]
async fn a_memory_that_went_back_within_one_life_gives_no_number_twice() {
    let app = TestApp::start().await;
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
    let link = app.app.stores.redis.link().await.unwrap();
    let instances = [of_orders(&app, 10, &clock), of_orders(&app, 10, &clock)];
    let sequence = format!("{}:2026:11:21", app.keys().order_sequence());
    let ceiling = format!("{{{sequence}}}:ceiling");
    let mut seen = HashSet::new();
    for first in [0, 1] {
        let number: Option<String> = app.redis(&["GET", &sequence]).await;
        let last: Option<String> = app.redis(&["HGET", &ceiling, "last"]).await;
        for instance in [0, 1, 0, 1] {
            for _ in 0..25 {
                let id = instances[instance].next(&link).await.unwrap();
                assert!(seen.insert(id), "{id} came twice");
            }
        }
        if let Some((number, last)) = number.zip(last) {
            let _: String = app.redis(&["SET", &sequence, &number]).await;
            let _: i64 = app.redis(&["HSET", &ceiling, "last", &last]).await;
        }
        for instance in [first, 1 - first] {
            for _ in 0..35 {
                let id = instances[instance].next(&link).await.unwrap();
                assert!(seen.insert(id), "{id} came twice");
            }
        }
    }
}

#[tokio::test]
async fn a_ceiling_is_noted_before_a_number_is_given_and_raised_ahead_of_need() {
    let clock = Clock::manual(at("2026-11-21T22:30:00Z"));
    let server = RedisServer::start(&[]);
    let servers = Addresses { redis_url: server.url(), ..shared().clone() };
    let app = TestApp::on(&servers, &[], clock.clone()).await;
    let link = app.app.stores.redis.link().await.unwrap();
    let key = format!("{}:2026:11:21", app.keys().order_sequence());
    // An older version has handed these out.
    let _: String = app.redis(&["SET", &key, "5000"]).await;
    let ceilings = "SELECT coalesce(sum(ceiling), 0)::bigint FROM id_ceilings";
    let ids = of_orders(&app, 10, &clock);
    assert_eq!(number(ids.next(&link).await.unwrap()), 5_001);
    assert_eq!(app.number(ceilings).await, 5_000 + limits::ID_NUMBERS_GRANTED);
    ids.prepare(&link).await.unwrap();
    assert_eq!(app.number(ceilings).await, 5_000 + limits::ID_NUMBERS_GRANTED, "there is room");
    assert_eq!(number(of_orders(&app, 100_000, &clock).next(&link).await.unwrap()), 5_011);
    assert_eq!(number(of_orders(&app, 100_000, &clock).next(&link).await.unwrap()), 105_011);
    ids.prepare(&link).await.unwrap();
    assert_eq!(app.number(ceilings).await, 5_000 + 2 * limits::ID_NUMBERS_GRANTED);
    clock.set(at("2026-11-21T23:00:00Z"));
    ids.prepare(&link).await.unwrap();
    assert_eq!(app.number(ceilings).await, 5_000 + 3 * limits::ID_NUMBERS_GRANTED, "tomorrow's");

    app.execute("ALTER TABLE id_ceilings RENAME TO away").await;
    clock.set(at("2026-11-22T00:00:00Z"));
    for expected in [1, 2] {
        assert_eq!(number(ids.next(&link).await.unwrap()), expected, "Postgres isn't needed");
    }
    // Without any ceiling there is no number.
    let _: String = app.redis(&["FLUSHALL"]).await;
    for expected in 3..=10 {
        assert_eq!(number(ids.next(&link).await.unwrap()), expected, "a block stays good");
    }
    let refused = ids.next(&link).await;
    assert!(matches!(refused, Err(IdError::Postgres(_))), "{refused:?}");
    app.execute("ALTER TABLE away RENAME TO id_ceilings").await;
    let above = limits::ID_NUMBERS_GRANTED + 1;
    assert_eq!(number(ids.next(&link).await.unwrap()), above);
    // A sequence alone is known from its ceiling.
    let key = format!("{}:2026:11:22", app.keys().order_sequence());
    let _: i64 = app.redis(&["DEL", &key]).await;
    assert_eq!(number(of_orders(&app, 1, &clock).next(&link).await.unwrap()), above + 10);
}

/// Sells under a clock that stands still, so that every id carries the same second; Redis can go back.
#[tokio::test]
async fn ids_that_were_told_are_never_told_again_after_a_roll_back() {
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
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
            assert!(told.insert(order), "order {order} was told twice");
        }
    };
    sell(&[&app.app, &another], 40).await;
    let _: String = app.redis(&["SAVE"]).await;
    for round in 0..3 {
        sell(&[&app.app, &another], 400).await;
        server.kill();
        server.start_again();
        for app in [&app.app, &another] {
            let ping = redis::cmd("PING");
            let answers = async || app.stores.redis.query::<String>(&ping).await.is_ok();
            eventually("the old connection has been noticed to be gone", answers).await;
        }
        if round == 2 {
            let _: String = app.redis(&["FLUSHALL"]).await;
        }
        app.recover().await;
        // A process that knows no number begins, then those that have blocks go on.
        let new = app.another_instance_at(clock.clone()).await;
        for app in [&new, &another] {
            app.lanes.read_now().await.expect("Postgres answers");
        }
        sell(&[&new, &another, &app.app], 60).await;
    }
}

/// Two processes, a Redis that loses everything with each life, and no more than a few claims in each.
#[tokio::test]
async fn many_lives_in_a_row_leave_most_numbers_of_the_day() {
    const LIVES: i64 = 6;
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
    let mut server = RedisServer::start(&[]);
    let servers = Addresses { redis_url: server.url(), ..shared().clone() };
    let app = TestApp::on(&servers, &[], clock.clone()).await;
    let instances = [of_orders(&app, 100, &clock), of_orders(&app, 100, &clock)];
    let mut last = 0;
    for life in 0..LIVES {
        let ping = redis::cmd("PING");
        let answers = async || app.app.stores.redis.query::<String>(&ping).await.is_ok();
        eventually("Redis answers", answers).await;
        let link = app.app.stores.redis.link().await.expect("Redis answers");
        for instance in &instances {
            // The block of the life before is dropped, as by a recovery.
            instance.enter(life);
            instance.prepare(&link).await.expect("both stores answer");
            last = last.max(number(instance.next(&link).await.expect("both stores answer")));
        }
        server.kill();
        server.start_again();
    }
    let ceiling = app.number("SELECT max(ceiling) FROM id_ceilings").await;
    assert!(last < ceiling && ceiling <= LIVES * limits::ID_NUMBERS_GRANTED, "{last} of {ceiling}");
    assert!(limits::ID_LIVES_A_DAY * (ceiling / LIVES) <= 1 << 31, "half of the day is left");
}

#[tokio::test]
async fn a_full_day_is_a_failure_and_no_wrapped_id() {
    let app = TestApp::start().await;
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
    let link = app.app.stores.redis.link().await.unwrap();
    let key = format!("{}:2026:11:21", app.keys().order_sequence());
    let ids = of_orders(&app, 1, &clock);
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
    // Shortly before midnight, tomorrow's sequence is there, too: no number has been taken from it.
    for key in app.redis::<Vec<String>>(&["KEYS", &format!("{sequences}:*")]).await {
        let last: u64 = app.redis(&["GET", &key]).await;
        assert!(last == 0 || days.contains(&key), "{key}: {last}");
    }
}

/// A ceiling is raised by one grant at a time, and three times for one block.
#[tokio::test]
async fn a_block_takes_three_grants_at_most() {
    let clock = Clock::manual(at("2026-11-21T12:00:00Z"));
    for (more, is_taken) in [(0, true), (1, false)] {
        let app = TestApp::start().await;
        let link = app.app.stores.redis.link().await.expect("Redis answers");
        let block = u32::try_from(3 * limits::ID_NUMBERS_GRANTED + more).expect("a number");
        match of_orders(&app, block, &clock).next(&link).await {
            Ok(id) => assert!(is_taken && number(id) == 1, "{id}"),
            refused => assert!(matches!(refused, Err(IdError::Unsettled)) && !is_taken),
        }
    }
}
