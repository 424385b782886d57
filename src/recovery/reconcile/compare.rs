//! Compares one sale in both stores: its sum, its terms, and its buyers with its orders, one by one. Used by
//! comparisons on request and by recoveries of closed lanes.
//!
//! # On a busy service
//!
//! A claim under way never shows up as a difference, thanks to the order of reading:
//!
//! * **From buyer to order.** Buyers are read first, then live orders, then the entries in flight, then dead letters
//!   and rows. If a buyer's entry was no longer in flight when the log was read, the claim is in Postgres when that is
//!   read. A buyer whose order is closed is about to leave: the outbox (`stock_returns`) is read first, and then Redis
//!   once more, which the buyer leaves before the outbox row is done.
//! * **From order to buyer.** A live order is read first, then its buyer once more, then the order once more. If it is
//!   still live, it was live in between. A live order always has its buyer, since a claim enters Redis first and leaves
//!   it last.
//!
//! While a lane is closed, Redis doesn't change, and nothing is read twice. Then each entry in flight must have its
//! buyer, too.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use super::disagreement::{Disagreement, Kind};
use super::log::InFlight;
use crate::base::limits;
use crate::coupon::buyers;
use crate::coupon::buyers::count::{SaleCount, count_sale};
use crate::coupon::model::CouponState;
use crate::order::live::PAGE;
use crate::order::release::stock_returns;
use crate::order::{dead_letter, live};
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::postgres;
use crate::store::{Failure, Stores};

/// How often a sale is read at most, if it keeps changing.
const READS_MAX: usize = 5;

/// A user, and the order id that the user was told.
pub type AcceptedClaim = (UserId, OrderId);

/// A sale in Postgres.
pub struct Terms {
    total: i64,
    state: CouponState,
    revision: i64,
    load_id: String,
    opens_at: DateTime<Utc>,
    closes_at: DateTime<Utc>,
    /// Epoch of the lane; `None` while the lane is closed.
    epoch: Option<i64>,
    changed_ms_ago: i64,
}

/// The terms of a sale that Redis has to hold; `None` if the sale was never loaded, or has been archived.
pub async fn terms(pool: &PgPool, coupon: CouponId) -> sqlx::Result<Option<Terms>> {
    sqlx::query_as!(
        Terms,
        r#"SELECT total, state AS "state: CouponState", revision, load_id AS "load_id!", opens_at, closes_at,
                  (SELECT epoch FROM lanes WHERE lane = (coupon_id & 1023) AND lanes.state = 'open') AS epoch,
                  (extract(epoch FROM clock_timestamp() - coupons.updated_at) * 1000)::bigint AS "changed_ms_ago!"
           FROM coupons JOIN flash_sales ON coupon_id = id
           WHERE id = $1 AND loaded_at IS NOT NULL AND archived_at IS NULL"#,
        coupon.get(),
    )
    .fetch_optional(pool)
    .await
}

/// What both stores know about a sale, without its buyers. `None` if the sale was never loaded, or has been archived.
///
/// A change (an edit, a pause, a restock) reaches Postgres first and Redis a moment later, each with the same revision.
/// So Postgres is read first: if Redis has a newer revision, the change came in between, and both are read again.
///
/// # Errors
///
/// When a store doesn't answer, or a value of the sale in Redis can't be read.
pub async fn facts(
    stores: &Stores,
    coupon: CouponId,
) -> Result<Option<(Terms, SaleCount)>, Failure> {
    let Stores { pool, keys, .. } = stores;
    let redis = stores.redis(coupon.lane());
    for read in 1.. {
        let Some(terms) = terms(pool, coupon).await? else { break };
        let count = count_sale(redis, keys, coupon).await?;
        let changed = count.revision.is_some_and(|revision| revision > terms.revision);
        // A missing sale was archived after Postgres was read, or is lost.
        if count.total.is_some() && !changed || read >= READS_MAX {
            return Ok(Some((terms, count)));
        }
    }
    Ok(None)
}

/// Whether a sale of a closed lane is as Postgres says, apart from its buyers. False if Redis has a newer revision:
/// then Postgres has lost a change.
pub fn is_as_noted(coupon: CouponId, terms: &Terms, count: &SaleCount) -> bool {
    count.state.as_deref() != Some("loading")
        && count.revision == Some(terms.revision)
        && judge(coupon, terms, count).is_empty()
}

