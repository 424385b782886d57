//! `fence::scripts`: each reply of a script is read as what it says, and each fact of a lane in Redis, readable or not.

use std::sync::Arc;

use chrono::DateTime;
use flash_sale::kit::redis::{Link, Origin, Redis};
use flash_sale::sale::fence::scripts::{self, Beat, FenceScripts};
use flash_sale::sale::fence::table::NotedBeat;
use flash_sale::sale::ids::Lane;
use flash_sale::sale::keys::{Keys, LogId, LogLayout};
use private_servers::testing::RedisServer;

use crate::faults::failover::ask;
use crate::support::lane;

/// A lane on a server of its own.
struct Place {
    server: RedisServer,
    keys: Keys,
    link: Arc<Link>,
    scripts: FenceScripts,
}

impl Place {
    async fn new() -> Self {
        let server = RedisServer::start(&[]);
        let link = Redis::new(&server.url()).expect("a URL").link().await.expect("it runs");
        let keys = Keys::new("t");
        Self { server, link, scripts: FenceScripts::new(keys.clone()), keys }
    }

    /// The lane has these fields and no others; "string" for a key of another type, "" for none.
    async fn set(&self, fields: &str) {
        let _: String = ask(&self.server, &["FLUSHALL"]).await;
        let key = self.keys.lane(lane());
        if fields == "string" {
            let _: String = ask(&self.server, &["SET", &key, "x"]).await;
        } else if !fields.is_empty() {
            let words: Vec<&str> = fields.split([' ', '=']).collect();
            let _: i64 = ask(&self.server, &[&["HSET", &key], &words[..]].concat()).await;
        }
    }

    fn log(&self, layout: LogLayout) -> String {
        self.keys.log(LogId { lane: lane(), layout })
    }

    /// Fields of the lane; "-" for one that isn't there.
    async fn fields<const N: usize>(&self, names: [&str; N]) -> String {
        let key = self.keys.lane(lane());
        let values: Vec<Option<String>> =
            ask(&self.server, &[&["HMGET", &key], &names[..]].concat()).await;
        let values: Vec<String> = values.into_iter().map(|of| of.unwrap_or("-".into())).collect();
        values.join(" ")
    }
}

#[tokio::test]
async fn beat_reads_each_reply_of_its_script() {
    let place = Place::new().await;
    let at = DateTime::UNIX_EPOCH;
    let noted = NotedBeat { lane: lane(), beat: 5, promised: 0, settled: None, at };
    for (fields, log, expected) in [
        ("epoch=7 state=open beat=5 promised=3 written=2", true, "promised 3"),
        ("epoch=7 state=open beat=5 promised=3 written=3", true, "promised 3, settled"),
        ("epoch=7 state=open beat=5", false, "promised 0, settled"),
        ("", true, "Missing"),
        ("string", true, "Missing"),
        ("epoch=9 state=open beat=5", true, "Epoch(9)"),
        ("epoch=x state=open beat=5", true, "Epoch(0)"),
        ("epoch=7 state=recovering beat=5", true, "Closed"),
        ("epoch=7 state=open beat=5 promised=3", false, "Logless"),
        ("epoch=7 state=open beat=4", true, "Behind(4)"),
    ] {
        place.set(fields).await;
        if log {
            let key = place.log(LogLayout::Calls);
            let _: String = ask(&place.server, &["XADD", &key, "*", "a", "b"]).await;
        }
        let told = match place.scripts.beat(&place.link, 7, &noted).await.expect("Redis answers") {
            Beat::Confirmed { promised, settled_at: None } => format!("promised {promised}"),
            Beat::Confirmed { promised, settled_at: Some(at) } => {
                assert!(at.timestamp() > 1_700_000_000, "{at}");
                format!("promised {promised}, settled")
            }
            other => format!("{other:?}"),
        };
        assert_eq!(told, expected, "{fields:?}");
    }
}

#[tokio::test]
async fn fence_names_the_keys_that_it_has_moved_out_of_the_place_of_a_log() {
    use LogLayout::{Calls, Claims};
    let place = Place::new().await;
    for (fields, others, expected) in [
        ("", &[][..], Some("")),
        ("epoch=7 state=open", &[], Some("")),
        ("epoch=8 state=recovering", &[Calls], Some("calls")),
        ("epoch=7 state=open", &[Claims], Some("orders")),
        ("epoch=7 state=open", &[Calls, Claims], Some("calls orders")),
        ("epoch=9 state=open", &[Calls], None),
    ] {
        place.set(fields).await;
        for layout in others {
            let _: String = ask(&place.server, &["SET", &place.log(*layout), "x"]).await;
        }
        let fenced = place.scripts.fence(&place.link, lane(), 8).await.expect("Redis answers");
        let expected = expected.map(|words| {
            let logs = words.split_whitespace().map(|word| format!("t:{{{}}}:{word}:8", lane()));
            logs.collect::<Vec<_>>()
        });
        assert_eq!(fenced, expected, "{fields:?} {others:?}");
    }
}

