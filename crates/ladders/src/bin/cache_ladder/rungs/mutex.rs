//! Rung 6: the reader that gets a lock asks Postgres; the others wait and look again.

use std::time::Duration;

use tokio::time::sleep;

use crate::shelf::Shelf;

async fn read(shelf: &Shelf, id: i64) -> anyhow::Result<Option<String>> {
    let lock = format!("lock:{id}");
    loop {
        if let Some(title) = shelf.copy(id).await? {
            return Ok(Some(title));
        }
        let locked: Option<String> = shelf.ask(&["SET", &lock, "me", "NX", "PX", "60000"]).await?;
        if locked.is_none() {
            sleep(Duration::from_millis(5)).await;
            continue;
        }
        // Another reader may have kept a copy between the look and the lock.
        let title = match shelf.copy(id).await? {
            Some(title) => title,
            None => shelf.query(id).await?.unwrap_or_default(),
        };
        shelf.keep(id, &title, 60_000).await?;
        shelf.ask::<()>(&["DEL", &lock]).await?;
        return Ok(Some(title));
    }
}

pub async fn play(shelf: &Shelf) -> anyhow::Result<()> {
    shelf
        .crowd(async |shelf, id| {
            shelf.together().await;
            shelf.shown(Some("old"), read(shelf, id)).await
        })
        .await
}
