//! Invariants about promises and rows.

use std::collections::{BTreeMap, BTreeSet};

use super::excuse::{Excuse, excuse};
use super::verdict::{Broken, POISON_ORDERS_MAX, Verdict};
use crate::facts::{Event, Evidence, Letter, Loss, Lost, Op, Outcome, Row};

/// A user and a coupon.
type Pair = (i64, i64);

/// The facts, sorted for questions about one order.
struct Books<'a> {
    evidence: &'a Evidence,
    rows: BTreeMap<i64, &'a Row>,
    /// Open letters of our own claims, by order.
    letters: BTreeMap<i64, &'a Letter>,
    superseded: BTreeMap<i64, &'a Lost>,
    /// Promises: order -> the first event that told it.
    promised: BTreeMap<i64, &'a Event>,
}

/// I5 to I7.
pub fn check(evidence: &Evidence, verdict: &mut Verdict) {
    let books = Books::new(evidence);
    unique(&books, &mut verdict.broken);
    for (order, event) in &books.promised {
        kept(&books, *order, event, verdict);
    }
    causeless_letters(&books, verdict);
    phantoms(&books, &mut verdict.broken);
    told_last(&books, &mut verdict.broken);
}

impl<'a> Books<'a> {
    fn new(evidence: &'a Evidence) -> Self {
        let open = evidence.letters.iter().filter(|letter| letter.is_open);
        let letters = open.filter_map(|letter| Some((letter.claim?.2, letter)));
        let lost = evidence.recoveries.iter().flat_map(|recovery| &recovery.lost);
        let superseded = lost.filter(|lost| lost.reason == "superseded");
        let mut promised = BTreeMap::new();
        for event in &evidence.history {
            if let Some(order) = event.promised() {
                promised.entry(order).or_insert(event);
            }
        }
        Self {
            evidence,
            rows: evidence.rows.iter().map(|row| (row.order, row)).collect(),
            letters: letters.filter(|(order, _)| *order >= POISON_ORDERS_MAX).collect(),
            superseded: superseded.map(|lost| (lost.order, lost)).collect(),
            promised,
        }
    }

    /// True for a user with a newer order of this coupon.
    fn has_newer(&self, user: i64, coupon: i64, order: i64) -> bool {
        let of = |row: &&Row| row.user == user && row.coupon == coupon && row.order > order;
        self.evidence.rows.iter().any(|row| of(&row))
    }
}

/// I5: a promise is a row, an open letter, or reported as superseded; or it is excused, and counted.
fn kept(books: &Books, order: i64, event: &Event, verdict: &mut Verdict) {
    let Event { user, coupon, .. } = *event;
    let i5 = |detail: String| Broken { invariant: "I5", detail };
    let is_row = books.rows.get(&order).is_some_and(|row| row.user == user && row.coupon == coupon);
    let is_letter = books.letters.contains_key(&order);
    if is_row && is_letter {
        let detail = format!("order {order} of user {user} is a row and an open letter");
        verdict.broken.push(i5(detail));
    } else if is_letter {
        verdict.letters += 1;
    } else if !is_row && books.superseded.contains_key(&order) {
        verdict.superseded += 1;
        if !books.has_newer(user, coupon, order) {
            let detail = format!(
                "order {order} of user {user}, coupon {coupon}, is reported as superseded, and there is no newer one"
            );
            verdict.broken.push(i5(detail));
        }
    } else if !is_row {
        let door = format!("api-{} in its life {}", event.door.0, event.door.1);
        let at = event.completed;
        let told =
            format!("order {order} of user {user}, coupon {coupon}, told by {door} at {at} ms");
        match excuse(books.evidence, order) {
            Excuse::LostWithProcess(how) => {
                verdict.lost_with_process.push(format!("{told}: {how}"));
            }
            Excuse::None(why) => {
                verdict.broken.push(i5(format!("{told}, is neither row nor letter; {why}")));
            }
        }
    }
}