/// Faults of the sale in Redis, and of its terms.
pub(super) fn judge(coupon: CouponId, terms: &Terms, count: &SaleCount) -> Vec<Disagreement> {
    let (Some(total), Some(stock)) = (count.total, count.stock) else {
        let words = "was loaded into Redis and is missing there. Redis has lost data; claims are refused until the sale is rebuilt";
        return vec![Disagreement::of(coupon, Kind::SaleMissing, words)];
    };
    let mut found = Vec::new();
    let mut add = |kind, words: String| found.push(Disagreement::of(coupon, kind, words));
    let SaleCount { buyers, shards_missing: shards, .. } = *count;
    if count.load.as_ref() != Some(&terms.load_id) {
        let words = "is in Redis by another load than Postgres has noted, so it is missing there. Redis has lost data";
        add(Kind::SaleMissing, words.to_owned());
    }
    if shards > 0 {
        add(
            Kind::ShardsMissing,
            format!(
                "{shards} of its shards of buyers are missing. Redis has lost data; claims of users who belong there are refused"
            ),
        );
    }
    if total != stock + buyers {
        add(
            Kind::NotConserved,
            format!(
                "total {total} is not stock {stock} + buyers {buyers}. Units have been lost or made up in Redis"
            ),
        );
    }
    if stock < 0 {
        add(Kind::NegativeStock, format!("stock is {stock}. Redis has sold more than there was"));
    }
    if let (Some(redis), Some(postgres)) = (count.epoch, terms.epoch)
        && redis != postgres
    {
        add(
            Kind::EpochDiffers,
            format!(
                "its epoch is {redis} in Redis and {postgres} in Postgres. Claims on it are refused"
            ),
        );
    }
    found.extend(of_terms(coupon, terms, count));
    found
}

/// Differences between the terms in Redis and in Postgres.
fn of_terms(coupon: CouponId, terms: &Terms, count: &SaleCount) -> Vec<Disagreement> {
    if let Some(redis) = count.revision.filter(|redis| *redis != terms.revision) {
        let postgres = terms.revision;
        let words = match redis > postgres {
            true => format!(
                "Redis has revision {redis}, Postgres only {postgres}. Postgres has lost a change"
            ),
            false => format!(
                "Redis has revision {redis}, Postgres {postgres}. A change doesn't get through to Redis; claims go by the older one"
            ),
        };
        let is_late = u128::try_from(terms.changed_ms_ago).unwrap_or(0)
            > limits::CHANGE_APPLIED_MAX.as_millis();
        let told = redis > postgres || is_late;
        let told = told.then(|| Disagreement::of(coupon, Kind::RevisionDiffers, words));
        return told.into_iter().collect();
    }
    let SaleCount { total, state, opens_ms, closes_ms, .. } = count;
    let number = |number: &Option<i64>| number.map_or("missing".to_owned(), |it| it.to_string());
    let ms = |ms: Option<i64>| ms.map_or("missing".to_owned(), |ms| format!("{ms} ms since 1970"));
    let at = |time: DateTime<Utc>| ms(Some(time.timestamp_millis()));
    // The sale's first claim will open it.
    let state = state.as_deref().filter(|state| *state != "loading");
    let state = state.unwrap_or(terms.state.as_str()).to_owned();
    let pairs = [
        ("total", number(total), terms.total.to_string()),
        ("state", state, terms.state.as_str().to_owned()),
        ("start", ms(*opens_ms), at(terms.opens_at)),
        ("end", ms(*closes_ms), at(terms.closes_at)),
    ];
    let differ = pairs.into_iter().filter(|(_, redis, postgres)| redis != postgres);
    let tell = |(what, redis, postgres)| {
        let words = format!(
            "its {what} is {redis} in Redis and {postgres} in Postgres. Claims go by Redis"
        );
        Disagreement::of(coupon, Kind::TermsDiffer, words)
    };
    differ.map(tell).collect()
}

/// The buyers of a sale in both stores.
#[derive(Debug, Default)]
pub struct Compared {
    /// Users who hold a unit, by Redis.
    pub buyers: usize,
    /// Live orders, by Postgres.
    pub live_orders: usize,
    /// Total, and `sold`; both from Postgres, of the same moment as the live orders.
    pub units: (i64, i64),
    /// Buyers whose order is an open dead letter.
    pub in_review: usize,
    /// Buyers whose order is nowhere.
    pub lost: Vec<AcceptedClaim>,
    /// Buyers whose order is closed, and whose unit nothing will release.
    pub not_released: Vec<AcceptedClaim>,
    /// Live orders whose user isn't a buyer by them.
    pub missing: Vec<AcceptedClaim>,
    /// Claims in flight whose user isn't a buyer by them; only for a closed lane.
    pub unheld: Vec<AcceptedClaim>,
    /// Whether buyers and live orders are the same.
    pub is_identical: bool,
}

