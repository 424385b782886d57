//! Release of a lock by its owner only.

use std::time::Duration;

use anyhow::{Context, ensure};

use crate::Shown;
use crate::scene::{LONG, Scene};

const SHORT: Duration = Duration::from_millis(50);

pub async fn fixed_value(scene: &Scene) -> anyhow::Result<Shown> {
    ensure!(scene.set_nx("fixed", "locked", SHORT).await?, "it is free");
    scene.expires("fixed").await?;
    ensure!(scene.set_nx("fixed", "locked", LONG).await?, "Ann's lease is over");
    // Ann is done, and releases the lock that she takes for hers.
    let _: i64 = scene.ask(&["DEL", "fixed"]).await?;
    ensure!(scene.set_nx("fixed", "locked", LONG).await?, "Ben's lock is gone");
    Shown::new(
        "Ann's lease was over, so Ben got the lock; Ann deleted it, and Cem got in beside Ben",
        "a lock has to say whose it is",
    )
}

pub async fn get_then_delete(scene: &Scene) -> anyhow::Result<Shown> {
    ensure!(scene.set_nx("looked-at", "ann-4711", SHORT).await?, "it is free");
    let whose: String = scene.ask(&["GET", "looked-at"]).await?;
    ensure!(whose == "ann-4711", "it is hers when she looks");
    scene.expires("looked-at").await?;
    ensure!(scene.set_nx("looked-at", "ben-4712", LONG).await?, "her lease is over");
    let deleted: i64 = scene.ask(&["DEL", "looked-at"]).await?;
    ensure!(deleted == 1, "Ben's lock is gone");
    Shown::new(
        "Ann looked and saw her own value; when she deleted it a moment later, it was Ben's",
        "looking and deleting has to be one step: a script",
    )
}

pub async fn compare_and_delete(scene: &Scene) -> anyhow::Result<Shown> {
    let ann = scene.owner_locks(SHORT);
    let ben = scene.owner_locks(LONG);
    let anns = ann.try_acquire("owned").await?.context("it is free")?;
    // So that the lease ends although it is renewed.
    let _: i64 = scene.ask(&["DEL", "owned"]).await?;
    let bens = ben.try_acquire("owned").await?.context("it is free")?;
    ensure!(!anns.release().await?, "hers is gone");
    ensure!(ann.try_acquire("owned").await?.is_none(), "Ben's is there");
    ensure!(bens.release().await?, "and he can release it");
    Shown::new(
        "Ann's release found Ben's value and left it alone",
        "that is a sound lock; but how does a second client wait for it?",
    )
}
