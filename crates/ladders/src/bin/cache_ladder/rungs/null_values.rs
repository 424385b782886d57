//! Rung 3: an id without a coupon is kept, too, as an empty text.

use crate::shelf::{COUPONS, MADE_UP, Shelf};

async fn read(shelf: &Shelf, id: i64) -> anyhow::Result<Option<String>> {
    if let Some(title) = shelf.copy(id).await? {
        return Ok(Some(title).filter(|title| !title.is_empty()));
    }
    let title = shelf.query(id).await?;
    shelf.keep(id, title.as_deref().unwrap_or_default(), 60_000).await?;
    Ok(title)
}

/// Each made-up id is asked for twice. Then one of them becomes a coupon.
pub async fn play(shelf: &Shelf) -> anyhow::Result<()> {
    let (first, last) = (COUPONS + 1, COUPONS + MADE_UP);
    for made_up in (first..=last).chain(first..=last) {
        shelf.shown(None, read(shelf, made_up)).await?;
    }
    shelf.write(first, "new").await?;
    shelf.shown(Some("new"), read(shelf, first)).await
}