impl Compared {
    /// Whether each buyer, and each accepted claim, is accounted for.
    pub fn is_same(&self) -> bool {
        [&self.lost, &self.not_released, &self.missing, &self.unheld].into_iter().all(Vec::is_empty)
    }
}

/// Compares the buyers of a sale with its orders. For a closed lane, `log` is given, and nothing changes meanwhile.
///
/// # Errors
///
/// When a store doesn't answer, or a value of the sale in Redis can't be read.
pub async fn buyers(
    stores: &Stores,
    coupon: CouponId,
    log: Option<&InFlight>,
) -> Result<Compared, Failure> {
    let Stores { pool, keys, .. } = stores;
    let redis = stores.redis(coupon.lane());
    let mut held: HashMap<OrderId, UserId> = HashMap::new();
    let mut pages = buyers::Pages::begin(redis, keys, coupon).await?;
    while let Some(page) = pages.next().await? {
        held.extend(page.into_iter().map(|(user, order)| (order, user)));
    }
    let mut compared = Compared { buyers: held.len(), ..Compared::default() };
    let in_flight = log.into_iter().flat_map(|log| log.of(coupon));
    let unheld = in_flight.filter(|(user, order)| held.get(order) != Some(user)).collect();
    compared.unheld = unknown(pool, coupon, unheld).await?;
    let mut missing = Vec::new();
    compared.units = each_live(pool, coupon, |user, order| {
        compared.live_orders += 1;
        match held.get(&order) {
            Some(by) if *by == user => drop(held.remove(&order)),
            _ => missing.push((user, order)),
        }
    })
    .await?;
    compared.is_identical = held.is_empty() && missing.is_empty();
    without_order(stores, coupon, log, held, &mut compared).await?;
    if log.is_none() {
        missing = still_missing(stores, coupon, missing).await?;
    }
    compared.missing = missing;
    Ok(compared)
}

/// Classifies the buyers that aren't live orders.
async fn without_order(
    stores: &Stores,
    coupon: CouponId,
    log: Option<&InFlight>,
    mut held: HashMap<OrderId, UserId>,
    compared: &mut Compared,
) -> Result<(), Failure> {
    if held.is_empty() {
        return Ok(());
    }
    let read = match log {
        Some(_) => None,
        None => Some(InFlight::read(stores, coupon.lane()).await?),
    };
    let in_flight = log.or(read.as_ref()).into_iter().flat_map(|log| log.of(coupon));
    let in_flight: HashSet<AcceptedClaim> = in_flight.collect();
    let in_review = dead_letter::open_of_coupon(&stores.pool, coupon).await?;
    let before = held.len();
    held.retain(|order, _| !in_review.contains(order));
    compared.in_review = before - held.len();
    let held: Vec<AcceptedClaim> = held.into_iter().map(|(order, user)| (user, order)).collect();
    for page in held.chunks(PAGE) {
        let orders = page.iter().map(|(_, order)| *order);
        let rows = live::by_id(&stores.pool, coupon, orders).await?;
        let mut closed = Vec::new();
        for (user, order) in page {
            match rows.get(order) {
                Some((of_user, true)) if of_user == user => {}
                // Even if its entry is in flight: a Redis that went back may have lost both the release and the
                // acknowledgement.
                Some((of_user, false)) if of_user == user => closed.push((*user, *order)),
                _ if in_flight.contains(&(*user, *order)) => {}
                _ => compared.lost.push((*user, *order)),
            }
        }
        let stay = not_coming_back(stores, coupon, closed).await?;
        compared.not_released.extend(stay);
    }
    Ok(())
}

/// Which of these closed orders have users that stay buyers.
async fn not_coming_back(
    stores: &Stores,
    coupon: CouponId,
    closed: Vec<AcceptedClaim>,
) -> Result<Vec<AcceptedClaim>, Failure> {
    let Stores { pool, keys, .. } = stores;
    let redis = stores.redis(coupon.lane());
    let orders: Vec<i64> = closed.iter().map(|(_, order)| order.get()).collect();
    let coming_back = stock_returns::open_among(pool, &orders).await?;
    let users = closed.iter().map(|(user, _)| *user);
    let held = buyers::orders_of(redis, keys, coupon, users).await?;
    let stays = |((_, order), held): &(AcceptedClaim, Option<OrderId>)| {
        *held == Some(*order) && !coming_back.contains(order)
    };
    Ok(closed.into_iter().zip(held).filter(stays).map(|(promise, _)| promise).collect())
}

