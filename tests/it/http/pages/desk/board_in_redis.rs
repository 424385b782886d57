//! Facts of Redis on the board: sales, logs and processes; and a Redis that can't be read.

use flash_sale::base::clock::Clock;
use flash_sale::sale::board::presence::{ClaimCounts, Second, Word};
use flash_sale::sale::ids::{CouponId, Lane};
use serde_json::{Value, json};

use super::{Desk, archive, line, service, still, there};
use crate::support::{OwnServers, TestApp};

/// Seconds after the beginning at which the units of a sale were last counted.
fn counted(desk: &Desk, board: &Value, coupon: CouponId) -> Option<i64> {
    let at = line(board, coupon)["units"]["at"].as_i64()?;
    Some((at - desk.at(0)) / 1_000)
}

/// A sale that Redis need not hold for two looks is forgotten, and counted anew with the next one.
#[tokio::test]
async fn units_of_a_sale_are_counted_at_each_fifth_look_and_at_once_where_they_are_unknown() {
    let app = service("1").await;
    app.expect_disagreements();
    let mut coupons = Vec::new();
    for _ in 0..3 {
        coupons.push(app.create_flash(5).await);
    }
    let [kept, gone, new] = coupons[..] else { panic!("three") };
    archive(&app, new, true).await;
    let desk = Desk::over(app).await;
    let (mut watching, first) = desk.opened().await;
    let mut seen = vec![[kept, gone, new].map(|coupon| counted(&desk, &first, coupon))];
    for second in 1..=12 {
        match second {
            6 => archive(&desk.app, gone, true).await,
            8 => {
                archive(&desk.app, gone, false).await;
                archive(&desk.app, new, false).await;
            }
            _ => {}
        }
        let board = desk.next(&mut watching).await;
        seen.push([kept, gone, new].map(|coupon| counted(&desk, &board, coupon)));
    }
    let column = |number: usize| seen.iter().map(|row| row[number].unwrap_or(-1)).collect();
    let columns: [Vec<i64>; 3] = [0, 1, 2].map(column);
    assert_eq!(columns[0], [0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10], "the one that stays");
    assert_eq!(columns[1], [0, 0, 0, 0, 0, 0, 5, 5, -1, -1, 9, 10, 10], "the one that goes");
    assert_eq!(columns[2], [-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 9, 10, 10], "the new one");
}

/// Looks without a sale are none of the five.
#[tokio::test]
async fn looks_at_no_sale_do_not_count_for_its_next_census() {
    let app = service("1").await;
    app.expect_disagreements();
    let coupon = app.create_flash(5).await;
    archive(&app, coupon, true).await;
    let desk = Desk::over(app).await;
    let (mut watching, first) = desk.opened().await;
    let mut seen = vec![counted(&desk, &first, coupon).unwrap_or(-1)];
    for second in 1..=9 {
        if second == 2 {
            archive(&desk.app, coupon, false).await;
        }
        let board = desk.next(&mut watching).await;
        seen.push(counted(&desk, &board, coupon).unwrap_or(-1));
    }
    assert_eq!(seen, [-1, -1, -1, -1, 3, 3, 3, 3, 3, 8]);
}

/// The board tells the terms that decide claims of each sale that Redis has, and those of Postgres of each other one.
#[tokio::test]
async fn terms_of_a_sale_are_those_of_redis_where_it_has_them() {
    let app = service("1").await;
    app.expect_disagreements();
    let mut coupons = Vec::new();
    for _ in 0..7 {
        coupons.push(app.create_flash(5).await);
    }
    let keys = app.keys();
    let [older, same, newer, unreadable, without_buyers, not_there, archived] = coupons[..] else {
        panic!("seven")
    };
    archive(&app, archived, true).await;
    app.execute("UPDATE flash_sales SET applied_revision = 1").await;
    app.execute(&format!("UPDATE coupons SET revision = 2 WHERE id = {not_there}")).await;
    for (coupon, revision) in [(older, "0"), (same, "1"), (newer, "2")] {
        let key = keys.coupon(coupon);
        let terms = ["state", "paused", "total", "9", "stock", "4", "opens_ms", "1000"];
        let terms = [&terms[..], &["closes_ms", "2000", "revision", revision]].concat();
        let _: i64 = app.redis(&[&["HSET", &key], &terms[..]].concat()).await;
    }
    let _: String = app.redis(&["SET", &keys.coupon(unreadable), "x"]).await;
    let _: String = app.redis(&["SET", &keys.buyers(without_buyers, 0), "x"]).await;
    let _: i64 = app.redis(&["DEL", &keys.coupon(not_there)]).await;
    let desk = Desk::over(app).await;
    let (_, board) = desk.opened().await;
    for (coupon, is_pending) in [(older, true), (same, false), (newer, false)] {
        let told = line(&board, coupon);
        assert_eq!((&told["state"], &told["is_pending"]), (&json!("paused"), &json!(is_pending)));
        let numbers = ["total", "left", "opens_ms", "closes_ms"].map(|name| told[name].as_i64());
        assert_eq!(numbers, [Some(9), Some(4), Some(1_000), Some(2_000)], "{told}");
        assert_eq!((&told["revision"], &told["in_redis"]), (&json!(1), &json!(true)));
    }
    for (coupon, left) in [
        (unreadable, Value::Null),
        (without_buyers, json!(5)),
        (not_there, Value::Null),
        (archived, json!(5)),
    ] {
        let told = line(&board, coupon);
        assert_eq!((&told["state"], &told["total"]), (&json!("active"), &json!(5)), "{told}");
        assert_eq!((&told["left"], &told["in_redis"]), (&left, &json!(coupon != archived)));
        assert_eq!(told["is_pending"], coupon == not_there, "{told}");
        let query = format!(
            "SELECT floor(extract(epoch FROM closes_at) * 1000)::bigint FROM flash_sales
             WHERE coupon_id = {coupon}"
        );
        assert_eq!(told["closes_ms"], still(desk.app.number(&query)).await);
        let units = &told["units"];
        assert_eq!((&units["total"], &units["buyers"]), (&Value::Null, &Value::Null), "{told}");
        if coupon == archived {
            assert_eq!(units, &Value::Null);
            continue;
        }
        assert_eq!(units["at"], desk.at(0));
        if coupon != not_there {
            assert_eq!(units["conserved"], false, "{told}");
        }
    }
}

