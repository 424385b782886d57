//! The operator's numbers: facts of both stores, as gauges, and for one coupon side by side.
//!
//! A job reads them, and the metrics page shows what it read last, so that reading the page asks no store. A number
//! that can't be read disappears from the page, since an old one would look current. A sale that can't be read doesn't
//! affect other numbers.
//!
//! Sales are labelled with their coupon's id, so their number is limited: the newest [`limits::METRIC_COUPONS_MAX`] of
//! those that Redis holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::RedisResult;
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use crate::base::gauges::Gauge;
use crate::base::limits;
use crate::base::telemetry::Metrics;
use crate::coupon::buyers;
use crate::coupon::buyers::count::count_sale;
use crate::coupon::stock::{self, HeldSale};
use crate::events::{self, webhooks};
use crate::log::LogState;
use crate::log::backlog::Backlog;
use crate::log::numbers::LogNumbers;
use crate::order::dead_letter;
use crate::order::release::stock_returns;
use crate::payment;
use crate::recovery::reconcile;
use crate::store::ids::CouponId;
use crate::store::installation;
use crate::store::job::Job;
use crate::store::keys::Keys;
use crate::store::postponed::Postponed;
use crate::store::redis::{Redis, is_data_error};
use crate::store::{Failure, Stores};

pub struct Numbers {
    stores: Stores,
    /// Knows the states of the logs.
    backlog: Arc<Backlog>,
    metrics: Arc<Metrics>,
    postponed: Postponed,
}

/// One coupon's sale, by both stores.
#[derive(Debug, Serialize, ToSchema)]
pub struct SideBySide {
    /// The sale in Redis; null if it isn't there or can't be read.
    pub redis: Option<InRedis>,
    /// The sale in Postgres.
    pub postgres: InPostgres,
    /// The order log of its lane, including orders of other coupons.
    pub log: LogNumbers,
    /// Disagreements in words; empty is good.
    pub disagreements: Vec<String>,
}

/// A sale in Redis.
#[derive(Debug, Serialize, ToSchema)]
pub struct InRedis {
    /// Units on offer.
    pub total: Option<i64>,
    /// Units left.
    pub left: i64,
    /// Users who hold a unit.
    pub buyers: i64,
    /// Whether total = left + buyers.
    pub conserved: bool,
    /// `active`, `paused`, `ended` or `loading`.
    pub state: Option<String>,
    /// Revision that Redis has.
    pub revision: Option<i64>,
    /// Epoch of the sale.
    pub epoch: Option<i64>,
}

/// A sale in Postgres.
#[derive(Debug, Serialize, ToSchema)]
pub struct InPostgres {
    /// Units on offer.
    pub total: i64,
    /// Units sold, as the sale counts them.
    pub sold: i64,
    /// Accepted claims that have reached Postgres: orders, and dead letters without an order. Claims in the log come on
    /// top.
    pub claims: i64,
    /// Orders by status.
    pub orders: BTreeMap<String, i64>,
    /// Open dead letters.
    pub dead_letters_open: usize,
    /// Units to be returned to Redis.
    pub stock_returns_open: i64,
    /// The coupon's revision: the number of its last change.
    pub revision: i64,
}

impl Numbers {
    pub fn new(
        stores: &Stores,
        backlog: Arc<Backlog>,
        metrics: Arc<Metrics>,
        postponed: Postponed,
    ) -> Self {
        Self { stores: stores.clone(), backlog, metrics, postponed }
    }

    /// As [`side_by_side`].
    ///
    /// # Errors
    ///
    /// When a store doesn't answer.
    pub async fn progress(&self, coupon: CouponId) -> Result<Option<SideBySide>, Failure> {
        side_by_side(&self.stores, coupon).await
    }

    /// Reads the numbers, and shows them.
    pub async fn run_once(&self) -> Result<(), Failure> {
        let seen = self.check().await;
        let (gauges, failed) = seen.map_or_else(|e| (Vec::new(), Err(e)), |seen| (seen, Ok(())));
        self.metrics.gauges.replace("numbers", gauges);
        failed
    }

    async fn check(&self) -> Result<Vec<Gauge>, Failure> {
        let Stores { pool, .. } = &self.stores;
        let mut gauges = self.log_gauges().await?;
        let letters = dead_letter::count_open(pool).await?;
        let returns = stock_returns::count_open(pool).await?;
        gauges.push(Gauge::plain("flash_sale_dead_letters_open", letters as f64));
        gauges.push(Gauge::plain("flash_sale_stock_returns_open", returns as f64));
        gauges.push(events::stalled(pool).await?);
        gauges.push(webhooks::disabled(pool).await?);
        gauges.extend(self.owed_gauges().await?);
        gauges.extend(self.postponed_gauges().await?);
        gauges.extend(self.sale_gauges().await?);
        Ok(gauges)
    }

