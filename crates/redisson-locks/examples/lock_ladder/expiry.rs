//! Locks in Redis that stay for ever, or end by the wrong clock.

use std::time::Duration;

use anyhow::ensure;
use redis::Value;

use crate::Shown;
use crate::process::Other;
use crate::scene::Scene;

pub async fn setnx_alone(scene: &Scene) -> anyhow::Result<Shown> {
    let mut holder = Other::start("setnx", &[scene.redis_url(), "for-ever"])?;
    holder.says()?;
    holder.kill()?;
    let left: i64 = scene.ask(&["TTL", "for-ever"]).await?;
    let taken: bool = scene.ask(&["SETNX", "for-ever", "another"]).await?;
    ensure!(left == -1 && !taken, "it ends");
    Shown::new(
        "the holder was killed, and its lock has no end: no other process ever gets in",
        "a lock needs a lease: a time after which it is free whatever happened",
    )
}

pub async fn setnx_then_expire(scene: &Scene) -> anyhow::Result<Shown> {
    let mut holder = Other::start("setnx", &[scene.redis_url(), "two-steps"])?;
    holder.says()?;
    // It would send EXPIRE now.
    holder.kill()?;
    let left: i64 = scene.ask(&["TTL", "two-steps"]).await?;
    ensure!(left == -1, "it ends");
    Shown::new(
        "killed between the two commands, and the lock has no end again",
        "taking the lock and giving it a lease has to be one step",
    )
}

pub async fn setnx_and_expire_in_multi(scene: &Scene) -> anyhow::Result<Shown> {
    ensure!(scene.set_nx("multi", "Ann", Duration::from_secs(1)).await?, "it is free");
    // A transaction can't look at the first answer before it goes on to the second command.
    for words in [&["MULTI"][..], &["SETNX", "multi", "Ben"], &["EXPIRE", "multi", "30"]] {
        let _: Value = scene.ask(words).await?;
    }
    let replies: Vec<bool> = scene.ask(&["EXEC"]).await?;
    let left: i64 = scene.ask(&["PTTL", "multi"]).await?;
    ensure!(replies == [false, true] && left > 1_000, "{replies:?}, {left} ms");
    Shown::new(
        "Ben was told no, and has made Ann's lease of 1 s one of 30 s all the same",
        "a transaction runs its commands blindly; what has to decide is a script, or one command",
    )
}

/// Takes a lock whose value is its end, by the clock of the last writer. `now_ms` is the caller's clock.
async fn take_by_time_stamp(scene: &Scene, key: &str, now_ms: i64) -> anyhow::Result<bool> {
    let ends = (now_ms + 1_000).to_string();
    if scene.ask(&["SETNX", key, &ends]).await? {
        return Ok(true);
    }
    let seen: i64 = scene.ask(&["GET", key]).await?;
    if seen > now_ms {
        return Ok(false);
    }
    let replaced: i64 = scene.ask(&["GETSET", key, &ends]).await?;
    Ok(replaced == seen)
}

pub async fn getset_with_time_stamps(scene: &Scene) -> anyhow::Result<Shown> {
    let noon = 43_200_000;
    ensure!(take_by_time_stamp(scene, "stamped", noon).await?, "it is free");
    ensure!(!take_by_time_stamp(scene, "stamped", noon + 10).await?, "clocks agree");
    // 10 ms later as well, on a machine whose clock is 2 s fast.
    ensure!(take_by_time_stamp(scene, "stamped", noon + 2_010).await?, "clocks don't matter");
    Shown::new(
        "a lease of 1 s was over for a machine whose clock was 2 s fast: two inside",
        "one clock has to judge, and that is Redis's own",
    )
}

pub async fn two_deletes(scene: &Scene) -> anyhow::Result<Shown> {
    let _: () = scene.ask(&["SET", "stamped", "1"]).await?;
    let (seen_by_ann, seen_by_ben): (i64, i64) =
        (scene.ask(&["GET", "stamped"]).await?, scene.ask(&["GET", "stamped"]).await?);
    ensure!(seen_by_ann == 1 && seen_by_ben == 1, "over for both");
    let mut taken = Vec::new();
    for name in ["Ann", "Ben"] {
        let _: i64 = scene.ask(&["DEL", "stamped"]).await?;
        taken.push(scene.ask::<bool>(&["SETNX", "stamped", name]).await?);
    }
    ensure!(taken == [true, true], "{taken:?}");
    Shown::new(
        "both saw that the lease was over; Ann deleted the old lock and took it, Ben deleted Ann's and took it",
        "looking, deleting and taking has to be one step, and expiry is best left to Redis",
    )
}

pub async fn a_script_that_fails_half_way(scene: &Scene) -> anyhow::Result<Shown> {
    const SCRIPT: &str =
        "redis.call('SETNX', KEYS[1], 'mine') return redis.call('EXPIRE', KEYS[1], ARGV[1])";
    // A lease that was written with its unit.
    let failed = scene.ask::<i64>(&["EVAL", SCRIPT, "1", "scripted", "30s"]).await;
    let left: i64 = scene.ask(&["TTL", "scripted"]).await?;
    ensure!(failed.is_err() && left == -1, "{left}");
    Shown::new(
        "the second command failed, what the first had done stayed: a lock without an end",
        "a script is not undone; what can fail comes first, or it is one command: SET NX PX",
    )
}
