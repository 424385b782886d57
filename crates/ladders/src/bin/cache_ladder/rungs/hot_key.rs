//! Rung 5: cache-aside, and the copy of a hot coupon expires while a crowd reads.

use crate::shelf::Shelf;

async fn read(shelf: &Shelf, id: i64) -> anyhow::Result<Option<String>> {
    let copy = shelf.copy(id).await?;
    // Each has found nothing before the first has kept a new copy.
    shelf.together().await;
    let title = if copy.is_none() { shelf.query(id).await? } else { copy };
    shelf.keep(id, title.as_deref().unwrap_or_default(), 60_000).await?;
    Ok(title)
}

pub async fn play(shelf: &Shelf) -> anyhow::Result<()> {
    shelf.crowd(async |shelf, id| shelf.shown(Some("old"), read(shelf, id)).await).await
}
