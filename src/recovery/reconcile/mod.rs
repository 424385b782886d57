//! Comparison of Redis with Postgres: one wording and one implementation of the law of conservation, for the command
//! line, the tests, the bench and operators. `docs/reconcile.md` tells an operator the meaning of each finding.
//!
//! Of each sale its sum, its terms, and its buyers are compared with its orders, one by one (`compare.rs`). A buyer is a
//! live order, a closed one whose unit is on its way back, an open dead letter, or an entry in flight. A recovery asks the
//! same.
//!
//! No finding is about a claim that is only under way: for each question there is an order of reading that makes the
//! answer certain while claims, orders and changes go on. Redis is asked in pages of a millisecond, Postgres in pages of
//! some 10 ms.
//!
//! # Unreadable values
//!
//! A junk field, or a key of another type, is a finding about its sale, and all others are compared.
//!
//! # What is not promised
//!
//! A loss that took both sides along is not seen: a claim that neither Redis nor Postgres remembers was only ever
//! known to its buyer.

// Gauges of sales, orders and passes.
pub mod gauges;

// Comparisons by the clock and on request.
pub mod pass;

// Records of comparisons.
pub mod runs;

// One sale in both stores.
pub mod compare;

// The log of one lane.
pub mod log;

// Findings.
mod disagreement;

use std::collections::BTreeMap;

pub use disagreement::{Disagreement, Kind};

use crate::coupon::stock;
use crate::fence::{ClosureReason, table};
use crate::log::LogState;
use crate::store::ids::{CouponId, Lane};
use crate::store::redis::is_data_error;
use crate::store::{Failure, Stores};
use compare::Compared;

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// One line for each sale that Redis has to hold.
    pub sales: Vec<SaleCount>,
    /// Orders in flight, over all lanes, when the comparison ended.
    pub in_flight: u64,
    /// Whether no order was in flight and no unit was claimed from beginning to end.
    pub at_rest: bool,
    /// All disagreements. Empty is the only good answer.
    pub disagreements: Vec<Disagreement>,
    /// The lanes that were open before, each with its epoch.
    open: BTreeMap<Lane, i64>,
}

/// One sale in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleCount {
    /// The coupon.
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
    /// Whether buyers and live orders are the same. They needn't be while entries are in flight,
    /// letters are open, or units are on their way back.
    pub identical: bool,
}

/// Compares everything that Redis has to hold with Postgres, and reads all orders.
///
/// # Errors
///
/// When a store doesn't answer; the comparison has no result then.
pub async fn check(stores: &Stores) -> Result<Report, Failure> {
    let stored = table::all(&stores.pool).await?;
    let lanes: Vec<Lane> = stored.iter().map(|stored| stored.lane).collect();
    let open = stored.iter().filter(|stored| stored.is_open);
    let open = open.map(|stored| (stored.lane, stored.epoch)).collect();
    let mut report = Report { open, ..Report::default() };
    let before = log_states(stores, &lanes).await?;
    for coupon in stock::loaded(&stores.pool).await? {
        sale_or_why_not(stores, coupon, &mut report).await?;
    }
    let after = log_states(stores, &lanes).await?;
    report.in_flight = after.iter().map(|log| log.unwritten).sum();
    report.at_rest = after.iter().all(LogState::is_settled) && before == after;
    Ok(report)
}

/// None where a log can't be read: the claims of its lane are refused, and its sales are findings.
async fn log_states(stores: &Stores, lanes: &[Lane]) -> Result<Vec<LogState>, Failure> {
    let mut states = Vec::with_capacity(lanes.len());
    for lane in lanes {
        match LogState::of(stores.redis(*lane), &stores.keys, *lane).await {
            Err(error) if is_data_error(&error) => return Ok(Vec::new()),
            state => states.push(state?),
        }
    }
    Ok(states)
}

/// Closes the lanes of sales of which Redis has other buyers or another revision than Postgres: their recovery compares them
/// once more, and builds what differs.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn close_lanes(stores: &Stores, report: &Report) -> sqlx::Result<()> {
    let found = report.disagreements.iter().filter(|found| found.closes_its_lane());
    let lanes = found.map(|found| found.coupon.lane());
    let mut lanes: Vec<Lane> = lanes.collect();
    lanes.sort_unstable();
    lanes.dedup();
    for lane in lanes {
        let Some(epoch) = report.open.get(&lane) else { continue };
        let reason = Some(ClosureReason::Differs);
        if table::raise(&stores.pool, lane, *epoch, reason).await?.is_some() {
            tracing::warn!(%lane, "a lane is closed: a comparison has found other buyers or another revision in Redis than in Postgres");
        }
    }
    Ok(())
}

