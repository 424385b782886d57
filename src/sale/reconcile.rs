//! Do Redis and Postgres agree? One wording and one implementation of the law of conservation, for the
//! command line, the tests and everything that wants proof after a run. Reads only.
//!
//! # What is compared
//!
//! For each sale in Redis: total = stock left + buyers at one moment; and every buyer, by order id,
//! against live orders, open dead letters that hold a place, and entries that are still in flight. For
//! each lane: whatever was acknowledged is a row or a dead letter, and nothing pending has been deleted.
//!
//! # On a busy service
//!
//! Buyers are read first, then what is in flight, then Postgres. A buyer's entry that was no longer in
//! flight when the log was read is in Postgres when that is read. So a claim that is under way is never
//! reported as lost. Orders that came after the buyers were read are looked up once more.
//! At rest (no claims, nothing in flight) the comparison is exact.

use std::collections::{HashMap, HashSet};
use std::fmt;

use redis::FromRedisValue;
use sqlx::PgPool;

use super::ids::{CouponId, Lane, OrderId, UserId};
use super::keys::Keys;
use super::order::Orders;
use super::order_log::{GROUP, LogEntry, OrderLog, Unwritten};
use super::{Failure, buyers, dead_letter, settings, stock};
use crate::kit::redis::Redis;
use crate::kit::script::Script;

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    /// One line for each sale that Redis has to hold.
    pub sales: Vec<SaleCount>,
    /// Entries in flight, over all lanes.
    pub in_flight: u64,
    /// Everything that doesn't agree. Empty is the only good answer.
    pub disagreements: Vec<Disagreement>,
}

/// One sale in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleCount {
    /// Which.
    pub coupon: CouponId,
    /// Units on offer, by Redis.
    pub total: i64,
    /// Units left, by Redis.
    pub stock: i64,
    /// Buyers, by Redis.
    pub buyers: i64,
    /// Live orders, by Postgres.
    pub live_orders: usize,
    /// Buyers whose order is an open dead letter.
    pub in_review: usize,
}

/// Something that doesn't agree, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// Redis doesn't hold a sale that it was given.
    SaleMissing { coupon: CouponId },
    /// total ≠ stock + buyers.
    NotConserved { coupon: CouponId, total: i64, stock: i64, buyers: i64 },
    /// stock < 0.
    NegativeStock { coupon: CouponId, stock: i64 },
    /// Redis and Postgres have different totals.
    TotalDiffers { coupon: CouponId, redis: i64, postgres: i64 },
    /// Redis and Postgres have different epochs.
    EpochDiffers { coupon: CouponId, redis: i64, postgres: i64 },
    /// More live orders than units.
    Oversold { coupon: CouponId, live_orders: usize, total: i64 },
    /// `sold` doesn't count the live orders.
    SoldMiscounted { coupon: CouponId, sold: i64, live_orders: usize },
    /// A buyer whose order is nowhere.
    OrderLost { coupon: CouponId, user: UserId, order: OrderId },
    /// A live order that Redis knows nothing of, or knows under another id.
    BuyerMissing { coupon: CouponId, user: UserId, order: OrderId, in_redis: Option<OrderId> },
    /// Acknowledged entries that are neither row nor dead letter.
    AcknowledgedUnwritten { lane: Lane, acknowledged: u64, accounted: u64 },
    /// A pending entry that the log doesn't have any more.
    PendingDeleted { lane: Lane, entry_id: String },
}

/// Compares everything that Redis has to hold with Postgres.
///
/// # Errors
///
/// When a store doesn't answer; nothing can be said then.
pub async fn check(pool: &PgPool, redis: &Redis, keys: &Keys) -> Result<Report, Failure> {
    let settings = settings::read(pool).await?;
    let mut report = Report::default();
    let check =
        Check { pool, redis, keys, orders: Orders::new(pool.clone()), epoch: settings.epoch };
    for coupon in stock::loaded(pool).await? {
        check.sale(coupon, &mut report).await?;
    }
    for lane in Lane::all(settings.lanes) {
        check.lane(lane, &mut report).await?;
    }
    Ok(report)
}

struct Check<'a> {
    pool: &'a PgPool,
    redis: &'a Redis,
    keys: &'a Keys,
    orders: Orders,
    epoch: i64,
}

type Census = (Option<i64>, Option<i64>, i64, Option<String>, Option<i64>);

