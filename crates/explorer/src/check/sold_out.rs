//! The invariant about "sold out".
//!
//! An answer "sold out" is believed if at some moment, from one memory's time before the question to the answer, as many
//! claims may have held a unit as there were units. The count is an upper bound: a claim may hold its unit from its
//! user's first question on, until its unit was seen to be back. While a Redis that went back within one life has not been
//! recovered, an answer tells of its older data: the moments since then count, too, and together, for a unit that came
//! back after them is held again, beside those that were claimed since.

use std::collections::{BTreeMap, BTreeSet};

use super::verdict::{Broken, POISON_ORDERS_MAX};
use crate::facts::{Event, Evidence, LaneFacts, Loss, Ms, Op, Outcome};

/// Time for which a process believes "sold out" (`limits::SOLD_OUT_MEMORY`), with a second for a late reader.
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
        let held = Held::by(&holders(evidence, sale.coupon));
        for event in answers {
            let told_of = oldest_data(evidence, event);
            let from = told_of - MEMORY_MS;
            let total = least_total(evidence, sale.coupon, sale.first_total, from);
            let held = if told_of < event.invoked {
                held.in_all(from, event.completed)
            } else {
                held.most(from, event.completed)
            };
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

/// Numbers of holders over time, looked up in logarithmic time: a large crowd has thousands of holders and of answers.
struct Held {
    begins: Vec<Ms>,
    ends: Vec<Ms>,
    /// Row `k` has, for each beginning, the largest number at that one and the `2^k - 1` behind it.
    most: Vec<Vec<i64>>,
}

impl Held {
    fn by(holders: &[(Ms, Ms)]) -> Self {
        let lasting = || holders.iter().filter(|(begin, end)| begin <= end);
        let mut begins: Vec<Ms> = lasting().map(|(begin, _)| *begin).collect();
        let mut ends: Vec<Ms> = lasting().map(|(_, end)| *end).collect();
        begins.sort_unstable();
        ends.sort_unstable();
        let mut held = Self { begins, ends, most: Vec::new() };
        let mut row: Vec<i64> = held.begins.iter().map(|begin| held.at(*begin)).collect();
        while !row.is_empty() {
            let step = 1 << held.most.len();
            let pairs = row.iter().zip(row.iter().skip(step));
            let next = pairs.map(|(one, two)| *one.max(two)).collect();
            held.most.push(std::mem::replace(&mut row, next));
        }
        held
    }

    /// The number of holders at a moment.
    fn at(&self, moment: Ms) -> i64 {
        let begun = self.begins.partition_point(|begin| *begin <= moment);
        let ended = self.ends.partition_point(|end| *end < moment);
        i64::try_from(begun - ended).unwrap_or(i64::MAX)
    }

    /// The number of holders at any moment of this time.
    fn in_all(&self, from: Ms, to: Ms) -> i64 {
        let begun = self.begins.partition_point(|begin| *begin <= to);
        let ended = self.ends.partition_point(|end| *end < from);
        i64::try_from(begun - ended).unwrap_or(i64::MAX)
    }

    /// The largest number of holders at a moment of this time. It grows only at a beginning.
    fn most(&self, from: Ms, to: Ms) -> i64 {
        let first = self.begins.partition_point(|begin| *begin <= from);
        let behind = self.begins.partition_point(|begin| *begin <= to);
        let Some(row) = behind.checked_sub(first).and_then(usize::checked_ilog2) else {
            return self.at(from);
        };
        let most = &self.most[row as usize];
        self.at(from).max(most[first]).max(most[behind - (1 << row)])
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// As the definition has it.
    fn counted(holders: &[(Ms, Ms)], from: Ms, to: Ms) -> i64 {
        let at = |moment: Ms| holders.iter().filter(|(a, b)| *a <= moment && moment <= *b).count();
        let most = (from..=to).map(at).max().unwrap_or(0);
        i64::try_from(most).unwrap_or(i64::MAX)
    }

    #[test]
    fn the_largest_number_of_holders_is_that_of_a_count_at_each_moment() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for count in 0..60 {
            let mut holder = || {
                let begin = random.random_range(0..50);
                let end = if random.random_bool(0.3) {
                    Ms::MAX
                } else {
                    begin + random.random_range(-2..20)
                };
                (if random.random_bool(0.1) { Ms::MIN } else { begin }, end)
            };
            let holders: Vec<(Ms, Ms)> = (0..count).map(|_| holder()).collect();
            let held = Held::by(&holders);
            for (from, to) in (0..50).flat_map(|from| (from..50).map(move |to| (from, to))) {
                let expected = counted(&holders, from, to);
                assert_eq!(held.most(from, to), expected, "{from} to {to}: {holders:?}");
                let beside = |(a, b): &&(Ms, Ms)| a <= b && *a <= to && from <= *b;
                let all = holders.iter().filter(beside).count();
                assert_eq!(held.in_all(from, to), all as i64, "{from} to {to}: {holders:?}");
            }
        }
    }
}
