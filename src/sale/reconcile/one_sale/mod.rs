//! One sale at one moment: its sum in Redis, and its terms in both stores.
//!
//! A change (an edit, a pause, more stock) reaches Postgres first and Redis a moment later, each with the same
//! revision. So Postgres is read first: a newer revision in Redis means that the change came in between, and both are
//! read again; an older one means that the change is still on its way.

// Its buyers and orders.
mod promises;

// Its side in Postgres.
mod rows;

// Digests of buyers and orders.
mod digest;

use digest::Digest;
pub(super) use rows::terms;

use super::{Check, Disagreement, Report, SaleCount};
use crate::base::limits;
use crate::sale::Failure;
use crate::sale::buyers::census::{Census, census};
use crate::sale::ids::CouponId;

/// Times that a sale is read again because it was changed meanwhile.
const READS_MAX: usize = 5;

impl Check<'_> {
    /// Compares one sale.
    pub(super) async fn sale(&self, coupon: CouponId, report: &mut Report) -> Result<(), Failure> {
        let Some((terms, census)) = self.read_sale(coupon).await? else {
            return Ok(());
        };
        let Census { buyers, shards_missing, total: Some(total), stock: Some(stock), .. } = census
        else {
            report.disagreements.push(Disagreement::SaleMissing { coupon });
            return Ok(());
        };
        let found = &mut report.disagreements;
        if shards_missing > 0 {
            found.push(Disagreement::ShardsMissing { coupon, shards: shards_missing });
        }
        if total != stock + buyers {
            found.push(Disagreement::NotConserved { coupon, total, stock, buyers });
        }
        if stock < 0 {
            found.push(Disagreement::NegativeStock { coupon, stock });
        }
        found.extend(compare(coupon, &terms, &census));
        let promises = self.promises(coupon, found).await?;
        report.sales.push(SaleCount {
            coupon,
            total,
            stock,
            buyers,
            live_orders: promises.live_orders,
            in_review: promises.in_review,
            identical: promises.identical,
        });
        Ok(())
    }

    /// The facts of both stores. `None` if the sale has been archived.
    async fn read_sale(&self, coupon: CouponId) -> Result<Option<(rows::Terms, Census)>, Failure> {
        for read in 1.. {
            let Some(terms) = rows::terms(self.pool, coupon).await? else {
                break;
            };
            let census = census(self.redis, self.keys, coupon).await?;
            let missing = census.total.is_none();
            let changed = census.revision.is_some_and(|revision| revision > terms.revision);
            // Missing: archived since Postgres was read, or lost.
            if !missing && !changed || read >= READS_MAX {
                return Ok(Some((terms, census)));
            }
        }
        Ok(None)
    }
}

/// The terms in Redis against those in Postgres.
fn compare(coupon: CouponId, terms: &rows::Terms, census: &Census) -> Vec<Disagreement> {
    let Census { total, state, revision, epoch, opens_ms, closes_ms, .. } = census;
    let mut found = Vec::new();
    if let (Some(redis), Some(postgres)) = (*epoch, terms.epoch)
        && redis != postgres
    {
        found.push(Disagreement::EpochDiffers { coupon, redis, postgres });
    }
    if let Some(redis) = revision.filter(|redis| *redis != terms.revision) {
        let postgres = terms.revision;
        if redis > postgres
            || u128::try_from(terms.changed_ms_ago).unwrap_or(0)
                > limits::CHANGE_APPLIED_MAX.as_millis()
        {
            found.push(Disagreement::RevisionDiffers { coupon, redis, postgres });
        }
        return found;
    }
    if let Some(redis) = total.filter(|redis| *redis != terms.total) {
        found.push(Disagreement::TotalDiffers { coupon, redis, postgres: terms.total });
    }
    let mut differ = |what, redis: &str, postgres: &str| {
        if redis != postgres {
            let redis = redis.to_owned();
            let postgres = postgres.to_owned();
            found.push(Disagreement::TermsDiffer { coupon, what, redis, postgres });
        }
    };
    // Its first claim will open it.
    let state = state.as_deref().filter(|state| *state != "loading");
    differ("state", state.unwrap_or(terms.state.as_str()), terms.state.as_str());
    for (what, redis, postgres) in
        [("start", opens_ms, terms.opens_at), ("end", closes_ms, terms.closes_at)]
    {
        let ms = |ms: i64| format!("{ms} ms since 1970");
        let redis = redis.map_or_else(|| "missing".to_owned(), ms);
        differ(what, &redis, &ms(postgres.timestamp_millis()));
    }
    found
}
