//! Rung 7: a copy never expires in Redis. It carries its own expiry; the reader that gets a lock renews it, and the others
//! are shown the older one.

use crate::shelf::Shelf;

async fn read(shelf: &Shelf, id: i64) -> anyhow::Result<Option<String>> {
    let copy = shelf.copy(id).await?.unwrap_or_default();
    shelf.together().await;
    let lock = ["SET", &format!("lock:{id}"), "me", "NX", "PX", "60000"];
    let is_expired = copy.starts_with("expired:");
    if is_expired && shelf.ask::<Option<String>>(&lock).await?.is_some() {
        let title = shelf.query(id).await?.unwrap_or_default();
        shelf.ask::<()>(&["SET", &id.to_string(), &format!("valid:{title}")]).await?;
    }
    Ok(copy.split(':').nth(1).map(ToOwned::to_owned))
}

/// Copies `expired:old`, after the titles have been changed.
pub async fn play(shelf: &Shelf) -> anyhow::Result<()> {
    shelf.ask::<()>(&["SET", "1", "expired:old"]).await?;
    shelf.write(1, "new").await?;
    shelf.crowd(async |shelf, id| shelf.shown(Some("new"), read(shelf, id)).await).await
}