/// Which of these orders are still live, and still without a buyer.
async fn still_missing(
    stores: &Stores,
    coupon: CouponId,
    missing: Vec<AcceptedClaim>,
) -> Result<Vec<AcceptedClaim>, Failure> {
    let Stores { pool, keys, .. } = stores;
    let redis = stores.redis(coupon.lane());
    let mut still = Vec::new();
    for page in missing.chunks(PAGE) {
        let users = page.iter().map(|(user, _)| *user);
        let held = buyers::orders_of(redis, keys, coupon, users).await?;
        let rows = live::by_id(pool, coupon, page.iter().map(|(_, order)| *order)).await?;
        let is_live = |order: &OrderId| rows.get(order).is_some_and(|(_, live)| *live);
        let stays = page.iter().zip(held).filter(|((_, order), held)| *held != Some(*order));
        still.extend(stays.map(|(promise, _)| *promise).filter(|(_, order)| is_live(order)));
    }
    Ok(still)
}

/// Which of these claims have neither an order of their user, in any status, nor a dead letter.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn unknown(
    pool: &PgPool,
    coupon: CouponId,
    promises: Vec<AcceptedClaim>,
) -> Result<Vec<AcceptedClaim>, Failure> {
    let mut unknown = Vec::new();
    for page in promises.chunks(PAGE) {
        let rows = live::by_id(pool, coupon, page.iter().map(|(_, order)| *order)).await?;
        let ids: Vec<i64> = page.iter().map(|(_, order)| order.get()).collect();
        let letters = dead_letter::among(pool, &ids).await?;
        let is_new = |(user, order): &&AcceptedClaim| {
            rows.get(order).is_none_or(|(of_user, _)| of_user != user) && !letters.contains(order)
        };
        unknown.extend(page.iter().filter(is_new));
    }
    Ok(unknown)
}

/// Calls `each` for every live order of a flash coupon. Returns the total and `sold`, of the same moment as the orders.
async fn each_live(
    pool: &PgPool,
    coupon: CouponId,
    mut each: impl FnMut(UserId, OrderId),
) -> sqlx::Result<(i64, i64)> {
    let mut snapshot = postgres::begin_snapshot(pool).await?;
    let units =
        sqlx::query!("SELECT total, sold FROM flash_sales WHERE coupon_id = $1", coupon.get())
            .fetch_one(&mut *snapshot)
            .await?;
    let mut after = None;
    loop {
        let page = live::live_page(&mut *snapshot, coupon, after, live::SNAPSHOT_PAGE).await?;
        let Some((last, _)) = page.last() else {
            snapshot.rollback().await?;
            return Ok((units.total, units.sold));
        };
        after = Some(*last);
        page.into_iter().for_each(|(user, order)| each(user, order));
    }
}

/// Findings about the buyers of a sale.
pub(super) fn of_buyers(coupon: CouponId, compared: &Compared) -> Vec<Disagreement> {
    let Compared { live_orders: live, units: (total, sold), .. } = *compared;
    let mut found = Vec::new();
    if i64::try_from(live).is_ok_and(|live| live > total) {
        let words = format!("{live} live orders for {total} units. It is oversold");
        found.push(Disagreement::of(coupon, Kind::Oversold, words));
    }
    if usize::try_from(sold) != Ok(live) {
        let harm = match usize::try_from(sold).is_ok_and(|sold| sold > live) {
            true => "The last buyers would end as dead letters",
            false => "The second lock on overselling doesn't hold",
        };
        let words = format!("Postgres counts {sold} as sold, but has {live} live orders. {harm}");
        found.push(Disagreement::of(coupon, Kind::SoldMiscounted, words));
    }
    let mut tell = |promises: &[AcceptedClaim], kind, words: fn(AcceptedClaim) -> String| {
        found.extend(promises.iter().map(|it| Disagreement::of(coupon, kind, words(*it))));
    };
    tell(&compared.lost, Kind::OrderLost, |(user, order)| {
        format!(
            "user {user} was told order {order}, which is neither in Postgres nor in a dead letter nor on its way. It is lost"
        )
    });
    tell(&compared.not_released, Kind::NotReleased, |(user, order)| {
        format!(
            "order {order} of user {user} is closed, and nothing gives its unit back. It can't be sold, and the user can't claim again"
        )
    });
    tell(&compared.missing, Kind::BuyerMissing, |(user, order)| {
        format!(
            "user {user} has order {order}, but is no buyer by it in Redis. They could claim twice"
        )
    });
    found
}
