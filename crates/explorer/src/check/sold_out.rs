//! The invariant about "sold out".
//!
//! An answer "sold out" is believed if at some moment, from one memory's time before the question to the answer, as many
//! claims may have held a unit as there were units. The count is an upper bound: a claim may hold its unit from its
//! user's first question on, until its unit was seen to be back. While a Redis that went back within one life has not been
//! recovered, an answer tells of its older data, so the moments since then count, too.

use std::collections::{BTreeMap, BTreeSet};

use super::verdict::{Broken, POISON_ORDERS_MAX};
use crate::facts::{Event, Evidence, LaneFacts, Loss, Ms, Op, Outcome};

/// Time for which a process believes "sold out" (`--sold-out-memory-ms`), with a second for a late reader.
const MEMORY_MS: Ms = 2_000;

/// I11.
pub fn check(evidence: &Evidence, broken: &mut Vec<Broken>) {
    for sale in &evidence.sales {
        let answers: Vec<&Event> = evidence
            .history
            .iter()
            .filter(|event| event.coupon == sale.coupon && event.is_sold_out())
            .collect();
        if answers.is_empty() {
            continue;
        }
        let holders = holders(evidence, sale.coupon);
        for event in answers {
            let from = oldest_data(evidence, event) - MEMORY_MS;
            let total = least_total(evidence, sale.coupon, sale.first_total, from);
            let held = most_at_a_time(&holders, from, event.completed);
            if held < total {
                let Event { user, coupon, invoked, completed, .. } = event;
                let detail = format!(
                    "user {user} was told that coupon {coupon} is sold out, between {invoked} and {completed} ms; {held} of {total} units can have been held"
                );
                broken.push(Broken { invariant: "I11", detail });
                break;
            }
        }
    }
}

/// The moment that the answer tells of: that of the question, or that of older data which Redis went on with.
fn oldest_data(evidence: &Evidence, event: &Event) -> Ms {
    let went_on = |loss: &&Loss| {
        let is_after = loss.back_at <= event.completed;
        loss.sells_on && is_after && event.invoked <= last_opening(evidence, loss)
    };
    let older = evidence.losses.iter().filter(went_on).map(|loss| loss.kept_until);
    older.chain([event.invoked]).min().unwrap_or(event.invoked)
}

/// Time by which all lanes have been opened after a loss; the end of time if one has not.
fn last_opening(evidence: &Evidence, loss: &Loss) -> Ms {
    let first_of = |lane: &LaneFacts| {
        let of_lane = evidence.recoveries.iter().filter(|recovery| recovery.lane == lane.lane);
        let opened = of_lane.filter_map(|recovery| recovery.opened);
        opened.filter(|opened| *opened > loss.back_at).min().unwrap_or(Ms::MAX)
    };
    evidence.lanes.iter().map(first_of).max().unwrap_or(Ms::MAX)
}

/// Units on offer that Redis has had for certain at this time. A loss that came later than a change may have undone it.
fn least_total(evidence: &Evidence, coupon: i64, first: i64, at: Ms) -> i64 {
    let undone = |applied: Ms| evidence.losses.iter().any(|loss| loss.lost_at >= applied);
    let changes = evidence.changes.iter().filter(|change| change.coupon == coupon);
    let applied = changes.filter(|change| change.applied <= at && !undone(change.applied));
    applied.map(|change| change.total).max().unwrap_or(first).max(first)
}

/// Times in which each order may have held its unit.
fn holders(evidence: &Evidence, coupon: i64) -> Vec<(Ms, Ms)> {
    let claims = || {
        let of = |event: &&Event| event.op == Op::Claim && event.coupon == coupon;
        evidence.history.iter().filter(of)
    };
    let mut first_asked: BTreeMap<i64, Ms> = BTreeMap::new();
    for event in claims() {
        let first = first_asked.entry(event.user).or_insert(event.invoked);
        *first = (*first).min(event.invoked);
    }
    let asked = |user: i64| first_asked.get(&user).copied().unwrap_or(Ms::MIN);
    let mut orders: BTreeMap<i64, i64> = BTreeMap::new();
    orders
        .extend(evidence.rows.iter().filter(|row| row.coupon == coupon).map(|r| (r.order, r.user)));
    orders.extend(claims().filter_map(|event| Some((event.promised()?, event.user))));
    let letters = evidence.letters.iter().filter_map(|letter| letter.claim);
    let ours = letters.filter(|(of, _, order)| *of == coupon && *order >= POISON_ORDERS_MAX);
    orders.extend(ours.map(|(_, user, order)| (order, user)));
    let back: BTreeMap<i64, Ms> =
        evidence.returns.iter().filter_map(|r| Some((r.order, r.done?))).collect();
    let until = |order: i64| back.get(&order).copied().unwrap_or(Ms::MAX);
    let mut holders: Vec<(Ms, Ms)> =
        orders.iter().map(|(order, user)| (asked(*user), until(*order))).collect();
    // After a loss, a claim of unknown outcome may have held a unit that no store remembers.
    if !evidence.losses.is_empty() {
        let known: BTreeSet<i64> = orders.values().copied().collect();
        let unknown = claims().filter(|event| event.outcome == Outcome::Unknown);
        let users: BTreeSet<i64> = unknown.map(|event| event.user).collect();
        holders.extend(users.difference(&known).map(|user| (asked(*user), Ms::MAX)));
    }
    holders
}

/// The largest number of holders at a moment of this time.
fn most_at_a_time(holders: &[(Ms, Ms)], from: Ms, to: Ms) -> i64 {
    let at = |moment: Ms| {
        holders.iter().filter(|(begin, end)| *begin <= moment && moment <= *end).count()
    };
    // The number grows only at a beginning.
    let begins =
        holders.iter().map(|(begin, _)| *begin).filter(|begin| *begin > from && *begin <= to);
    let most = begins.chain([from]).map(at).max().unwrap_or(0);
    i64::try_from(most).unwrap_or(i64::MAX)
}
