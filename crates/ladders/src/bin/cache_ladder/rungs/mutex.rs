//! Rung 6: the reader that gets a lock asks Postgres; the others wait and look again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::shelf::Shelf;

async fn read(shelf: &Shelf) -> anyhow::Result<Option<String>> {
    loop {
        if let Some(title) = shelf.copy(1).await? {
            return Ok(Some(title));
        }
        let locked: Option<String> =
            shelf.ask(&["SET", "lock:1", "me", "NX", "PX", "60000"]).await?;
        if locked.is_none() {
            sleep(Duration::from_millis(5)).await;
            continue;
        }
        // Another reader may have kept a copy between the look and the lock.
        let title = match shelf.copy(1).await? {
            Some(title) => title,
            None => shelf.query(1).await?.unwrap_or_default(),
        };
        shelf.keep(1, &title, 60_000).await?;
        shelf.ask::<()>(&["DEL", "lock:1"]).await?;
        return Ok(Some(title));
    }
}

pub async fn play(shelf: &Arc<Shelf>) -> anyhow::Result<()> {
    shelf
        .crowd(async |shelf| {
            shelf.together().await;
            shelf.shown(Some("old"), read(&shelf)).await
        })
        .await
}
