//! Rung 3: an id without a coupon is kept, too, as an empty text.

use std::sync::Arc;

use crate::shelf::{COUPONS, Shelf};

async fn read(shelf: &Shelf, id: i64) -> anyhow::Result<Option<String>> {
    if let Some(title) = shelf.copy(id).await? {
        return Ok(Some(title).filter(|title| !title.is_empty()));
    }
    let title = shelf.query(id).await?;
    shelf.keep(id, title.as_deref().unwrap_or_default(), 60_000).await?;
    Ok(title)
}

/// Each made-up id is asked for twice. Then one of them becomes a coupon.
pub async fn play(shelf: &Arc<Shelf>) -> anyhow::Result<()> {
    for made_up in (1..=1_000).chain(1..=1_000) {
        shelf.shown(None, read(shelf, COUPONS + made_up)).await?;
    }
    shelf.write(COUPONS + 1, "new").await?;
    shelf.shown(Some("new"), read(shelf, COUPONS + 1)).await
}