#[tokio::test]
async fn begin_and_open_tell_whether_the_lane_is_as_the_caller_wants_it() {
    let place = Place::new().await;
    let link = &place.link;
    for (fields, begun) in [("", 7), ("epoch=9", 9), ("epoch=1", 1)] {
        place.set(fields).await;
        assert_eq!(place.scripts.begin(link, lane(), 7).await.expect("Redis answers"), begun);
    }
    let here = link.origin().await.expect("Redis answers");
    let other = Origin { replication_id: "0".repeat(40), ..here.clone() };
    let closed = "epoch=7 state=recovering beat=1 promised=5 written=3 steps=2";
    let open = "epoch=7 state=open beat=1 promised=5 written=3";
    let unchanged = "recovering 1 5 3 2";
    for (fields, epoch, origin, promised_min, steps, opened, after) in [
        (closed, 7, &here, None, 2, true, "open 4 5 3 -"),
        (closed, 7, &here, Some(0), 2, true, "open 4 5 5 -"),
        (closed, 7, &here, Some(9), 2, true, "open 4 9 9 -"),
        (closed, 8, &here, Some(9), 2, false, unchanged),
        (closed, 7, &other, Some(9), 2, false, unchanged),
        (closed, 7, &here, Some(9), 1, false, unchanged),
        (open, 7, &here, Some(9), 2, true, "open 1 5 3 -"),
    ] {
        place.set(fields).await;
        let approved = (epoch, 4, origin);
        let told = place.scripts.open(link, lane(), approved, promised_min, steps).await;
        let case = format!("{fields} {epoch} {origin:?} {promised_min:?} {steps}");
        assert_eq!(told.expect("Redis answers"), opened, "{case}");
        let there = place.fields(["state", "beat", "promised", "written", "steps"]).await;
        assert_eq!(there, after, "{case}");
    }
}

#[tokio::test]
async fn epoch_is_open_and_the_fields_of_a_lane_are_read_though_they_may_be_junk() {
    let place = Place::new().await;
    let (keys, link) = (&place.keys, &place.link);
    for (fields, epoch, is_open) in [
        ("", None, false),
        ("string", None, false),
        ("epoch=x state=open", None, false),
        ("epoch=7 state=open", Some(7), true),
        ("epoch=7 state=recovering", Some(7), false),
        ("epoch=7", Some(7), false),
        ("epoch=8 state=open", Some(8), false),
        ("state=open", None, false),
    ] {
        place.set(fields).await;
        let told = scripts::epoch(keys, link, lane()).await.expect("Redis answers");
        let open = scripts::is_open(keys, link, lane(), 7).await.expect("Redis answers");
        assert_eq!((told, open), (epoch, is_open), "{fields:?}");
    }
    for (fields, promised, lost, calls) in [
        ("", 0, false, false),
        ("epoch=1", 0, false, false),
        ("promised=0", 0, false, true),
        ("promised=5 log=lost", 5, true, true),
        ("log=lost", 0, true, false),
    ] {
        place.set(fields).await;
        let told = (
            scripts::promised(keys, link, lane()).await.expect("Redis answers"),
            scripts::has_lost_log(keys, link, lane()).await.expect("Redis answers"),
            scripts::has_log_of_calls(keys, link, lane()).await.expect("Redis answers"),
        );
        assert_eq!(told, (promised, lost, calls), "{fields:?}");
    }
    let other = Lane::all(2).nth(1).expect("a second lane");
    assert_eq!(scripts::promised(keys, link, other).await.expect("Redis answers"), 0);
}

/// A refusal is no answer about the lane.
#[tokio::test]
async fn epoch_and_is_open_fail_where_redis_refuses_the_question() {
    let place = Place::new().await;
    let (keys, link) = (&place.keys, &place.link);
    place.set("epoch=7 state=open").await;
    let _: String = ask(&place.server, &["ACL", "SETUSER", "default", "-hget", "-hmget"]).await;
    assert!(scripts::epoch(keys, link, lane()).await.is_err());
    assert!(scripts::is_open(keys, link, lane(), 7).await.is_err());
    let _: String = ask(&place.server, &["ACL", "SETUSER", "default", "+hget", "+hmget"]).await;
    assert!(scripts::is_open(keys, link, lane(), 7).await.expect("Redis answers"));
    // A field that is no number.
    let _: i64 = ask(&place.server, &["HSET", &keys.lane(lane()), "promised", "many"]).await;
    assert!(scripts::promised(keys, link, lane()).await.is_err());
}
