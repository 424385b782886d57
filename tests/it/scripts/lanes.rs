//! The state of a lane: `begin_lane`, `beat`, `fence` and `open_lane`.

use flash_sale::kit::script::VariadicScript;

use super::stage::Stage;

#[tokio::test]
async fn begin_lane_takes_a_lane_that_was_never_there() {
    let mut stage = Stage::new().await;
    let begin = VariadicScript::new(include_str!("../../../lua/begin_lane.lua"));
    for (lane, reply, changes) in [
        ("", "7", "lane.beat=0 lane.epoch=7 lane.state=open"),
        ("promised=3 written=2", "7", "lane.beat=0 lane.epoch=7 lane.state=open"),
        ("epoch=7 state=recovering beat=5", "7", ""),
        ("epoch=9", "9", ""),
    ] {
        stage.set("lane", lane).await;
        let done = stage.run(&begin, &["lane"], &["7"]).await;
        assert_eq!((&*done.reply, &*done.changes), (reply, changes), "{lane:?}");
    }
}

#[tokio::test]
async fn beat_raises_the_noted_beat_of_a_lane_that_is_as_it_was() {
    let mut stage = Stage::new().await;
    let beat = VariadicScript::new(include_str!("../../../lua/beat.lua"));
    let open = "epoch=7 state=open beat=5 promised=3 written=2";
    for (lane, log, older, reply, changes) in [
        (open, "stream", "", "[BEAT 3 0]", "lane.beat=6"),
        (open, "stream", "stream", "[BEAT 3 0]", "lane.beat=6"),
        // The process that raised it died before its note.
        ("epoch=7 state=open beat=6 promised=3", "stream", "", "[BEAT 3 0]", ""),
        ("epoch=7 state=open beat=4 promised=3", "stream", "", "[BEHIND 4 0]", ""),
        ("epoch=7 state=open beat=7 promised=3", "stream", "", "[BEHIND 7 0]", ""),
        ("epoch=7 state=open", "stream", "", "[BEHIND 0 0]", ""),
        ("", "stream", "", "[MISSING 0 0]", ""),
        ("string", "stream", "", "[MISSING 0 0]", ""),
        ("state=open beat=5 promised=3", "stream", "", "[MISSING 0 0]", ""),
        ("epoch=7 state=open beat=x promised=3", "stream", "", "[MISSING 0 0]", ""),
        ("epoch=7 state=open beat=5 promised=x", "stream", "", "[MISSING 0 0]", ""),
        ("epoch=8 state=open beat=5 promised=3", "stream", "", "[EPOCH 8 0]", ""),
        ("epoch=x state=open beat=5 promised=3", "stream", "", "[EPOCH 0 0]", ""),
        ("epoch=7 state=recovering beat=5 promised=3", "stream", "", "[CLOSED 0 0]", ""),
        ("epoch=7 state=open beat=5", "", "", "[BEAT 0 now]", "lane.beat=6"),
        ("epoch=7 state=open beat=5 promised=1", "", "", "[LOGLESS 0 0]", ""),
        ("epoch=7 state=open beat=5", "string", "", "[LOGLESS 0 0]", ""),
        ("epoch=7 state=open beat=5 log=lost", "stream", "", "[LOGLESS 0 0]", ""),
        (open, "stream", "string", "[LOGLESS 0 0]", ""),
        // All that was promised is written.
        (
            "epoch=7 state=open beat=5 promised=3 written=3",
            "stream",
            "",
            "[BEAT 3 now]",
            "lane.beat=6",
        ),
    ] {
        stage.set_all(&[("lane", lane), ("log", log), ("older", older)]).await;
        let from = stage.now_ms().await;
        let mut done = stage.run(&beat, &["lane", "log", "older"], &["7", "5"]).await;
        done.reply = stage.with_now(&done.reply, from).await;
        assert_eq!((&*done.reply, &*done.changes), (reply, changes), "{lane:?} {log:?} {older:?}");
    }
}

const CLOSED: &str = "lane.epoch=8 lane.state=recovering lane.steps=0";
const LOST: &str = "lane.epoch=8 lane.log=lost lane.state=recovering lane.steps=0";

/// Runs the script on lanes, each with its two logs, the reply and all that changed.
async fn assert_fences(rows: &[(&str, &str, &str, &str, String)]) {
    let mut stage = Stage::new().await;
    let fence = VariadicScript::new(include_str!("../../../lua/fence.lua"));
    for (lane, log, older, reply, changes) in rows {
        stage.set_all(&[("lane", lane), ("log", log), ("older", older)]).await;
        stage.set_all(&[("aside", ""), ("older_aside", "")]).await;
        let keys = ["lane", "log", "older", "aside", "older_aside"];
        let done = stage.run(&fence, &keys, &["8"]).await;
        assert_eq!((&*done.reply, &done.changes), (*reply, changes), "{lane:?} {log:?} {older:?}");
    }
}

