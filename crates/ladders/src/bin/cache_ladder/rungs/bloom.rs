//! Rung 4: a filter of all ids that exist, before Redis and Postgres.

use fastbloom::BloomFilter;

use crate::rungs::aside;
use crate::shelf::{COUPONS, MADE_UP, Shelf};

async fn read(shelf: &Shelf, filter: &BloomFilter, id: i64) -> anyhow::Result<Option<String>> {
    if !filter.contains(&id) {
        return Ok(None);
    }
    aside::read(shelf, id).await
}

/// Made-up ids; then a coupon of which the filter has not been told.
pub async fn play(shelf: &Shelf) -> anyhow::Result<()> {
    // The seed is fixed, and so are the ids that the filter takes for coupons by mistake.
    let ids: Vec<i64> = (1..=COUPONS).collect();
    let filter = BloomFilter::with_false_pos(0.01).seed(&1).items(ids.iter());
    for made_up in 1..=MADE_UP {
        shelf.shown(None, read(shelf, &filter, COUPONS + made_up)).await?;
    }
    let missed = (1..).map(|step| 2 * COUPONS + step).find(|id| !filter.contains(id));
    let missed = missed.unwrap_or_default();
    shelf.write(missed, "new").await?;
    shelf.shown(Some("new"), read(shelf, &filter, missed)).await
}
