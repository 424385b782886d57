//! The order log of a lane: `ensure_group`, `trim_log`, `acknowledge` and `remove_consumer`.

use flash_sale::kit::script::VariadicScript;
use private_servers::testing::RedisServer;

use super::stage::{Row, Stage};

/// A lane with a backlog of four orders, and no log.
const BACKLOG: [(&str, &str); 2] = [("log", ""), ("lane", "promised=9 written=5")];

#[tokio::test]
async fn ensure_group_creates_the_group_of_a_log_that_is_not_lost() {
    let mut stage = Stage::new().await;
    let ensure = VariadicScript::new(include_str!("../../../lua/ensure_group.lua"));
    stage.holds(&ensure, "log lane", &[("log", ""), ("lane", "promised=1")], &CREATED).await;
}

const CREATED: [Row; 17] = [
    // Nothing is there, and no order was promised.
    (&[("lane", "gone")], "g 0", "CREATED_LOG", "log=[] log.g=0-0/unknown"),
    (&[("lane", "promised=0")], "g 0", "CREATED_LOG", "log=[] log.g=0-0/unknown"),
    (&[("lane", "gone"), ("log", "stream")], "g 0", "CREATED", "log.g=0-0/unknown"),
    // The log was lost.
    (&[], "g 0", "LOST", "lane.log=lost"),
    (&[], "g 1", "CREATED_LOG", "lane.log=lost log=[] log.g=0-0/unknown"),
    (&[("log", "stream h@0")], "g 0", "LOST", "lane.log=lost"),
    // Another program's key.
    (&[("log", "string")], "g 0", "LOST", ""),
    (&[("log", "string"), ("lane", "gone")], "g 1", "LOST", ""),
    // All entries are there, from the first order on.
    (&[("log", "stream 1-0:first,1 h@0")], "g 0", "CREATED", "lane.written=0 log.g=0-0/unknown"),
    (
        &[("log", "stream 1-0:a,1 2-0:first,1 3-0:first,3"), ("lane", "written=1")],
        "g 0",
        "CREATED",
        "lane.written=0 log.g=0-0/unknown",
    ),
    // All entries are there, but not the first order: the log was begun anew.
    (&[("log", "stream 1-0:a,1 2-0:a,2")], "g 0", "LOST", "lane.log=lost"),
    (&[("log", "stream 1-0:a,1 2-0:first,2")], "g 0", "LOST", "lane.log=lost"),
    (
        &[("log", "stream 1-0:a,1 2-0:first,2 3-0:first,5")],
        "g 1",
        "CREATED",
        "lane.log=lost lane.written=1 log.g=0-0/unknown",
    ),
    (
        &[("log", "stream 1-0:first,2"), ("lane", "promised=0")],
        "g 0",
        "CREATED",
        "lane.written=1 log.g=0-0/unknown",
    ),
    // Entries have been trimmed: the orders before the first that is left are written.
    (
        &[("log", "stream 1-0:a,1 2-0:first,4 3-0:first,6 -1-0"), ("lane", "written=5")],
        "g 0",
        "CREATED",
        "lane.written=3 log.g=0-0/unknown",
    ),
    (
        &[("log", "stream 1-0:a,1 2-0:first,4 3-0:a,2 -3-0"), ("lane", "written=5")],
        "g 0",
        "CREATED",
        "lane.written=3 log.g=0-0/unknown",
    ),
    (&[("log", "stream 1-0:first,1 -1-0")], "g 0", "CREATED", "log.g=0-0/unknown"),
];

#[tokio::test]
async fn ensure_group_sets_right_how_many_entries_the_group_has_read() {
    let mut stage = Stage::new().await;
    let ensure = VariadicScript::new(include_str!("../../../lua/ensure_group.lua"));
    stage.holds(&ensure, "log lane", &BACKLOG, &READ).await;
}

