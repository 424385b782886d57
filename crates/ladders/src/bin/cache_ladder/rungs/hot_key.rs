//! Rung 5: cache-aside, and the copy of a hot coupon expires while a crowd reads.

use std::sync::Arc;

use crate::shelf::Shelf;

async fn read(shelf: &Shelf) -> anyhow::Result<Option<String>> {
    let copy = shelf.copy(1).await?;
    // Each has found nothing before the first has kept a new copy.
    shelf.together().await;
    let title = if copy.is_none() { shelf.query(1).await? } else { copy };
    shelf.keep(1, title.as_deref().unwrap_or_default(), 60_000).await?;
    Ok(title)
}

pub async fn play(shelf: &Arc<Shelf>) -> anyhow::Result<()> {
    shelf.crowd(async |shelf| shelf.shown(Some("old"), read(&shelf)).await).await
}