impl Check<'_> {
    async fn sale(&self, coupon: CouponId, report: &mut Report) -> Result<(), Failure> {
        let Some(stored) = stock::find(self.pool, coupon).await? else {
            return Ok(());
        };
        let census = Script::<2>::new(include_str!("../../lua/census.lua"));
        let link = self.redis.link().await?;
        let names = [self.keys.coupon(coupon), self.keys.buyers(coupon)];
        let (total, stock, buyers, _state, epoch): Census =
            census.run(&link, [&names[0], &names[1]], &[] as &[&str]).await?;
        let found = &mut report.disagreements;
        let (Some(total), Some(stock)) = (total, stock) else {
            found.push(Disagreement::SaleMissing { coupon });
            return Ok(());
        };
        if total != stock + buyers {
            found.push(Disagreement::NotConserved { coupon, total, stock, buyers });
        }
        if stock < 0 {
            found.push(Disagreement::NegativeStock { coupon, stock });
        }
        if let Some(postgres) = stored.total.filter(|postgres| *postgres != total) {
            found.push(Disagreement::TotalDiffers { coupon, redis: total, postgres });
        }
        if let Some(redis) = epoch.filter(|redis| *redis != self.epoch) {
            found.push(Disagreement::EpochDiffers { coupon, redis, postgres: self.epoch });
        }
        let (live_orders, in_review) = self.buyers(coupon, report).await?;
        let found = &mut report.disagreements;
        if i64::try_from(live_orders).is_ok_and(|live| live > total) {
            found.push(Disagreement::Oversold { coupon, live_orders, total });
        }
        report.sales.push(SaleCount { coupon, total, stock, buyers, live_orders, in_review });
        Ok(())
    }

    /// Compares buyers with orders, one by one. Returns the live orders and the open dead letters that
    /// hold a place.
    async fn buyers(
        &self,
        coupon: CouponId,
        report: &mut Report,
    ) -> Result<(usize, usize), Failure> {
        let buyers = self.read_buyers(coupon).await?;
        let in_flight = self.read_in_flight(coupon.lane()).await?;
        let (sold, live) = self.orders.sold_and_live(coupon).await?;
        let in_review = dead_letter::open_of_coupon(self.pool, coupon).await?;
        let found = &mut report.disagreements;

        for (&user, &order) in &buyers {
            let written = live.get(&user) == Some(&order);
            if !written && !in_review.contains(&order) && !in_flight.contains(&order) {
                found.push(Disagreement::OrderLost { coupon, user, order });
            }
        }
        for (&user, &order) in &live {
            if buyers.get(&user) == Some(&order) {
                continue;
            }
            // It may have been claimed since the buyers were read.
            let in_redis = self.read_buyer(coupon, user).await?;
            if in_redis != Some(order) {
                found.push(Disagreement::BuyerMissing { coupon, user, order, in_redis });
            }
        }
        if usize::try_from(sold) != Ok(live.len()) {
            found.push(Disagreement::SoldMiscounted { coupon, sold, live_orders: live.len() });
        }
        let in_review = buyers.values().filter(|order| in_review.contains(order)).count();
        Ok((live.len(), in_review))
    }

    async fn read_buyers(&self, coupon: CouponId) -> Result<HashMap<UserId, OrderId>, Failure> {
        let mut buyers = HashMap::new();
        buyers::scan(self.redis, self.keys, coupon, |user, order| {
            buyers.insert(user, order);
        })
        .await?;
        Ok(buyers)
    }

    async fn read_buyer(&self, coupon: CouponId, user: UserId) -> Result<Option<OrderId>, Failure> {
        let mut command = redis::cmd("HGET");
        command.arg(self.keys.buyers(coupon)).arg(user.get());
        let order: Option<String> = self.redis.query(&command).await?;
        Ok(order.and_then(|order| order.parse().ok()))
    }

    /// Orders whose entries aren't acknowledged: from the oldest pending entry (or behind the last
    /// delivered one) to the end of the log. Acknowledged ones in between do no harm.
    async fn read_in_flight(&self, lane: Lane) -> Result<HashSet<OrderId>, Failure> {
        let (mut orders, mut from) = (HashSet::new(), "-".to_owned());
        if let Some(oldest) = self.oldest_unacknowledged(lane).await? {
            from = oldest;
        }
        loop {
            let page: Vec<(String, Vec<Vec<u8>>)> = self.range(lane, &from, "+", PAGE).await?;
            let Some((last, _)) = page.last() else {
                return Ok(orders);
            };
            from = format!("({last}");
            let entries = page.into_iter().map(|(id, fields)| LogEntry::new(id, Some(fields)));
            orders.extend(entries.filter_map(|entry| Some(entry.claim.ok()?.order_id)));
        }
    }

    /// Asked in this order, an entry that is delivered in between is pending or behind the answer.
    async fn oldest_unacknowledged(&self, lane: Lane) -> Result<Option<String>, Failure> {
        let delivered = OrderLog::last_delivered(self.redis, &self.keys.log(lane)).await?;
        let pending = self.pending(lane, "-", 1).await?.into_iter().next();
        let oldest = pending.map(|(entry_id, ..)| entry_id);
        Ok(oldest.or(delivered.map(|id| format!("({id}"))))
    }

    async fn lane(&self, lane: Lane, report: &mut Report) -> Result<(), Failure> {
        let Unwritten { pending, unread, appended } =
            OrderLog::unwritten(self.redis, &self.keys.log(lane)).await?;
        report.in_flight += pending + unread;
        let rows = self.orders.count_of_lane(lane).await?
            + dead_letter::count_of_lane(self.pool, lane).await?;
        let accounted = u64::try_from(rows).unwrap_or(0);
        let acknowledged = appended.saturating_sub(pending + unread);
        if acknowledged > accounted {
            report.disagreements.push(Disagreement::AcknowledgedUnwritten {
                lane,
                acknowledged,
                accounted,
            });
        }
        let mut from = "-".to_owned();
        loop {
            let page = self.pending(lane, &from, PAGE).await?;
            let Some((last, ..)) = page.last() else {
                return Ok(());
            };
            from = format!("({last}");
            for (entry_id, ..) in page {
                let there: Vec<(String, Vec<Vec<u8>>)> =
                    self.range(lane, &entry_id, &entry_id, 1).await?;
                if there.is_empty() {
                    report.disagreements.push(Disagreement::PendingDeleted { lane, entry_id });
                }
            }
        }
    }

    async fn pending(&self, lane: Lane, from: &str, count: usize) -> Result<Vec<Pending>, Failure> {
        let mut command = redis::cmd("XPENDING");
        command.arg(self.keys.log(lane)).arg(GROUP).arg(from).arg("+").arg(count);
        match self.redis.query(&command).await {
            Err(error) if super::order_log::is_missing_group(&error) => Ok(Vec::new()),
            reply => Ok(reply?),
        }
    }

    async fn range<T: FromRedisValue>(
        &self,
        lane: Lane,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<T, Failure> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.keys.log(lane)).arg(from).arg(to).arg("COUNT").arg(count);
        Ok(self.redis.query(&command).await?)
    }
}

