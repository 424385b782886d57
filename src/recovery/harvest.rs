//! Accepted claims that Postgres doesn't know: buyers in Redis without row, entry and dead letter, and unwritten
//! claims.

use tokio_util::sync::CancellationToken;

use super::records::{LostClaim, Outcome, REFUSED, SUPERSEDED};
use crate::fence;
use crate::log::LoggedClaim;
use crate::order::dead_letter::{self, DeadLetter, Reason};
use crate::order::insert::NotWritten;
use crate::order::live;
use crate::order::write::{Orders, Origin};
use crate::recovery::reconcile::compare::{self, AcceptedClaim};
use crate::store::ids::{CouponId, Lane};
use crate::store::{Failure, Stores};

/// Makes orders of such claims.
pub(super) struct Harvester {
    stores: Stores,
    orders: Orders,
}

impl Harvester {
    pub(super) fn new(stores: &Stores, orders: Orders) -> Self {
        Self { stores: stores.clone(), orders }
    }

    /// Makes orders of those claims that Postgres doesn't know. Returns the number of new orders.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or another recovery has begun.
    pub(super) async fn take(
        &self,
        coupon: CouponId,
        epoch: i64,
        accepted: Vec<AcceptedClaim>,
        outcome: &mut Outcome,
    ) -> Result<i64, Failure> {
        let (superseded, kept) = self.sort_out(coupon, accepted).await?;
        outcome.add_lost(superseded);
        self.write(coupon, epoch, kept, &mut outcome.lost).await
    }

    /// Of these claims, those that Postgres doesn't know: first the claims whose user has a newer order of this coupon,
    /// then the others.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub(super) async fn sort_out(
        &self,
        coupon: CouponId,
        accepted: Vec<AcceptedClaim>,
    ) -> Result<(Vec<LostClaim>, Vec<AcceptedClaim>), Failure> {
        let unknown = compare::unknown(&self.stores.pool, coupon, accepted).await?;
        let (mut superseded, mut kept) = (Vec::new(), Vec::new());
        for page in unknown.chunks(live::PAGE) {
            let users: Vec<i64> = page.iter().map(|(user, _)| user.get()).collect();
            let newest = live::newest_of(&self.stores.pool, coupon, &users).await?;
            let is_superseded =
                |(user, order): &AcceptedClaim| newest.get(user).is_some_and(|newer| newer > order);
            let (older, newer): (Vec<_>, Vec<_>) = page.iter().copied().partition(is_superseded);
            superseded.extend(older);
            kept.extend(newer);
        }
        let lost = superseded.into_iter().map(|(user_id, order_id)| LostClaim {
            coupon_id: coupon,
            user_id,
            order_id,
            reason: SUPERSEDED.to_owned(),
        });
        Ok((lost.collect(), kept))
    }

    /// Writes orders. A claim without a unit, or that Postgres refuses, becomes a dead letter: once the sale is built,
    /// no store would know the claim. If Postgres refuses the dead letter, too, the claim is lost. Returns the number
    /// of new orders.
    async fn write(
        &self,
        coupon: CouponId,
        epoch: i64,
        kept: Vec<AcceptedClaim>,
        lost: &mut Vec<LostClaim>,
    ) -> Result<i64, Failure> {
        let claims = kept.into_iter();
        let claims = claims.map(|(user, order)| LoggedClaim::without_entry(coupon, user, order));
        let mut claims: Vec<LoggedClaim> = claims.collect();
        claims.sort_by_key(|claim| claim.order_id);
        let held = (coupon.lane(), epoch);
        let mut orders = 0;
        // Small enough for Postgres's time limits.
        let mut parts: Vec<&[LoggedClaim]> = claims.chunks(live::PAGE).rev().collect();
        while let Some(part) = parts.pop() {
            match self.write_part(held, part).await? {
                Ok(new) => orders += new,
                Err(why) if part.len() == 1 => match self.put_aside(held, part[0], &why).await {
                    Err(failure) if failure.is_of_item() => lost.push(given_up(&part[0], &failure)),
                    put_aside => put_aside?,
                },
                Err(_) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        Ok(orders)
    }

    /// Writes claims of one sale, all or none. Returns the number of new orders, or why Postgres refuses a claim.
    async fn write_part(
        &self,
        held: (Lane, i64),
        claims: &[LoggedClaim],
    ) -> Result<Result<i64, String>, Failure> {
        let never = CancellationToken::new();
        match self.orders.write(held, Origin::Lane(None), claims, &never).await {
            Ok(written) => Ok(Ok(i64::try_from(written.inserted).unwrap_or(i64::MAX))),
            Err(NotWritten::Postgres(error)) => Err(error.into()),
            // Another recovery has begun.
            Err(NotWritten::Stale | NotWritten::LastMissing(_) | NotWritten::LocksLost) => {
                Err(Failure::Recovering(held.0))
            }
            Err(NotWritten::Poison(why)) => Ok(Err(why)),
        }
    }

    /// Makes a dead letter of a claim, unless another recovery has begun.
    async fn put_aside(
        &self,
        (lane, epoch): (Lane, i64),
        claim: LoggedClaim,
        why: &str,
    ) -> Result<(), Failure> {
        let held = fence::table::begin_in(&self.stores.pool, lane, epoch).await?;
        let mut tx = held.ok_or_else(|| Failure::Recovering(lane))?;
        let letter = DeadLetter::of_claim(lane, &claim, Reason::Invalid, why);
        let is_new = dead_letter::insert_all(&mut *tx, &[letter]).await? == 1;
        tx.commit().await?;
        if is_new {
            let (coupon, order) = (claim.coupon_id, claim.order_id);
            tracing::error!(%coupon, %order, why, "ALARM: a claim that only Redis or its process knew can't become an order; it is a dead letter now");
        }
        Ok(())
    }
}

/// Reports a claim for which Postgres takes neither an order nor a dead letter.
fn given_up(claim: &LoggedClaim, failure: &Failure) -> LostClaim {
    let (coupon_id, user_id, order_id) = (claim.coupon_id, claim.user_id, claim.order_id);
    tracing::error!(coupon = %coupon_id, user = %user_id, order = %order_id, %failure, "ALARM: a claim that only Redis or its process knew can become neither an order nor a dead letter; it is lost, and listed by GET /v1/recoveries");
    LostClaim { coupon_id, user_id, order_id, reason: REFUSED.to_owned() }
}