    /// Empty if a lane's log can't be read, or if one of several servers doesn't answer: the sum over the others would
    /// look complete.
    async fn log_gauges(&self) -> Result<Vec<Gauge>, Failure> {
        let Stores { pool, fleet, keys } = &self.stores;
        let lanes = installation::read(pool).await?.lanes;
        self.backlog.learn_lanes(lanes);
        let mut log = LogNumbers::default();
        for (lane, state) in self.backlog.states().await {
            let check = async { LogNumbers::check(fleet.of(lane), keys, lane, &state?).await };
            match check.await {
                Err(error) if is_data_error(&error) || !fleet.is_one() => return Ok(Vec::new()),
                seen => log = log.with(seen?),
            }
        }
        let seconds = log.oldest_entry_ms as f64 / 1_000.0;
        Ok(vec![
            Gauge::plain("flash_sale_log_pending_entries", log.pending as f64),
            Gauge::plain("flash_sale_log_unread_entries", log.unread as f64),
            Gauge::plain("flash_sale_log_oldest_entry_seconds", seconds),
        ])
    }

    async fn owed_gauges(&self) -> sqlx::Result<Vec<Gauge>> {
        let owed = payment::owed::count(&self.stores.pool).await?;
        let payments = owed.iter().map(|owed| {
            let status = owed.status.as_str();
            Gauge::labelled("flash_sale_payments_owed", "status", status, owed.payments as f64)
        });
        let oldest = owed.iter().map(|owed| {
            let (status, seconds) = (owed.status.as_str(), owed.oldest_seconds);
            Gauge::labelled("flash_sale_payments_owed_oldest_seconds", "status", status, seconds)
        });
        Ok(payments.chain(oldest).collect())
    }

    /// Two gauges for each job that can postpone items, even if none wait.
    async fn postponed_gauges(&self) -> sqlx::Result<Vec<Gauge>> {
        let waiting = self.postponed.waiting().await?;
        let jobs = Job::ALL.into_iter().filter(|job| job.remedy().is_some());
        let waiting: Vec<_> = jobs
            .map(|job| (job.name(), waiting.get(job.name()).copied().unwrap_or_default()))
            .collect();
        let items = waiting.iter().map(|(job, waiting)| {
            Gauge::labelled("flash_sale_postponed_items", "name", job, waiting.items as f64)
        });
        let oldest = waiting.iter().map(|(job, waiting)| {
            let seconds = waiting.oldest_seconds;
            Gauge::labelled("flash_sale_postponed_oldest_seconds", "name", job, seconds)
        });
        Ok(items.chain(oldest).collect())
    }

    /// Shows a sale that can't be read as not conserved, without any other number. Leaves out the sales of a server
    /// that doesn't answer, if there are several.
    async fn sale_gauges(&self) -> Result<Vec<Gauge>, Failure> {
        let Stores { pool, fleet, keys } = &self.stores;
        let newest = stock::newest_loaded(pool, limits::METRIC_COUPONS_MAX).await?;
        let mut sales = Vec::with_capacity(newest.len());
        for HeldSale { coupon, sold, .. } in newest {
            let redis = fleet.of(coupon.lane());
            let units = match Units::check(redis, keys, coupon, sold).await.map_err(Failure::from) {
                Err(failure) if failure.is_of_redis() && !fleet.is_one() => continue,
                Err(failure) if failure.is_of_item() => {
                    Units { conserved: Some(false), ..Units::default() }
                }
                units => units?,
            };
            sales.push((coupon.to_string(), units));
        }
        let mut gauges = Vec::new();
        for (of, number) in UNITS {
            gauges.extend(sales.iter().filter_map(|(coupon, units)| {
                let labels = vec![("coupon", coupon.clone()), ("of", of.to_owned())];
                let value = number(units)? as f64;
                Some(Gauge { name: "flash_sale_units", labels, value })
            }));
        }
        gauges.extend(sales.iter().filter_map(|(coupon, units)| {
            let conserved = if units.conserved? { 1.0 } else { 0.0 };
            Some(Gauge::labelled("flash_sale_conserved", "coupon", coupon, conserved))
        }));
        Ok(gauges)
    }
}

