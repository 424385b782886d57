//! Rung 9: a title is changed while a reader is between its query and its copy. The schedule is the worst one.

use crate::rungs::aside;
use crate::shelf::Shelf;

/// A later reader. The copy lives for a minute, and the old title with it.
async fn later(shelf: &Shelf, id: i64) -> anyhow::Result<()> {
    shelf.shown(Some("new"), aside::read(shelf, id)).await
}

pub async fn delete_first(shelf: &Shelf, id: i64) -> anyhow::Result<()> {
    shelf.delete(id).await?;
    // The whole read of another process falls between the two steps: the usual case.
    aside::read(shelf, id).await?;
    shelf.write(id, "new").await?;
    later(shelf, id).await
}

pub async fn write_first(shelf: &Shelf, id: i64) -> anyhow::Result<()> {
    // A reader has found no copy, and has asked Postgres; then it is slow.
    let read = shelf.query(id).await?.unwrap_or_default();
    shelf.write(id, "new").await?;
    shelf.delete(id).await?;
    shelf.keep(id, &read, 60_000).await?;
    later(shelf, id).await
}

pub async fn versions(shelf: &Shelf, id: i64) -> anyhow::Result<()> {
    let (of_version, of_copy) = (format!("version:{id}"), id.to_string());
    let version: Option<i64> = shelf.ask(&["GET", &of_version]).await?;
    let read = shelf.query(id).await?.unwrap_or_default();
    shelf.write(id, "new").await?;
    shelf.ask::<()>(&["INCR", &of_version]).await?;
    shelf.delete(id).await?;
    // The reader keeps what it has read only under the version that it began with. One script does both.
    let keep = "if redis.call('GET', KEYS[1]) == (ARGV[1] ~= '' and ARGV[1]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', 60000) end";
    let version = version.map(|version| version.to_string()).unwrap_or_default();
    shelf.ask::<()>(&["EVAL", keep, "2", &of_version, &of_copy, &version, &read]).await?;
    later(shelf, id).await
}
