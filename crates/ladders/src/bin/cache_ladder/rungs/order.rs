//! Rung 9: a title is changed while a reader is between its query and its copy. The schedule is the worst one.

use std::sync::Arc;

use crate::rungs::aside;
use crate::shelf::Shelf;

/// A later reader. The copy lives for a minute, and the old title with it.
async fn later(shelf: &Shelf) -> anyhow::Result<()> {
    shelf.shown(Some("new"), aside::read(shelf, 1)).await
}

pub async fn delete_first(shelf: &Arc<Shelf>) -> anyhow::Result<()> {
    shelf.delete(1).await?;
    // The whole read of another process falls between the two steps: the usual case.
    aside::read(shelf, 1).await?;
    shelf.write(1, "new").await?;
    later(shelf).await
}

pub async fn write_first(shelf: &Arc<Shelf>) -> anyhow::Result<()> {
    // A reader has found no copy, and has asked Postgres; then it is slow.
    let read = shelf.query(1).await?.unwrap_or_default();
    shelf.write(1, "new").await?;
    shelf.delete(1).await?;
    shelf.keep(1, &read, 60_000).await?;
    later(shelf).await
}

pub async fn versions(shelf: &Arc<Shelf>) -> anyhow::Result<()> {
    let version: Option<i64> = shelf.ask(&["GET", "version:1"]).await?;
    let read = shelf.query(1).await?.unwrap_or_default();
    shelf.write(1, "new").await?;
    shelf.ask::<()>(&["INCR", "version:1"]).await?;
    shelf.delete(1).await?;
    // The reader keeps what it has read only under the version that it began with. One script does both.
    let keep = "if redis.call('GET', KEYS[1]) == (ARGV[1] ~= '' and ARGV[1]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', 60000) end";
    let version = version.map(|version| version.to_string()).unwrap_or_default();
    shelf.ask::<()>(&["EVAL", keep, "2", "version:1", "1", &version, &read]).await?;
    later(shelf).await
}