/// I5: a claim of ours ends as a dead letter only if its unit can have been given to another user: by a Redis that sold
/// from older data, or because a promise was handed in too late. Or if a log that was lost came back with claims of users
/// who had claimed anew meanwhile: a Redis that went back to a moment before an earlier loss.
fn causeless_letters(books: &Books, verdict: &mut Verdict) {
    let Evidence { losses, recoveries, silences, .. } = books.evidence;
    let late = !silences.is_empty() || recoveries.iter().any(|recovery| recovery.absent > 0);
    if losses.iter().any(|loss| loss.sells_on || late || came_back(losses, loss)) {
        return;
    }
    // Those that have become orders since, too.
    let ours = books.evidence.letters.iter().filter_map(|letter| Some((letter.claim?.2, letter)));
    for (order, letter) in ours.filter(|(order, _)| *order >= POISON_ORDERS_MAX) {
        let detail = format!("order {order} is a dead letter ({}) without a cause", letter.reason);
        verdict.broken.push(Broken { invariant: "I5", detail });
    }
}

/// True if what this loss took was there again after a later one.
fn came_back(losses: &[Loss], loss: &Loss) -> bool {
    losses.iter().any(|later| later.lost_at > loss.lost_at && later.kept_until < loss.lost_at)
}

/// I6: each row was claimed, before it was written, and has an id that its user was told, or may have been.
fn phantoms(books: &Books, broken: &mut Vec<Broken>) {
    let mut first_claims: BTreeMap<Pair, i64> = BTreeMap::new();
    let mut unknown: BTreeSet<Pair> = BTreeSet::new();
    for event in books.evidence.history.iter().filter(|event| event.op == Op::Claim) {
        let pair = (event.user, event.coupon);
        let first = first_claims.entry(pair).or_insert(event.invoked);
        *first = (*first).min(event.invoked);
        if event.outcome == Outcome::Unknown {
            unknown.insert(pair);
        }
    }
    for row in &books.evidence.rows {
        let pair = (row.user, row.coupon);
        let what = match first_claims.get(&pair) {
            None => "which its user never claimed",
            Some(first) if row.created < *first => "which is older than its user's first claim",
            Some(_) if !books.promised.contains_key(&row.order) && !unknown.contains(&pair) => {
                "which no answer told, and each claim of its user was answered"
            }
            Some(_) => continue,
        };
        let Row { order, user, coupon, .. } = row;
        let detail = format!("there is a row {order} of user {user}, coupon {coupon}, {what}");
        broken.push(Broken { invariant: "I6", detail });
    }
}

/// I7: an order id belongs to one user and one coupon, in all answers, rows and letters.
fn unique(books: &Books, broken: &mut Vec<Broken>) {
    let mut owners: BTreeMap<i64, BTreeSet<Pair>> = BTreeMap::new();
    for event in &books.evidence.history {
        if let Some(order) = event.promised() {
            owners.entry(order).or_default().insert((event.user, event.coupon));
        }
    }
    for row in &books.evidence.rows {
        owners.entry(row.order).or_default().insert((row.user, row.coupon));
    }
    for (coupon, user, order) in books.evidence.letters.iter().filter_map(|letter| letter.claim) {
        if order >= POISON_ORDERS_MAX {
            owners.entry(order).or_default().insert((user, coupon));
        }
    }
    for (order, pairs) in owners.into_iter().filter(|(_, pairs)| pairs.len() > 1) {
        let detail = format!("order {order} belongs to several (user, coupon): {pairs:?}");
        broken.push(Broken { invariant: "I7", detail });
    }
}

/// I5, as users see it: after the end a user with an order is told an order, and a live one is the one that is told.
fn told_last(books: &Books, broken: &mut Vec<Broken>) {
    let mut live: BTreeMap<Pair, i64> = BTreeMap::new();
    let mut any: BTreeSet<Pair> = BTreeSet::new();
    for row in &books.evidence.rows {
        any.insert((row.user, row.coupon));
        if row.is_live {
            live.insert((row.user, row.coupon), row.order);
        }
    }
    for (user, coupon, told) in &books.evidence.told_last {
        let pair = (*user, *coupon);
        let wrong = match (told, live.get(&pair)) {
            (None, _) => any.contains(&pair),
            (Some(told), Some(live)) => told != live,
            (Some(_), None) => false,
        };
        if wrong {
            let detail = format!(
                "at the end user {user} is told {told:?} about coupon {coupon}; live is {:?}",
                live.get(&pair)
            );
            broken.push(Broken { invariant: "I5", detail });
        }
    }
}