/// A word of a process, as it stands in Redis.
async fn tell(app: &TestApp, id: &str, heard_ms: i64, word: Option<Word>) {
    let (names, key) = (app.keys().processes(), app.keys().process(id));
    let _: i64 = app.redis(&["ZADD", &names, &heard_ms.to_string(), id]).await;
    if let Some(word) = word {
        let text = serde_json::to_string(&word).expect("JSON");
        let _: String = app.redis(&["SET", &key, &text]).await;
    }
}

#[tokio::test]
async fn words_of_all_processes_are_heard_and_their_past_is_added_up() {
    let app = service("1").await;
    for (number, id) in ["first-of-them", "second-of-them", "third-of-them"].iter().enumerate() {
        let name = format!("host-{number}");
        let word = Word { name, at_ms: 1, started_ms: 7, connections: 3, ..Word::default() };
        tell(&app, id, 1_000, Some(word)).await;
        for second in 1..=4 {
            let claims = ClaimCounts { accepted: 2 * second, ..ClaimCounts::default() };
            let at_ms = 1_000 * second.cast_signed();
            let told = json!(Second(at_ms, claims, 3 * second, second)).to_string();
            let past = app.keys().process_past(id);
            let _: i64 = app.redis(&["RPUSH", &past, &told, "no second"]).await;
        }
    }
    tell(&app, "silent-process", 500, None).await;
    let _: i64 = app.redis(&["ZADD", &app.keys().processes(), "600", "unreadable"]).await;
    let _: String = app.redis(&["SET", &app.keys().process("unreadable"), "no word"]).await;
    let desk = Desk::over(app).await;
    let mut watching = desk.board.watch().expect("there is room");
    let (mut other, board) = desk.opened().await;
    let processes = board["processes"].as_array().expect("a list").iter();
    let told: Vec<Value> = processes
        .map(|it| json!([it["name"], it["is_heard"], it["heard_ms"], it["connections"]]))
        .collect();
    let expected = json!([
        ["silent-p", false, 500, null],
        ["unreadab", false, 600, null],
        ["host-0", true, 1, 3],
        ["host-1", true, 1, 3],
        ["host-2", true, 1, 3],
    ]);
    assert_eq!(json!(told), expected);
    let (past, _) = super::told(&mut watching).expect("the same board");
    let points: Vec<Value> = past["points"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| json!([it["t_ms"], it["accepted"], it["rows"], it["waiting"]]))
        .collect();
    let expected = json!([[2_000, 6.0, 9.0, 2], [3_000, 6.0, 9.0, 3], [4_000, 6.0, 9.0, 4]]);
    assert_eq!(json!(points), expected);
    // The next words of one of them, two seconds later by its clock.
    let claims = ClaimCounts { sold_out: 8, ..ClaimCounts::default() };
    let word = Word { name: "host-1".into(), at_ms: 2_001, claims, ..Word::default() };
    still(tell(&desk.app, "second-of-them", 2_001, Some(word))).await;
    desk.tick().await;
    let board = desk.next(&mut other).await;
    assert_eq!(board["point"]["sold_out"], 4.0, "{board}");
}