const READ: [Row; 9] = [
    (&[("log", "stream 1-0:a,1 2-0:a,2 3-0:a,3 g@0/0")], "g 0", "PRESENT", ""),
    (&[("log", "stream 1-0:a,1 2-0:a,2 3-0:a,3 g@2-0/2")], "g 1", "PRESENT", ""),
    (&[("log", "stream 1-0:a,1 2-0:a,2 3-0:a,3 g@0")], "g 0", "PRESENT", "log.g=0-0/0"),
    (&[("log", "stream 1-0:a,1 2-0:a,2 3-0:a,3 g@2-0/1")], "g 0", "PRESENT", "log.g=2-0/2"),
    (&[("log", "stream 1-0:a,1 2-0:a,2 3-0:a,3 g@2-0/3")], "g 0", "PRESENT", "log.g=2-0/2"),
    (&[("log", "stream 1-0:a,1 2-0:a,2 g@2-0/7 a@1-0/7")], "g 0", "PRESENT", "log.g=2-0/2"),
    // Entries that were added and are gone have been read.
    (
        &[("log", "stream 1-0:a,1 2-0:a,2 3-0:a,3 4-0:a,4 -1-0 -3-0 g@2-0/1")],
        "g 0",
        "PRESENT",
        "log.g=2-0/3",
    ),
    (&[("log", "stream g@0")], "g 0", "PRESENT", "log.g=0-0/0"),
    (&[("log", "stream g@0/0"), ("lane", "gone")], "g 0", "PRESENT", ""),
];

#[tokio::test]
async fn ensure_group_counts_no_more_than_a_thousand_entries() {
    let mut stage = Stage::new().await;
    let ensure = VariadicScript::new(include_str!("../../../lua/ensure_group.lua"));
    stage.holds(&ensure, "log lane", &[("log", ""), ("lane", "promised=1")], &LONG).await;
}

const LONG: [Row; 4] = [
    (&[("log", "stream 999*")], "g 0", "LOST", "lane.log=lost"),
    // The first order may stand behind those that were looked at.
    (&[("log", "stream 1000*")], "g 0", "CREATED", "log.g=0-0/unknown"),
    (&[("log", "stream 1000* g@0/7")], "g 0", "PRESENT", "log.g=0-0/0"),
    (&[("log", "stream 1001* g@0/7")], "g 0", "PRESENT", ""),
];

/// As it is called again and again, it must not fill the append-only file.
#[tokio::test]
async fn ensure_group_writes_nothing_if_the_number_is_right() {
    let server = RedisServer::start(&[]);
    let stage = Stage::on(&server.url()).await;
    let ensure = VariadicScript::new(include_str!("../../../lua/ensure_group.lua"));
    for (log, writes) in [
        ("stream 1-0:a,1 2-0:a,2 g@1-0/1", 0),
        ("stream 1-0:a,1 2-0:a,2 g@2-0/2", 0),
        ("stream 1-0:a,1 2-0:a,2 g@1-0/2", 1),
    ] {
        stage.set("log", log).await;
        let before = writes_of(&stage).await;
        assert_eq!(stage.reply(&ensure, "log lane", "g 0").await, "PRESENT");
        assert_eq!(writes_of(&stage).await - before, writes, "{log}");
    }
}

/// Number of writes that the server has ever done.
async fn writes_of(stage: &Stage) -> i64 {
    let information: String = stage.redis(&["INFO", "persistence"]).await;
    let writes = information.lines().find_map(|line| {
        line.strip_prefix("rdb_changes_since_last_save:").and_then(|number| number.parse().ok())
    });
    writes.expect("each server tells it")
}

#[tokio::test]
async fn trim_log_corrects_the_count_of_a_log_that_is_gone() {
    let mut stage = Stage::new().await;
    let trim = VariadicScript::new(include_str!("../../../lua/trim_log.lua"));
    stage.holds(&trim, "log lane", &BACKLOG, &GONE).await;
}

