//! One sale at one moment: does it add up in Redis, and are its terms those of Postgres?
//!
//! A change (an edit, a pause, more stock) reaches Postgres first and Redis a moment later, each with the same
//! revision. So Postgres is read first: a newer revision in Redis means that the change came in between, and
//! both are read again; an older one means that it is still on its way.

use std::iter;

use redis::RedisResult;

use super::{Check, Disagreement, Report, SaleCount, rows};
use crate::base::limits;
use crate::kit::redis::Redis;
use crate::kit::script::VariadicScript;
use crate::sale::ids::CouponId;
use crate::sale::keys::Keys;
use crate::sale::shards::Shards;
use crate::sale::{Failure, buyers};

/// Times that a sale is read again because it was changed meanwhile.
const READS_MAX: usize = 5;

/// What Redis has of a sale at one moment.
#[derive(Clone, Debug)]
pub struct Census {
    /// Users who hold a unit.
    pub buyers: i64,
    /// Shards of the buyers that are gone, with whoever was in them.
    pub shards_missing: i64,
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
    type Reply = (i64, i64, Number, Number, Option<String>, Number, Number, Number, Number);
    let script = VariadicScript::new(include_str!("../../../lua/census.lua"));
    // As long as Redis holds the sale, their number doesn't change.
    let shards = buyers::shards(redis, keys, coupon).await?.unwrap_or(Shards::ONE);
    let shards = shards.all().map(|shard| keys.buyers(coupon, shard));
    let names: Vec<String> = iter::once(keys.coupon(coupon)).chain(shards).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reply: Reply = script.run(&*redis.link().await?, &names, &[] as &[&str]).await?;
    let (buyers, shards_missing, total, stock, state, revision, epoch, opens_ms, closes_ms) = reply;
    Ok(Census { buyers, shards_missing, total, stock, state, revision, epoch, opens_ms, closes_ms })
}

impl Census {
    /// Whether total = stock left + buyers, and all of them are there.
    pub fn is_conserved(&self) -> bool {
        let adds_up = |(total, stock)| total == stock + self.buyers;
        self.shards_missing == 0 && self.total.zip(self.stock).is_some_and(adds_up)
    }
}

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