/// Sets `sold` to the number of live orders where it is another one. Safe while claims go on: the row is locked, and a
/// transaction that inserts or closes an order is counted, or waits and counts itself. A sale that takes no such change
/// holds up no other.
///
/// # Errors
///
/// When Postgres doesn't answer.
async fn recount(stores: &Stores, report: &Report) -> Result<(), Failure> {
    let found = report.disagreements.iter().filter(|found| found.kind == Kind::SoldMiscounted);
    for coupon in found.map(|found| found.coupon) {
        match stock::recount_sold(&stores.pool, coupon).await.map_err(Failure::from) {
            Ok(true) => tracing::warn!(%coupon, "`sold` has been counted again"),
            // There are more live orders than units.
            Ok(false) => {}
            Err(failure) if failure.is_of_item() => {
                tracing::error!(%coupon, %failure, "`sold` can't be counted again");
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Facts about a sale that may leave Redis.
#[derive(Debug)]
pub struct Standing {
    /// Disagreements about the sale.
    pub disagreements: Vec<Disagreement>,
    /// The sale in numbers; `None` if Redis doesn't have it.
    pub sale: Option<SaleCount>,
    /// Claims of the sale on their way to Postgres.
    pub in_flight: usize,
}

impl Standing {
    /// Whether every claim that this sale has ever accepted is an order: Redis and Postgres agree on it, its buyers are
    /// its live orders, and nothing of it is in flight. Of a sale that has ended this stays true.
    pub fn is_settled(&self) -> bool {
        self.disagreements.is_empty() && self.is_identical() && self.in_flight == 0
    }

    /// Obstacles to settling the sale, in words.
    pub fn obstacles(&self) -> Vec<String> {
        let mut obstacles: Vec<String> =
            self.disagreements.iter().map(ToString::to_string).collect();
        if obstacles.is_empty() && !self.is_identical() {
            obstacles.push("its buyers in Redis are not its live orders".to_owned());
        }
        if self.in_flight > 0 {
            obstacles
                .push(format!("{} of its claims are on their way to Postgres", self.in_flight));
        }
        obstacles
    }

    fn is_identical(&self) -> bool {
        self.sale.as_ref().is_some_and(|sale| sale.identical)
    }
}

/// The facts about a sale that Redis has to hold.
///
/// # Errors
///
/// When a store doesn't answer, or a value of the sale in Redis can't be read.
pub async fn standing(stores: &Stores, coupon: CouponId) -> Result<Standing, Failure> {
    let mut report = Report::default();
    check_one(stores, coupon, &mut report).await?;
    // Asked last: a buyer without an order that isn't in flight by now never will be.
    let in_flight = in_flight(stores, coupon).await?;
    let sale = report.sales.pop();
    Ok(Standing { disagreements: report.disagreements, sale, in_flight })
}

/// Number of claims of this coupon on their way to Postgres.
pub async fn in_flight(stores: &Stores, coupon: CouponId) -> Result<usize, Failure> {
    Ok(log::InFlight::read(stores, coupon.lane()).await?.of(coupon).count())
}

/// Compares one sale; does nothing if Redis doesn't have to hold it.
pub async fn check_sale(stores: &Stores, coupon: CouponId) -> Result<Option<Report>, Failure> {
    if compare::terms(&stores.pool, coupon).await?.is_none() {
        return Ok(None);
    }
    let mut report = Report::default();
    sale_or_why_not(stores, coupon, &mut report).await?;
    Ok(Some(report))
}

/// Compares one sale. An unreadable sale is a finding, and the others are compared all the same.
async fn sale_or_why_not(
    stores: &Stores,
    coupon: CouponId,
    report: &mut Report,
) -> Result<(), Failure> {
    match check_one(stores, coupon, report).await {
        Err(failure) if failure.is_of_item() => {
            let words = format!(
                "it can't be compared, because a part of it in Redis can't be read ({failure}). Its other faults aren't seen"
            );
            report.disagreements.push(Disagreement::of(coupon, Kind::SaleUnreadable, words));
            Ok(())
        }
        compared => compared,
    }
}

async fn check_one(stores: &Stores, coupon: CouponId, report: &mut Report) -> Result<(), Failure> {
    let Some((terms, census)) = compare::facts(stores, coupon).await? else {
        return Ok(());
    };
    report.disagreements.extend(compare::judge(coupon, &terms, &census));
    let (Some(total), Some(stock)) = (census.total, census.stock) else {
        return Ok(());
    };
    let compared = compare::buyers(stores, coupon, None).await?;
    report.disagreements.extend(compare::of_buyers(coupon, &compared));
    let Compared { live_orders, in_review, is_identical: identical, .. } = compared;
    let buyers = census.buyers;
    let sale = SaleCount { coupon, total, stock, buyers, live_orders, in_review, identical };
    report.sales.push(sale);
    Ok(())
}

impl Report {
    /// Whether both stores agree.
    pub fn agrees(&self) -> bool {
        self.disagreements.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sale(identical: bool) -> SaleCount {
        let coupon = CouponId::compose(1, 1);
        SaleCount { coupon, total: 1, stock: 0, buyers: 1, live_orders: 1, in_review: 0, identical }
    }

    /// A sale is settled without a disagreement, with the same buyers, and with nothing in flight.
    #[test]
    fn standing_is_settled_without_obstacles() {
        let missing = || Disagreement::of(CouponId::compose(1, 1), Kind::SaleMissing, "is missing");
        let differ = "its buyers in Redis are not its live orders";
        for (disagreements, sale, in_flight, obstacles) in [
            (vec![], Some(sale(true)), 0, &[][..]),
            (vec![], Some(sale(false)), 0, &[differ]),
            (vec![], None, 0, &[differ]),
            (vec![], Some(sale(true)), 1, &["1 of its claims"]),
            (vec![], Some(sale(false)), 2, &[differ, "2 of its claims"]),
            (vec![missing()], Some(sale(true)), 0, &["coupon"]),
            (vec![missing()], Some(sale(false)), 0, &["coupon"]),
            (vec![missing(), missing()], None, 3, &["coupon", "coupon", "3 of its claims"]),
        ] {
            let standing = Standing { disagreements, sale, in_flight };
            let told = standing.obstacles();
            let fits = told.iter().zip(obstacles).all(|(words, begins)| words.starts_with(begins));
            assert!(fits && told.len() == obstacles.len(), "{standing:?}: {told:#?}");
            assert_eq!(standing.is_settled(), obstacles.is_empty(), "{standing:?}");
        }
    }
}
