//! The time for which a lock is held.

use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::time::{Instant, sleep, timeout};

use crate::Shown;
use crate::scene::{LONG, Scene};

const LEASE: Duration = Duration::from_millis(200);

pub async fn ends_while_working(scene: &Scene) -> anyhow::Result<Shown> {
    ensure!(scene.set_nx("worked-in", "Ann", LEASE).await?, "it is free");
    // Ann works, and works.
    scene.expires("worked-in").await?;
    ensure!(scene.set_nx("worked-in", "Ben", LONG).await?, "the lease is over");
    Shown::new(
        "Ann was still at work when her lease ended, and Ben got in; she was not told",
        "a lease is a guess; it should last as long as the work, and no longer than its holder",
    )
}

pub async fn asked_for(scene: &Scene) -> anyhow::Result<Shown> {
    let locks = scene.reentrant_locks(LONG).await?;
    let lock = locks.lock("asked-for");
    let anns = lock.try_acquire(&locks.holder_with_lease(LEASE)).await?.context("it is free")?;
    let bens = lock.acquire(&locks.holder(), LONG).await?.context("the lease is over")?;
    timeout(LONG, anns.lost().cancelled()).await.context("she isn't told")?;
    ensure!(!bens.lost().is_cancelled(), "it is his");
    bens.release().await?;
    Shown::new(
        "Ann had asked for a lease of 200 ms, and no such lease is renewed: Ben got in. She was told: her token is cancelled",
        "an explicit lease switches the watchdog off, in Redisson too; leave it out unless the work has a limit",
    )
}

pub async fn renewed(scene: &Scene) -> anyhow::Result<Shown> {
    // A third of it has to be more than a busy machine may stall.
    let lease = 4 * LEASE;
    let locks = scene.reentrant_locks(lease).await?;
    let lock = locks.lock("renewed");
    let ben = locks.holder();
    let anns = lock.try_acquire(&locks.holder()).await?.context("it is free")?;
    let began = Instant::now();
    let mut tries = 0;
    while began.elapsed() < 3 * lease {
        ensure!(lock.try_acquire(&ben).await?.is_none(), "he got in");
        tries += 1;
        sleep(lease / 10).await;
    }
    ensure!(!anns.lost().is_cancelled(), "it is hers");
    anns.release().await?;
    Shown::new(
        format!(
            "Ann worked for three leases, renewed at each third; Ben tried {tries} times in vain"
        ),
        "if she dies, no renewal comes, and one lease later the lock is free",
    )
}

pub async fn not_re_entrant(scene: &Scene) -> anyhow::Result<Shown> {
    let plain = scene.owner_locks(LONG);
    let outer = plain.try_acquire("entered").await?.context("it is free")?;
    let inner = plain.acquire("entered", LEASE).await?;
    ensure!(inner.is_none(), "it is entered twice");
    outer.release().await?;
    let locks = scene.reentrant_locks(LONG).await?;
    let lock = locks.lock("re-entered");
    let ann = locks.holder();
    let outer = lock.try_acquire(&ann).await?.context("it is free")?;
    let inner = lock.try_acquire(&ann).await?.context("it is hers")?;
    inner.release().await?;
    ensure!(lock.try_acquire(&locks.holder()).await?.is_none(), "still hers");
    outer.release().await?;
    Shown::new(
        "under the plain lock Ann called something that takes it too, and waited for herself; the re-entrant one counts her entries, and is free after the last",
        "that is a lock to work with. What if Redis itself forgets it?",
    )
}
