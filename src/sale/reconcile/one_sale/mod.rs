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

use promises::Promises;
pub(super) use rows::terms;

use super::readings::{self, Reading};
use super::{Check, Disagreement, Earlier, Report, SaleCount};
use crate::base::limits;
use crate::sale::Failure;
use crate::sale::buyers::census::{Census, census};
use crate::sale::ids::CouponId;
use crate::sale::order::counts::LiveOrders;

/// Times that a sale is read again because it was changed meanwhile.
const READS_MAX: usize = 5;

/// Facts by which a comparison leaves out the orders of a sale.
pub(super) struct Known<'a> {
    /// The last full reading.
    pub reading: Option<&'a Reading>,
    /// Live orders by the running counts, read before the sale in Redis.
    pub live: &'a LiveOrders,
    /// Buyers that this comparison may still read.
    pub room: &'a mut i64,
}

/// Reason to leave out the orders of a sale.
enum LeftOut {
    /// Neither side has changed since a good reading.
    Unchanged,
    /// The sale has changed, and is too large to be read now.
    Waiting,
}

impl Known<'_> {
    /// Takes room for the orders of the sale, unless they are left out.
    fn left_out(&mut self, census: &Census) -> Option<LeftOut> {
        let LiveOrders { orders, digest, total, sold } = self.live;
        let is_as_read = self.reading.is_some_and(|reading| {
            reading.is_good
                && reading.in_redis == readings::mark(census)
                && reading.in_postgres == *digest
        });
        if is_as_read && sold == orders && orders <= total {
            return Some(LeftOut::Unchanged);
        }
        let needed = census.buyers.max(*orders);
        if needed > *self.room {
            return Some(LeftOut::Waiting);
        }
        *self.room -= needed;
        None
    }
}

impl Check<'_> {
    /// Compares one sale, with its orders unless they may be left out by what is `known`.
    pub(super) async fn sale(
        &self,
        coupon: CouponId,
        known: Option<Known<'_>>,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let Some((terms, census)) = self.read_sale(coupon).await? else {
            return Ok(());
        };
        let (Some(total), Some(stock)) = (census.total, census.stock) else {
            report.disagreements.push(Disagreement::SaleMissing { coupon });
            return Ok(());
        };
        let before = report.disagreements.len();
        report.disagreements.extend(sums(coupon, total, stock, &census));
        report.disagreements.extend(compare(coupon, &terms, &census));
        let buyers = census.buyers;
        let sale = |(live_orders, in_review, identical)| SaleCount {
            coupon,
            total,
            stock,
            buyers,
            live_orders,
            in_review,
            identical,
        };
        let left_out = known.and_then(|mut known| Some((known.left_out(&census)?, known)));
        if let Some((left_out, known)) = left_out {
            let live_orders = usize::try_from(known.live.orders).unwrap_or(0);
            let identical = matches!(left_out, LeftOut::Unchanged);
            report.sales.push(sale((live_orders, 0, identical)));
            leave_out(coupon, &left_out, &known, report);
            return Ok(());
        }
        let promises = self.promises(coupon, &mut report.disagreements).await?;
        let Promises { live_orders, in_review, identical, digest } = promises;
        report.sales.push(sale((live_orders, in_review, identical)));
        let found = &report.disagreements[before..];
        report.readings.push(Reading {
            coupon,
            in_redis: readings::mark(&census),
            in_postgres: digest,
            is_good: found.is_empty() && identical,
            codes: readings::codes_of(found),
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

/// Takes note of a sale whose orders are left out: a changed one by its running counts, and by what was found before.
fn leave_out(coupon: CouponId, left_out: &LeftOut, known: &Known<'_>, report: &mut Report) {
    if matches!(left_out, LeftOut::Unchanged) {
        report.unchanged += 1;
        return;
    }
    report.waiting += 1;
    let live_orders = usize::try_from(known.live.orders).unwrap_or(0);
    report.disagreements.extend(rows::units(coupon, live_orders, known.live));
    let codes = known.reading.map(|reading| &reading.codes[..]).unwrap_or_default();
    let earlier = codes.iter().map(|code| Earlier { coupon, code: code.clone() });
    report.earlier.extend(earlier);
}

/// The numbers of the sale in Redis among themselves.
fn sums(coupon: CouponId, total: i64, stock: i64, census: &Census) -> Vec<Disagreement> {
    let Census { buyers, shards_missing: shards, .. } = *census;
    let mut found = Vec::new();
    if shards > 0 {
        found.push(Disagreement::ShardsMissing { coupon, shards });
    }
    if total != stock + buyers {
        found.push(Disagreement::NotConserved { coupon, total, stock, buyers });
    }
    if stock < 0 {
        found.push(Disagreement::NegativeStock { coupon, stock });
    }
    found
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
