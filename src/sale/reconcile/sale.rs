//! One sale at one moment: does it add up in Redis, and are its terms those of Postgres?
//!
//! A change (an edit, a pause, more stock) reaches Postgres first and Redis a moment later, each with the same
//! revision. So Postgres is read first: a newer revision in Redis means that the change came in between, and
//! both are read again; an older one means that it is still on its way.

use redis::RedisResult;

use super::{Check, Disagreement, Report, SaleCount, rows};
use crate::base::limits;
use crate::kit::redis::Redis;
use crate::kit::script::Script;
use crate::sale::Failure;
use crate::sale::ids::CouponId;
use crate::sale::keys::Keys;

/// Times that a sale is read again because it was changed meanwhile.
const READS_MAX: usize = 5;

/// What Redis has of a sale at one moment.
#[derive(Clone, Debug)]
pub struct Census {
    /// Users who hold a unit.
    pub buyers: i64,
    /// Units on offer; this and all that follows is missing if the sale is.
    pub total: Option<i64>,
    /// Units left.
    pub stock: Option<i64>,
    /// Whether it can be claimed.
    pub state: Option<String>,
    /// Last change that has reached it.
    pub revision: Option<i64>,
    /// Approved state of Redis that it belongs to.
    pub epoch: Option<i64>,
    /// Start of the window.
    pub opens_ms: Option<i64>,
    /// End of the window.
    pub closes_ms: Option<i64>,
}

/// Counts one sale in Redis.
///
/// # Errors
///
/// When Redis doesn't answer.
pub async fn census(redis: &Redis, keys: &Keys, coupon: CouponId) -> RedisResult<Census> {
    type Number = Option<i64>;
    type Reply = (i64, Number, Number, Option<String>, Number, Number, Number, Number);
    let script = Script::<2>::new(include_str!("../../../lua/census.lua"));
    let names = [keys.coupon(coupon), keys.buyers(coupon)];
    let link = redis.link().await?;
    let reply: Reply = script.run(&link, [&names[0], &names[1]], &[] as &[&str]).await?;
    let (buyers, total, stock, state, revision, epoch, opens_ms, closes_ms) = reply;
    Ok(Census { buyers, total, stock, state, revision, epoch, opens_ms, closes_ms })
}

impl Census {
    /// Whether total = stock left + buyers.
    pub fn is_conserved(&self) -> bool {
        self.total.zip(self.stock).is_some_and(|(total, stock)| total == stock + self.buyers)
    }
}

impl Check<'_> {
    /// Compares one sale.
    pub(super) async fn sale(&self, coupon: CouponId, report: &mut Report) -> Result<(), Failure> {
        let Some((terms, census)) = self.read_sale(coupon).await? else {
            return Ok(());
        };
        let Census { buyers, total: Some(total), stock: Some(stock), .. } = census else {
            report.disagreements.push(Disagreement::SaleMissing { coupon });
            return Ok(());
        };
        let found = &mut report.disagreements;
        if !census.is_conserved() {
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

    /// What both stores say. Nothing if the sale has been archived.
    async fn read_sale(&self, coupon: CouponId) -> Result<Option<(rows::Terms, Census)>, Failure> {
        for read in 1.. {
            let Some(terms) = rows::terms(self.pool, coupon).await? else {
                break;
            };
            let census = census(self.redis, self.keys, coupon).await?;
            let missing = census.total.is_none();
            let changed = census.revision.is_some_and(|revision| revision > terms.revision);
            // Missing: archived since Postgres was read?
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
    if let Some(redis) = epoch.filter(|redis| *redis != terms.epoch) {
        found.push(Disagreement::EpochDiffers { coupon, redis, postgres: terms.epoch });
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
            let (redis, postgres) = (redis.to_owned(), postgres.to_owned());
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