/// Elements read from Redis at a time; more would hold up everybody else.
const PAGE: usize = 1_000;

/// Entry id, consumer, idle ms, deliveries.
type Pending = (String, String, u64, u64);

impl Report {
    /// Whether everything agrees.
    pub fn agrees(&self) -> bool {
        self.disagreements.is_empty()
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SaleMissing { coupon } => write!(
                f,
                "coupon {coupon}: was loaded into Redis and is missing there. Redis has lost data; claims are refused until the sale is rebuilt"
            ),
            Self::NotConserved { coupon, total, stock, buyers } => write!(
                f,
                "coupon {coupon}: total {total} is not stock {stock} + buyers {buyers}. Units have been lost or made up in Redis"
            ),
            Self::NegativeStock { coupon, stock } => {
                write!(f, "coupon {coupon}: stock is {stock}. Redis has sold more than there was")
            }
            Self::TotalDiffers { coupon, redis, postgres } => write!(
                f,
                "coupon {coupon}: Redis offers {redis} units in all, Postgres {postgres}. A change has reached only one of them"
            ),
            Self::EpochDiffers { coupon, redis, postgres } => write!(
                f,
                "coupon {coupon}: its epoch is {redis} in Redis and {postgres} in Postgres. Claims on it are refused"
            ),
            Self::Oversold { coupon, live_orders, total } => write!(
                f,
                "coupon {coupon}: {live_orders} live orders for {total} units. It is oversold"
            ),
            Self::SoldMiscounted { coupon, sold, live_orders } => write!(
                f,
                "coupon {coupon}: Postgres counts {sold} as sold, but has {live_orders} live orders"
            ),
            Self::OrderLost { coupon, user, order } => write!(
                f,
                "coupon {coupon}: user {user} was promised order {order}, which is neither in Postgres nor in a dead letter nor on its way. It is lost"
            ),
            Self::BuyerMissing { coupon, user, order, in_redis: None } => write!(
                f,
                "coupon {coupon}: user {user} has order {order}, but is no buyer in Redis. They could claim twice"
            ),
            Self::BuyerMissing { coupon, user, order, in_redis: Some(other) } => write!(
                f,
                "coupon {coupon}: user {user} has order {order}, but order {other} in Redis. One of them is not the one that was promised"
            ),
            Self::AcknowledgedUnwritten { lane, acknowledged, accounted } => write!(
                f,
                "lane {lane}: {acknowledged} entries of the order log were acknowledged, but only {accounted} are orders or dead letters. The others are lost"
            ),
            Self::PendingDeleted { lane, entry_id } => write!(
                f,
                "lane {lane}: entry {entry_id} was deleted from the order log before it was written. Its order is lost unless a buyer still names it"
            ),
        }
    }
}