const GONE: [Row; 8] = [
    (&[], "g", "[0 4]", "lane.written=9"),
    // The entries of this log aren't counted.
    (&[], "''", "[0 0]", ""),
    (&[("lane", "written=8")], "g", "[0 1]", "lane.written=9"),
    (&[("lane", "written=9")], "g", "[0 0]", ""),
    (&[("lane", "written=12")], "g", "[0 -3]", "lane.written=9"),
    (&[("lane", "-written")], "g", "[0 9]", "lane.written=9"),
    (&[("lane", "-promised")], "g", "[0 -5]", "lane.written=0"),
    (&[("lane", "gone")], "g", "[0 0]", ""),
];

#[tokio::test]
async fn trim_log_removes_what_no_group_needs() {
    let mut stage = Stage::new().await;
    let trim = VariadicScript::new(include_str!("../../../lua/trim_log.lua"));
    let full = "stream 1-0:a,1! 2-0:a,2! 3-0:a,3! 4-0:a,4!";
    for (groups, counted, reply, changes) in [
        ("", "g", "[0 0]", ""),
        ("g@0", "g", "[0 0]", ""),
        ("g@1-0", "g", "[0 0]", ""),
        ("g@3-0", "g", "[2 0]", "log=[a,3 a,4]"),
        // Nothing is left for the group: all orders are written.
        ("g@4-0", "g", "[3 4]", "lane.written=9 log=[a,4]"),
        ("g@0 g>c:4 g^1-0 g^2-0 g^3-0 g^4-0", "g", "[3 4]", "lane.written=9 log=[a,4]"),
        // The entries of this log, or of this group, aren't counted.
        ("g@4-0", "''", "[3 0]", "log=[a,4]"),
        ("h@4-0", "g", "[3 0]", "log=[a,4]"),
        // Pending entries are needed.
        ("g@0 g>c:3 g^1-0", "g", "[1 0]", "log=[a,2 a,3 a,4]"),
        ("g@0 g>c:4 g^1-0 g^4-0", "g", "[1 0]", "log=[a,2 a,3 a,4]"),
        ("g@0 g>c:4 g^1-0 g^2-0 g^4-0", "g", "[2 0]", "log=[a,3 a,4]"),
        ("g@0 g>c:3 g>d:1 g^1-0 g^2-0 g^3-0", "g", "[3 0]", "log=[a,4]"),
        // Each group needs its own.
        ("g@3-0 h@4-0", "g", "[2 0]", "log=[a,3 a,4]"),
        ("g@4-0 h@3-0", "g", "[2 4]", "lane.written=9 log=[a,3 a,4]"),
        ("g@4-0 h@0", "g", "[0 4]", "lane.written=9"),
        ("g@0 g>c:4 g^1-0 h@3-0", "h", "[1 0]", "log=[a,2 a,3 a,4]"),
        ("g@4-0 h@0 h>c:3 h^1-0", "g", "[1 4]", "lane.written=9 log=[a,2 a,3 a,4]"),
    ] {
        stage.set_all(&BACKLOG).await;
        stage.set("log", &format!("{full} {groups}")).await;
        let counted = if counted == "''" { "" } else { counted };
        let done = stage.run(&trim, &["log", "lane"], &[counted]).await;
        assert_eq!((&*done.reply, &*done.changes), (reply, changes), "{groups} {counted}");
    }
}

#[tokio::test]
async fn trim_log_compares_ids_number_by_number() {
    let mut stage = Stage::new().await;
    let trim = VariadicScript::new(include_str!("../../../lua/trim_log.lua"));
    stage.holds(&trim, "log lane", &[("log", ""), ("lane", "")], &OLDEST).await;
}

