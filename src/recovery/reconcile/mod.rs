//! Compares Redis with Postgres: one implementation of the conservation law for the command line, the tests, the bench
//! and operators. `docs/reconcile.md` explains each finding to operators.
//!
//! For each sale, its sum and its terms are checked, and its buyers are compared with its orders, one by one
//! (`compare.rs`). A buyer is accounted for by a live order, a closed one whose unit is to be released, an open dead
//! letter, or an entry in flight. Recoveries use the same comparison.
//!
//! A claim under way is never a finding: for each question, the order of reading makes the answer certain while claims,
//! orders and changes go on. Redis is read in pages of a millisecond, Postgres in pages of some 10 ms.
//!
//! # Unreadable values
//!
//! A junk field, or a key of another type, is a finding about its sale. The other sales are still compared.
//!
//! # What is not promised
//!
//! A loss on both sides isn't seen: if neither Redis nor Postgres remembers a claim, only its buyer knew it.

// Gauges of sales, orders and jobs.
pub mod gauges;

// Comparisons by schedule and on request.
pub mod job;

// Records of comparisons.
pub mod runs;

// Compares one sale in both stores.
pub mod compare;

// The unwritten claims of a lane's log.
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

#[derive(Debug, Default)]
pub struct Report {
    /// Each sale that Redis has to hold.
    pub sales: Vec<SaleCount>,
    /// Orders in flight in all lanes at the end of the comparison.
    pub in_flight: u64,
    /// Whether, from beginning to end, no order was in flight and no unit was claimed.
    pub at_rest: bool,
    /// Empty is the only good result.
    pub disagreements: Vec<Disagreement>,
    /// The lanes that were open at the start, with their epochs.
    open: BTreeMap<Lane, i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaleCount {
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
    /// Whether buyers and live orders are the same. They may differ while entries are in flight, letters are open, or
    /// units are to be released.
    pub identical: bool,
}

/// Compares everything that Redis has to hold with Postgres. Reads all orders.
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

/// Empty if a log can't be read: its lane refuses claims, and its sales are findings.
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

/// Closes the lanes of sales for which Redis has other buyers or another revision than Postgres. Their recovery
/// compares the sales once more, and builds those that differ.
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

/// Sets `sold` to the number of live orders where the two differ. Safe while claims go on: the row is locked, and a
/// transaction that inserts or closes an order is either counted, or waits and then counts itself. A sale whose row
/// can't be changed doesn't stop the others.
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

/// What decides whether a sale may leave Redis.
#[derive(Debug)]
pub struct Standing {
    pub disagreements: Vec<Disagreement>,
    /// The sale in numbers; `None` if Redis doesn't have it.
    pub sale: Option<SaleCount>,
    /// Claims of the sale on their way to Postgres.
    pub in_flight: usize,
}

impl Standing {
    /// Whether every claim that this sale ever accepted is an order: the stores agree, the buyers are the live orders,
    /// and nothing is in flight. For a sale that has ended, this stays true.
    pub fn is_settled(&self) -> bool {
        self.disagreements.is_empty() && self.is_identical() && self.in_flight == 0
    }

    /// What keeps the sale from being settled, in words.
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

/// Compares a sale that Redis has to hold, and counts its claims in flight.
///
/// # Errors
///
/// When a store doesn't answer, or a value of the sale in Redis can't be read.
pub async fn standing(stores: &Stores, coupon: CouponId) -> Result<Standing, Failure> {
    let mut report = Report::default();
    check_one(stores, coupon, &mut report).await?;
    // Read last: a buyer without an order whose entry isn't in flight by now will never get one.
    let in_flight = in_flight(stores, coupon).await?;
    let sale = report.sales.pop();
    Ok(Standing { disagreements: report.disagreements, sale, in_flight })
}

/// Number of this coupon's claims on their way to Postgres.
pub async fn in_flight(stores: &Stores, coupon: CouponId) -> Result<usize, Failure> {
    Ok(log::InFlight::read(stores, coupon.lane()).await?.of(coupon).count())
}

/// Compares one sale; `None` if Redis doesn't have to hold it.
pub async fn check_sale(stores: &Stores, coupon: CouponId) -> Result<Option<Report>, Failure> {
    if compare::terms(&stores.pool, coupon).await?.is_none() {
        return Ok(None);
    }
    let mut report = Report::default();
    sale_or_why_not(stores, coupon, &mut report).await?;
    Ok(Some(report))
}

/// Compares one sale. A sale that can't be read is a finding.
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
    let Some((terms, count)) = compare::facts(stores, coupon).await? else {
        return Ok(());
    };
    report.disagreements.extend(compare::judge(coupon, &terms, &count));
    let (Some(total), Some(stock)) = (count.total, count.stock) else {
        return Ok(());
    };
    let compared = compare::buyers(stores, coupon, None).await?;
    report.disagreements.extend(compare::of_buyers(coupon, &compared));
    let Compared { live_orders, in_review, is_identical: identical, .. } = compared;
    let buyers = count.buyers;
    let sale = SaleCount { coupon, total, stock, buyers, live_orders, in_review, identical };
    report.sales.push(sale);
    Ok(())
}

impl Report {
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

    /// Settled means: no disagreement, the same buyers, and nothing in flight.
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
