//! Rung 1: each read is a query.

use std::sync::Arc;

use crate::shelf::Shelf;

pub async fn play(shelf: &Arc<Shelf>) -> anyhow::Result<()> {
    shelf.crowd(async |shelf| shelf.shown(Some("old"), shelf.query(1)).await).await
}
