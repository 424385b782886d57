//! Rung 2: look into Redis, then into Postgres, and keep a copy. An id without a coupon has nothing to keep.

use crate::shelf::{COUPONS, MADE_UP, Shelf};

pub async fn read(shelf: &Shelf, id: i64) -> anyhow::Result<Option<String>> {
    if let Some(title) = shelf.copy(id).await? {
        return Ok(Some(title));
    }
    let title = shelf.query(id).await?;
    if let Some(title) = &title {
        shelf.keep(id, title, 60_000).await?;
    }
    Ok(title)
}

/// Half of the reads are of one coupon, half of ids that are made up.
pub async fn play(shelf: &Shelf) -> anyhow::Result<()> {
    for made_up in 1..=MADE_UP {
        shelf.shown(Some("old"), read(shelf, 1)).await?;
        shelf.shown(None, read(shelf, COUPONS + made_up)).await?;
    }
    Ok(())
}