const OLDEST: [Row; 9] = [
    // Of two milliseconds.
    (&[("log", "stream 4-9:a,1! 5-1:a,2! g@4-9 h@5-1")], "g", "[0 0]", ""),
    (&[("log", "stream 4-9:a,1! 5-1:a,2! g@5-1 h@4-9")], "g", "[0 0]", ""),
    (&[("log", "stream 9-0:a,1! 10-0:a,2! g@9-0 h@10-0")], "g", "[0 0]", ""),
    (&[("log", "stream 9-0:a,1! 10-0:a,2! g@10-0 h@9-0")], "g", "[0 0]", ""),
    // Of one millisecond.
    (&[("log", "stream 5-1:a,1! 5-2:a,2! 5-3:a,3! g@5-2 h@5-3")], "g", "[1 0]", "log=[a,2 a,3]"),
    (&[("log", "stream 5-1:a,1! 5-2:a,2! 5-3:a,3! g@5-3 h@5-2")], "g", "[1 0]", "log=[a,2 a,3]"),
    (&[("log", "stream 5-9:a,1! 5-10:a,2! g@5-9 h@5-10")], "g", "[0 0]", ""),
    (&[("log", "stream 5-9:a,1! 5-10:a,2! g@5-10 h@5-9")], "g", "[0 0]", ""),
    (&[("log", "stream 5-1:a,1! 5-2:a,2! g@5-2 h@5-2")], "g", "[1 0]", "log=[a,2]"),
];

#[tokio::test]
async fn acknowledge_counts_the_orders_of_entries_that_were_pending() {
    let mut stage = Stage::new().await;
    let acknowledge = VariadicScript::new(include_str!("../../../lua/acknowledge.lua"));
    let log = "stream 1-0:a,1 2-0:a,2 3-0:a,3 4-0:a,4 g@0 g>c:3";
    let usual = [("log", log), ("lane", "written=5")];
    stage.holds(&acknowledge, "log lane", &usual, &ACKNOWLEDGED).await;
}

const ACKNOWLEDGED: [Row; 13] = [
    (&[], "g", "0", ""),
    (&[("lane", "gone")], "g", "0", ""),
    (&[], "g 1-0 1", "1", "lane.written=6 log.g.c=[2-0 3-0]"),
    (&[("lane", "gone")], "g 1-0 2 3-0 4", "6", "lane.written=6 log.g.c=[2-0]"),
    // Entries without counted orders.
    (&[], "g 2-0 0", "0", "log.g.c=[1-0 3-0]"),
    (&[("lane", "gone")], "g 2-0 0", "0", "log.g.c=[1-0 3-0]"),
    (&[], "g 1-0 0 2-0 3 3-0 0", "3", "lane.written=8 log.g.c=[]"),
    (&[], "g 1-0 0 2-0 0 3-0 0", "0", "log.g.c=[]"),
    // Entries that aren't pending: acknowledged twice, not delivered, unknown.
    (&[], "g 1-0 2 1-0 2", "2", "lane.written=7 log.g.c=[2-0 3-0]"),
    (&[], "g 4-0 2", "0", ""),
    (&[], "g 9-9 2 3-0 1 8-8 0", "1", "lane.written=6 log.g.c=[1-0 2-0]"),
    // No such group, and no log.
    (&[], "h 1-0 2 2-0 0", "0", ""),
    (&[("log", "gone")], "g 1-0 2 2-0 0", "0", ""),
];

#[tokio::test]
async fn remove_consumer_leaves_one_that_has_pending_entries() {
    let mut stage = Stage::new().await;
    let remove = VariadicScript::new(include_str!("../../../lua/remove_consumer.lua"));
    let log = "stream 1-0:a,1 2-0:a,2 3-0:a,3 4-0:a,4 g@0 g>c:1 g>d:2 g>e:1 g^4-0 g>f:0";
    stage.holds(&remove, "log", &[("log", log)], &REMOVED).await;
}

const REMOVED: [Row; 7] = [
    (&[], "g c", "1", ""),
    // One entry is proof enough.
    (&[], "g d", "1", ""),
    (&[], "g e", "0", "-log.g.e"),
    (&[], "g f", "0", "-log.g.f"),
    (&[], "g unknown", "0", ""),
    (&[], "h c", "error NOGROUP", ""),
    (&[("log", "gone")], "g c", "error NOGROUP", ""),
];
