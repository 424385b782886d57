//! Rung 7: a copy never expires in Redis. It carries its own expiry; the reader that gets a lock renews it, and the others
//! are shown the older one.

use std::sync::Arc;

use crate::shelf::Shelf;

async fn read(shelf: &Shelf) -> anyhow::Result<Option<String>> {
    let copy = shelf.copy(1).await?.unwrap_or_default();
    shelf.together().await;
    let lock = ["SET", "lock:1", "me", "NX", "PX", "60000"];
    let is_expired = copy.starts_with("expired:");
    if is_expired && shelf.ask::<Option<String>>(&lock).await?.is_some() {
        let title = shelf.query(1).await?.unwrap_or_default();
        shelf.ask::<()>(&["SET", "1", &format!("valid:{title}")]).await?;
    }
    Ok(copy.split(':').nth(1).map(ToOwned::to_owned))
}

/// The copy `expired:old`, after the title has been changed.
pub async fn play(shelf: &Arc<Shelf>) -> anyhow::Result<()> {
    shelf.ask::<()>(&["SET", "1", "expired:old"]).await?;
    shelf.write(1, "new").await?;
    shelf.crowd(async |shelf| shelf.shown(Some("new"), read(&shelf)).await).await
}