#[tokio::test]
async fn fence_closes_a_lane() {
    let fenced = "[FENCED 0 0]";
    let reopened = "lane.state=recovering lane.steps=0";
    assert_fences(&[
        ("epoch=7 state=open beat=5 promised=3 written=2", "stream", "", fenced, CLOSED.into()),
        ("epoch=8 state=open", "stream", "stream", fenced, reopened.into()),
        ("epoch=8 state=recovering steps=4", "stream", "", fenced, "lane.steps=0".into()),
        ("epoch=9 state=open beat=x", "string", "", "[AHEAD 0 0]", String::new()),
        ("epoch=x", "", "", fenced, CLOSED.into()),
        ("", "", "", fenced, CLOSED.into()),
        ("string", "stream", "", fenced, format!("-lane {CLOSED}")),
        // A count that can't be read is as if Redis had lost it.
        (
            "epoch=7 beat=x promised=y written=z",
            "stream",
            "",
            fenced,
            format!("-lane.beat lane.epoch=8 -lane.promised {reopened} -lane.written"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn fence_keeps_what_the_logs_of_a_lane_say() {
    assert_fences(&[
        // The log is missing although an order was promised, or only if there is no log of calls.
        ("epoch=7 promised=1", "", "", "[FENCED 0 0]", LOST.into()),
        ("epoch=7 promised=1", "", "stream", "[FENCED 0 0]", LOST.into()),
        ("epoch=7 promised=0", "", "", "[FENCED 0 0]", CLOSED.into()),
        // Another program's keys are kept aside.
        ("epoch=7", "string", "", "[FENCED 1 0]", format!("aside=x {LOST} -log")),
        ("epoch=7", "stream", "string", "[FENCED 0 1]", format!("{LOST} -older older_aside=x")),
    ])
    .await;
}

#[tokio::test]
async fn fence_takes_an_epoch_that_cannot_be_read_for_the_lowest() {
    let mut stage = Stage::new().await;
    let fence = VariadicScript::new(include_str!("../../../lua/fence.lua"));
    let closed = "lane.epoch=0 lane.state=recovering lane.steps=0";
    let keys = ["lane", "log", "older", "aside", "older_aside"];
    for (lane, reply, changes) in [
        ("", "[FENCED 0 0]", closed),
        ("epoch=x", "[FENCED 0 0]", closed),
        ("epoch=1", "[AHEAD 0 0]", ""),
    ] {
        stage.set("lane", lane).await;
        let done = stage.run(&fence, &keys, &["0"]).await;
        assert_eq!((&*done.reply, &*done.changes), (reply, changes), "{lane:?}");
    }
}

#[tokio::test]
async fn open_lane_opens_only_what_its_recovery_has_built_here() {
    let mut stage = Stage::new().await;
    let open = VariadicScript::new(include_str!("../../../lua/open_lane.lua"));
    let information: String = stage.redis(&["INFO", "replication"]).await;
    let id = information.lines().find_map(|line| line.strip_prefix("master_replid:"));
    let here = id.expect("each server has one");
    let recovered = "epoch=8 state=recovering beat=2 promised=3 written=1 log=lost steps=4";
    let opened = "lane.beat=5 -lane.log lane.state=open -lane.steps";
    for (lane, server, promised_min, reply, changes) in [
        (recovered, here, "-1", "OPENED", opened.to_owned()),
        (
            recovered,
            here,
            "9",
            "OPENED",
            "lane.beat=5 -lane.log lane.promised=9 lane.state=open -lane.steps lane.written=9"
                .into(),
        ),
        (
            recovered,
            here,
            "2",
            "OPENED",
            "lane.beat=5 -lane.log lane.state=open -lane.steps lane.written=3".into(),
        ),
        // All that was promised is written, also if no order has to have been promised.
        (
            recovered,
            here,
            "0",
            "OPENED",
            "lane.beat=5 -lane.log lane.state=open -lane.steps lane.written=3".into(),
        ),
        (
            "epoch=8 state=recovering steps=4",
            here,
            "0",
            "OPENED",
            "lane.beat=5 lane.state=open -lane.steps".into(),
        ),
        (
            "epoch=8 state=recovering steps=4",
            here,
            "1",
            "OPENED",
            "lane.beat=5 lane.promised=1 lane.state=open -lane.steps lane.written=1".into(),
        ),
        ("epoch=8 state=open steps=4 beat=9", here, "9", "PRESENT", String::new()),
        ("epoch=9 state=recovering steps=4", here, "9", "FENCED", String::new()),
        ("epoch=8 state=recovering steps=3", here, "9", "FENCED", String::new()),
        ("epoch=8 state=recovering", here, "9", "FENCED", String::new()),
        (recovered, "0123456789abcdef", "9", "FENCED", String::new()),
        ("epoch=8 state=open steps=4", "0123456789abcdef", "9", "FENCED", String::new()),
        ("", here, "9", "FENCED", String::new()),
    ] {
        stage.set("lane", lane).await;
        let done = stage.run(&open, &["lane"], &["8", "5", server, promised_min, "4"]).await;
        assert_eq!((&*done.reply, done.changes), (reply, changes), "{lane:?} {promised_min}");
    }
}
