//! Batches with more claims of one sale than it has units: as many become orders as there are units, the others
//! become dead letters, all in one transaction.
//!
//! Rows come first and the lock on the sale's row second, as everywhere (`sale/order/moves/mod.rs`, Locks). So the
//! number of units left is read without a lock, as many rows are inserted, and then the row is locked and read again:
//! the remaining claims become dead letters only if no unit is left. If a unit has come back in between, nothing is
//! written, and the caller tries again.

use sqlx::{Postgres, Transaction};

use super::insert::{CONFLICT, NotWritten, Written, existing, insert_missing, set_aside};
use super::terms::Terms;
use crate::sale::coupon::stock;
use crate::sale::coupon::stock::Sold;
use crate::sale::ids::{CouponId, Lane};
use crate::sale::log::LoggedClaim;
use crate::sale::order::dead_letter::{self, DeadLetter, Reason};

/// Claims, by their fate.
#[derive(Default)]
struct Sorted {
    /// Claims that are rows already.
    repeated: usize,
    /// Claims with the order id, or the buyer's place, of another order.
    conflicts: Vec<LoggedClaim>,
    /// Claims whose order id has no row.
    new: Vec<LoggedClaim>,
}

/// Writes as many of these claims of one coupon as there are units for, in their order.
pub(super) async fn write(
    tx: &mut Transaction<'_, Postgres>,
    lane: Lane,
    claims: &[LoggedClaim],
    terms: &Terms,
) -> Result<Written, NotWritten> {
    let Some(coupon) = claims.first().map(|claim| claim.coupon_id) else {
        return Ok(Written::default());
    };
    assert!(claims.iter().all(|claim| claim.coupon_id == coupon), "they are of one coupon");
    let aside = set_aside(tx, lane, claims).await?;
    let mut written = aside.written;
    let Sorted { repeated, mut conflicts, new } = sort(tx, &aside.rest).await?;

    written.repeated += repeated;
    let mut rest = &new[..];
    let Some(units) = stock::units_left(&mut *tx, coupon).await? else {
        let detail = format!("there is no flash coupon {coupon}");
        return Err(NotWritten::Poison(Reason::Invalid, detail));
    };
    let mut units = usize::try_from(units).unwrap_or(0);
    while units > 0 && !rest.is_empty() {
        let (part, others) = rest.split_at(units.min(rest.len()));
        let inserted = insert_missing(tx, part, terms).await?;
        units -= inserted.len();
        written.inserted += inserted.len();
        let is_refused = |claim: &LoggedClaim| !inserted.contains_key(&claim.order_id);
        let refused: Vec<LoggedClaim> = part.iter().copied().filter(is_refused).collect();
        let refused = sort(tx, &refused).await?;
        written.repeated += refused.repeated;
        conflicts.extend(refused.conflicts);
        // Their buyers have other orders.
        conflicts.extend(refused.new);
        rest = others;
    }
    count(tx, coupon, written.inserted, !rest.is_empty()).await?;
    let new_conflicts = put_aside(tx, lane, &conflicts, Reason::Conflict, CONFLICT).await?;
    written.conflicts += new_conflicts;
    let why = format!("coupon {coupon} has no unit left to sell");
    written.oversold = put_aside(tx, lane, rest, Reason::Oversold, &why).await?;
    written.repeated += conflicts.len() + rest.len() - new_conflicts - written.oversold;
    Ok(written)
}

async fn sort(tx: &mut Transaction<'_, Postgres>, claims: &[LoggedClaim]) -> sqlx::Result<Sorted> {
    let mut sorted = Sorted::default();
    if claims.is_empty() {
        return Ok(sorted);
    }
    let rows = existing(tx, claims).await?;
    for &claim in claims {
        match rows.get(&claim.order_id) {
            None => sorted.new.push(claim),
            Some(owner) if owner.is_of(&claim) => sorted.repeated += 1,
            Some(_) => sorted.conflicts.push(claim),
        }
    }
    Ok(sorted)
}

/// Counts the orders as sold; if claims remain, makes sure that no unit does.
async fn count(
    tx: &mut Transaction<'_, Postgres>,
    coupon: CouponId,
    orders: usize,
    claims_remain: bool,
) -> Result<(), NotWritten> {
    let changed = || {
        let detail = format!("the units of coupon {coupon} have changed meanwhile");
        Err(NotWritten::Poison(Reason::Oversold, detail))
    };
    let orders = i64::try_from(orders).unwrap_or(i64::MAX);
    // An archived sale takes no order, and wasn't archived a moment ago.
    if orders > 0 && stock::add_sold(&mut *tx, coupon, orders).await? != Sold::Counted {
        return changed();
    }
    match claims_remain && stock::lock_units_left(&mut *tx, coupon).await? > Some(0) {
        true => changed(),
        false => Ok(()),
    }
}

/// Makes dead letters. Returns the number of new ones.
async fn put_aside(
    tx: &mut Transaction<'_, Postgres>,
    lane: Lane,
    claims: &[LoggedClaim],
    reason: Reason,
    detail: &str,
) -> sqlx::Result<usize> {
    let letter = |claim| DeadLetter::of_claim(lane, claim, reason, detail);
    let letters: Vec<DeadLetter> = claims.iter().map(letter).collect();
    dead_letter::insert_all(&mut **tx, &letters).await
}
