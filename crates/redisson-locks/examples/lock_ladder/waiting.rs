//! Ways to wait for a lock.

use std::time::Duration;

use anyhow::{Context, ensure};
use redis::InfoDict;
use tokio::time::{Instant, sleep};

use crate::Shown;
use crate::scene::{LONG, Scene};

/// Time for which the holder works.
const WORK: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(10);

pub async fn polling(scene: &Scene) -> anyhow::Result<Shown> {
    ensure!(scene.set_nx("polled", "Ann", LONG).await?, "it is free");
    for _ in 0..20 {
        ensure!(!scene.set_nx("polled", "Ben", LONG).await?, "he got it");
        sleep(PAUSE).await;
    }
    let _: i64 = scene.ask(&["DEL", "polled"]).await?;
    ensure!(scene.set_nx("polled", "Cem", LONG).await?, "it is free again");
    Shown::new(
        "Ben asked 20 times in vain and gave up; Ann released it a moment later, and Cem, who had just come, got the lock",
        "polling costs a command for each look, comes late, and has to guess its limit",
    )
}

pub async fn waiting_to_be_told(scene: &Scene) -> anyhow::Result<Shown> {
    let locks = scene.reentrant_locks(LONG).await?;
    let lock = locks.lock("told");
    let ben = locks.holder();
    let anns = lock.try_acquire(&locks.holder()).await?.context("it is free")?;
    let before = scripts(scene).await?;
    let holder = async {
        sleep(WORK).await;
        let began = Instant::now();
        anns.release().await?;
        anyhow::Ok(began)
    };
    let (began, waited) = tokio::join!(holder, lock.acquire(&ben, LONG));
    let bens = waited?.context("it was released")?;
    let woke = began?.elapsed();
    let calls = scripts(scene).await? - before;
    ensure!(calls <= 6, "{calls} scripts");
    ensure!(woke < WORK, "{woke:?}");
    bens.release().await?;
    Shown::new(
        format!(
            "Ben tried, subscribed, tried again, and slept until he was told: {calls} calls in all, and in {:.1} ms he had the lock",
            woke.as_secs_f64() * 1_000.0
        ),
        "the second try matters: a message between the first one and the subscription is missed. And if the work outlasts the lease?",
    )
}

/// Calls of scripts so far, to take and to release.
async fn scripts(scene: &Scene) -> anyhow::Result<i64> {
    let stats: InfoDict = scene.ask(&["INFO", "commandstats"]).await?;
    let calls = |name: &str| {
        let line: String = stats.get(name).unwrap_or_default();
        let calls =
            line.strip_prefix("calls=").and_then(|line| line.split(',').next()?.parse().ok());
        calls.unwrap_or(0)
    };
    Ok(calls("cmdstat_evalsha"))
}
