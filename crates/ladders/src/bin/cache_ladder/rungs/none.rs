//! Rung 1: each read is a query.

use crate::shelf::Shelf;

pub async fn play(shelf: &Shelf) -> anyhow::Result<()> {
    shelf.crowd(async |shelf, id| shelf.shown(Some("old"), shelf.query(id)).await).await
}