/// Entries in the hands of a worker are told apart from unread ones.
#[tokio::test]
async fn lanes_are_told_apart_and_added_up() {
    let app = service("2").await;
    app.expect_disagreements();
    let lanes: Vec<Lane> = Lane::all(2).collect();
    // Ids are times: hours apart, so that the ages can't be mistaken.
    for (lane, hour, user) in [(lanes[0], 300, "1"), (lanes[0], 301, "2"), (lanes[1], 600, "3")] {
        let id = format!("{}-0", 3_600_000_u64 * hour);
        app.append_as(lane, &id, &["coupon", "1024", "user", user, "order", user]).await;
    }
    for lane in &lanes {
        let log = app.keys().log(*lane);
        let _: String = app.redis(&["XGROUP", "CREATE", &log, "order-writers", "0"]).await;
    }
    let log = app.keys().log(lanes[0]);
    let read = ["XREADGROUP", "GROUP", "order-writers", "w", "COUNT", "1", "STREAMS", &log, ">"];
    let _: redis::Value = app.redis(&read).await;
    let desk = Desk::over(app).await;
    let (_, board) = desk.opened().await;
    let of = |lane: usize, name: &str| board["lanes"][lane][name].as_i64().expect("a number");
    let numbers = |lane| ["lane", "pending", "unread"].map(|name| of(lane, name));
    assert_eq!((numbers(0), numbers(1)), ([0, 1, 1], [1, 0, 1]), "{board}");
    assert_eq!((&board["backlog"], &board["point"]["waiting"]), (&json!(3), &json!(3)));
    assert!(of(0, "oldest_ms") - of(1, "oldest_ms") > 3_600_000 * 250, "{board}");
    assert_eq!(board["oldest_ms"], of(0, "oldest_ms"));
    assert_eq!(board["lanes"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn facts_of_a_redis_that_cannot_be_read_are_not_told_as_if_they_were_new() {
    let app = service("1").await;
    let coupon = app.create_flash(5).await;
    app.claim(1, coupon).await;
    app.app.presence_pass().await;
    let desk = Desk::over(app).await;
    let (mut watching, board) = desk.opened().await;
    let names = desk.app.keys().processes();
    let facts = |board: &Value| {
        let (sale, lane) = (line(board, coupon), &board["lanes"][0]);
        let processes = board["processes"].as_array().map(Vec::len);
        json!([sale["left"], sale["units"]["buyers"], board["backlog"], lane["unread"], processes])
    };
    let (known, unknown) = (json!([4, 1, 1, 1, 1]), json!([null, null, null, null, 0]));
    assert_eq!((facts(&board), there(&board)), (known.clone(), [true, true]), "{board}");
    still(async {
        let _: String = desk.app.redis(&["SET", &names, "x"]).await;
    })
    .await;
    desk.tick().await;
    let board = desk.next(&mut watching).await;
    assert_eq!((facts(&board), there(&board)), (unknown, [false, true]), "{board}");
    let redis = &board["stores"][0];
    assert_eq!((&redis["at"], redis["ping_ms"].is_f64()), (&json!(desk.at(0)), true));
    assert_eq!((&board["oldest_ms"], &board["point"]["waiting"]), (&Value::Null, &Value::Null));
    let sale = line(&board, coupon);
    assert_eq!((&sale["state"], &sale["in_redis"]), (&json!("active"), &json!(true)));
    still(async {
        let _: i64 = desk.app.redis(&["DEL", &names]).await;
    })
    .await;
    still(desk.app.app.presence_pass()).await;
    desk.tick().await;
    let board = desk.next(&mut watching).await;
    assert_eq!((facts(&board), there(&board)), (known, [true, true]), "{board}");
}

/// Only the first look asks for the past; a second question would find that it can't be read.
#[tokio::test]
async fn the_past_of_processes_is_asked_for_by_the_first_look_alone() {
    for is_heard_at_first in [true, false] {
        let desk = Desk::over(service("1").await).await;
        let (names, past) = (desk.app.keys().processes(), desk.app.keys().process_past("p"));
        let hear = ["ZADD", &names, "1", "p"];
        if is_heard_at_first {
            let _: i64 = still(desk.app.redis(&hear)).await;
        }
        let (mut watching, _) = desk.opened().await;
        let _: i64 = still(desk.app.redis(&hear)).await;
        let _: String = still(desk.app.redis(&["SET", &past, "x"])).await;
        desk.tick().await;
        let board = desk.next(&mut watching).await;
        assert_eq!(there(&board), [true, true]);
        assert_eq!(board["stores"][0]["at"], desk.at(1));
        assert_eq!(board["processes"].as_array().map(Vec::len), Some(1));
        tokio::time::resume();
    }
}

/// A command that Redis refuses for a while is no fault of a sale or of a log: the look has failed.
#[tokio::test]
async fn a_look_of_which_redis_refuses_a_command_tells_no_facts() {
    let servers = OwnServers::start();
    for command in ["hget", "xrange"] {
        let two = ["--database-connections", "2"];
        let app = TestApp::on(&servers.at, &two, Clock::System).await;
        let coupon = app.create_flash(5).await;
        assert_eq!(app.claim(1, coupon).await.status, 202);
        let refuse = format!("-{command}");
        let _: String = app.redis(&["ACL", "SETUSER", "default", &refuse]).await;
        let desk = Desk::over(app).await;
        let (_watching, board) = desk.opened().await;
        let permit = format!("+{command}");
        let _: String = still(desk.app.redis(&["ACL", "SETUSER", "default", &permit])).await;
        assert_eq!(there(&board), [false, true], "{command}: {board}");
        assert_eq!(line(&board, coupon)["units"], Value::Null, "{command}");
        tokio::time::resume();
    }
}