/// The units of a sale, as read every few seconds.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[schema(as = CountedUnits)]
pub(crate) struct Units {
    /// Units on offer, by Redis.
    pub total: Option<i64>,
    /// Units left, by Redis.
    pub left: Option<i64>,
    /// Users who hold a unit, by Redis; null for a sale too large to be counted this often.
    pub buyers: Option<i64>,
    /// Whether total = left + buyers, read at one moment; null if buyers is null for that reason.
    pub conserved: Option<bool>,
    /// Units sold, by Postgres.
    pub sold: Option<i64>,
}

type UnitsOf = fn(&Units) -> Option<i64>;

/// Values of the label `of`.
const UNITS: [(&str, UnitsOf); 4] = [
    ("total", |units| units.total),
    ("left", |units| units.left),
    ("buyers", |units| units.buyers),
    ("sold", |units| units.sold),
];

impl Units {
    /// Doesn't count the buyers of a large sale, because Redis runs no other command meanwhile.
    pub async fn check(
        redis: &Redis,
        keys: &Keys,
        coupon: CouponId,
        sold: i64,
    ) -> RedisResult<Self> {
        let is_small = buyers::shards(redis, keys, coupon)
            .await?
            .is_none_or(|shards| shards.count() <= limits::METRIC_SHARDS_MAX);
        if is_small {
            let seen = count_sale(redis, keys, coupon).await?;
            let there = seen.total.is_some();
            return Ok(Self {
                total: seen.total,
                left: seen.stock,
                buyers: there.then_some(seen.buyers),
                conserved: Some(seen.is_conserved()),
                sold: there.then_some(sold),
            });
        }
        let mut command = redis::cmd("HMGET");
        command.arg(keys.coupon(coupon)).arg("total").arg("stock");
        let (total, left) = redis.query(&command).await?;
        Ok(Self { total, left, sold: Some(sold), ..Self::default() })
    }
}

/// What both stores know about a sale; `None` for a coupon without a sale that Redis has to hold.
pub async fn side_by_side(
    stores: &Stores,
    coupon: CouponId,
) -> Result<Option<SideBySide>, Failure> {
    let Some(report) = reconcile::check_sale(stores, coupon).await? else {
        return Ok(None);
    };
    let (lane, keys) = (coupon.lane(), &stores.keys);
    let redis = stores.redis(lane);
    let state = LogState::of(redis, keys, lane).await?;
    let log = LogNumbers::check(redis, keys, lane, &state).await?;
    Ok(Some(SideBySide {
        redis: in_redis(stores, coupon).await?,
        postgres: in_postgres(&stores.pool, coupon).await?,
        log,
        disagreements: report.disagreements.iter().map(ToString::to_string).collect(),
    }))
}

/// `None` for a sale that is missing or can't be read; the disagreements name the fault.
async fn in_redis(stores: &Stores, coupon: CouponId) -> Result<Option<InRedis>, Failure> {
    let seen = match count_sale(stores.redis(coupon.lane()), &stores.keys, coupon)
        .await
        .map_err(Failure::from)
    {
        Err(failure) if failure.is_of_item() => return Ok(None),
        seen => seen?,
    };
    Ok(seen.stock.map(|left| InRedis {
        total: seen.total,
        left,
        buyers: seen.buyers,
        conserved: seen.is_conserved(),
        state: seen.state.clone(),
        revision: seen.revision,
        epoch: seen.epoch,
    }))
}

async fn in_postgres(pool: &PgPool, coupon: CouponId) -> Result<InPostgres, Failure> {
    let sale = sqlx::query!(
        "SELECT total, sold, revision FROM flash_sales JOIN coupons ON id = coupon_id WHERE id = $1",
        coupon.get(),
    )
    .fetch_one(pool)
    .await?;
    let orders = count_by_status(pool, coupon).await?;
    let letters = dead_letter::count_without_order(pool, coupon).await?;
    Ok(InPostgres {
        total: sale.total,
        sold: sale.sold,
        claims: orders.values().sum::<i64>() + letters,
        orders,
        dead_letters_open: dead_letter::open_of_coupon(pool, coupon).await?.len(),
        stock_returns_open: stock_returns::count_open_of(pool, coupon).await?,
        revision: sale.revision,
    })
}

async fn count_by_status(pool: &PgPool, coupon: CouponId) -> sqlx::Result<BTreeMap<String, i64>> {
    let rows = sqlx::query!(
        r#"SELECT status, count(*) AS "orders!" FROM orders WHERE coupon_id = $1 GROUP BY status"#,
        coupon.get(),
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.status, row.orders)).collect())
}
