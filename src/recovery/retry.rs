//! Retries dead letters for an operator: each becomes an order if nothing stands in the way any more.
//!
//! A claim whose user has a newer order of the coupon never becomes an order. The unit is taken before the order is
//! written. If a retry is broken off in between, the user is a buyer, the letter stays open, and the next retry goes on
//! from there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::coupon::buyers;
use crate::coupon::stock::{self, StoredCoupon};
use crate::fence::LaneStates;
use crate::log::LoggedClaim;
use crate::order::dead_letter::{self, Reason};
use crate::order::insert::NotWritten;
use crate::order::live;
use crate::order::read;
use crate::order::write::{Orders, Origin};
use crate::store::audit::Actor;
use crate::store::ids::{CouponId, DeadLetterId, OrderId, UserId};
use crate::store::postgres;
use crate::store::script::Script;
use crate::store::{Failure, Stores};

/// Why a claim stays a letter although no error occurred.
const SET_ASIDE: &str =
    "the claim was set aside once more, for the reason that the dead letter has";

pub struct Retries {
    stores: Stores,
    orders: Orders,
    lanes: Arc<LaneStates>,
    admit: Script<3>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retried {
    /// The claim is this order, now or from before.
    Order(OrderId),
    NotFound,
    /// The letter stays as it is.
    Kept(Kept),
}

/// Why a letter stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The letter was closed without becoming an order.
    Closed,
    /// The entry names no coupon, user and order.
    Unreadable,
    /// Another order has the order id of the claim.
    OrderIdTaken,
    /// The user is a buyer by this order, or has a newer order of the coupon.
    Superseded(OrderId),
    NoUnit,
    /// The sale is over and has left Redis, or was never there.
    NotLoaded,
    /// Postgres refuses the order, for this reason.
    Refused(String),
}

/// Result of retrying many letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub orders: u64,
    /// Number of letters that stay, by the code of the reason.
    pub kept: BTreeMap<&'static str, u64>,
}

impl Kept {
    /// The reason, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Closed => "dead_letter_closed",
            Self::Unreadable => "letter_unreadable",
            Self::OrderIdTaken => "order_id_taken",
            Self::Superseded(_) => "superseded",
            Self::NoUnit => "no_unit",
            Self::NotLoaded => "sale_not_loaded",
            Self::Refused(_) => "order_refused",
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the dead letter has been closed"),
            Self::Unreadable => {
                f.write_str("its entry names no coupon, user and order; discard it")
            }
            Self::OrderIdTaken => f.write_str(
                "another order has its order id; look at both before anything is changed",
            ),
            Self::Superseded(order) => {
                write!(
                    f,
                    "the user has claimed this coupon again later, by order {order}; discard it"
                )
            }
            Self::NoUnit => f.write_str("no unit is left; restock the sale first, or discard it"),
            Self::NotLoaded => {
                f.write_str("the sale is not in Redis; an archived one takes no order")
            }
            Self::Refused(why) => write!(f, "Postgres refuses the order: {why}"),
        }
    }
}

impl Retries {
    pub fn new(stores: &Stores, orders: Orders, lanes: Arc<LaneStates>) -> Self {
        let admit = Script::new(include_str!("../../lua/admit.lua"));
        Self { stores: stores.clone(), orders, lanes, admit }
    }

    /// Retries one letter. Safe to repeat.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or the lane is recovering.
    pub async fn retry(&self, letter: DeadLetterId, by: &Actor) -> Result<Retried, Failure> {
        let mut tx = postgres::begin(&self.stores.pool).await?;
        // The lock makes a concurrent discard wait, or this wait for the discard.
        let retried = match dead_letter::hold(&mut tx, letter).await? {
            Some((is_open, claim)) => self.retry_held(is_open, claim).await?,
            None => Retried::NotFound,
        };
        if let Retried::Order(_) = retried {
            dead_letter::became_order(&mut tx, letter, by).await?;
        }
        tx.commit().await?;
        Ok(retried)
    }

    async fn retry_held(
        &self,
        is_open: bool,
        claim: Option<LoggedClaim>,
    ) -> Result<Retried, Failure> {
        let pool = &self.stores.pool;
        let Some(claim) = claim else {
            return Ok(Retried::Kept(Kept::Unreadable));
        };
        let LoggedClaim { coupon_id: coupon, user_id: user, order_id: order, .. } = claim;
        match read::find(pool, order).await? {
            Some(row)
                if (row.coupon_id, row.user_id) == (coupon, user)
                    && (is_open || row.status.is_live()) =>
            {
                return Ok(Retried::Order(order));
            }
            _ if !is_open => return Ok(Retried::Kept(Kept::Closed)),
            Some(_) => return Ok(Retried::Kept(Kept::OrderIdTaken)),
            None => {}
        }
        let newest = live::newest_of(pool, coupon, &[user.get()]).await?;
        if let Some(newer) = newest.get(&user).filter(|newest| **newest > order) {
            return Ok(Retried::Kept(Kept::Superseded(*newer)));
        }
        // An older Redis may hold an archived sale again.
        if let Some(StoredCoupon::Flash(sale)) = stock::find(pool, coupon).await?
            && sale.is_archived()
        {
            return Ok(Retried::Kept(Kept::NotLoaded));
        }
        let written = match self.admit(coupon, user, order).await? {
            Ok(epoch) => self.write(epoch, claim).await?,
            Err(kept) => Err(kept),
        };
        Ok(written.map_or_else(Retried::Kept, |()| Retried::Order(order)))
    }

    /// Retries all open letters, or those with one reason. A letter that stays doesn't stop the others.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer; letters retried before keep their result.
    pub async fn retry_all(&self, reason: Option<Reason>, by: &Actor) -> Result<Summary, Failure> {
        let mut summary = Summary::default();
        for letter in dead_letter::open_ids(&self.stores.pool, reason).await? {
            let code = match self.retry(letter, by).await {
                Ok(Retried::Order(_)) => {
                    summary.orders += 1;
                    continue;
                }
                Ok(Retried::Kept(kept)) => kept.code(),
                Ok(Retried::NotFound) => continue,
                Err(failure) if failure.is_of_item() => "failed",
                Err(failure) if failure.is_recovering() => "recovering",
                Err(failure) => return Err(failure),
            };
            *summary.kept.entry(code).or_default() += 1;
        }
        Ok(summary)
    }

    /// Takes a unit for the claim, unless it has one. Returns the epoch in which the claim has its unit.
    async fn admit(
        &self,
        coupon: CouponId,
        user: UserId,
        order: OrderId,
    ) -> Result<Result<i64, Kept>, Failure> {
        let Stores { keys, .. } = &self.stores;
        let redis = self.stores.redis(coupon.lane());
        let lane = coupon.lane();
        self.lanes.refresh().await?;
        // A made-up entry may name a coupon of a lane that doesn't exist.
        if self.lanes.of(lane).is_none() {
            return Ok(Err(Kept::NotLoaded));
        }
        let link = redis.link().await?;
        let epoch = self.lanes.admit(lane)?;
        let Some(shards) = buyers::shards(redis, keys, coupon).await? else {
            return Ok(Err(Kept::NotLoaded));
        };
        let shard = shards.key(keys, coupon, shards.of(user));
        let names = [keys.coupon(coupon), keys.lane(lane), shard];
        let names = names.each_ref().map(String::as_str);
        let arguments = (epoch, shards.to_string(), user.get(), order.get());
        let reply: String = self.admit.run(&link, names, arguments).await?;
        match reply.as_str() {
            "GRANTED" | "HELD" => Ok(Ok(epoch)),
            "NO_UNIT" => Ok(Err(Kept::NoUnit)),
            "NOT_LOADED" => Ok(Err(Kept::NotLoaded)),
            // A newer claim without a row yet, or an older one that no row knows: the log decides.
            "OTHER" => {
                let held = buyers::orders_of(redis, keys, coupon, [user].into_iter()).await?;
                Ok(Err(Kept::Superseded(held[0].unwrap_or(order))))
            }
            "STALE" => Err(Failure::Stale(coupon)),
            "RECOVERING" | "LOST" => Err(self.lanes.suspect(lane)),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }

    async fn write(&self, epoch: i64, claim: LoggedClaim) -> Result<Result<(), Kept>, Failure> {
        let lane = claim.coupon_id.lane();
        match self
            .orders
            .write((lane, epoch), Origin::Letter, &[claim], &CancellationToken::new())
            .await
        {
            // A claim that was set aside again has no row.
            Ok(_) => {
                let (coupon, order) = (claim.coupon_id, claim.order_id);
                let rows = live::by_id(&self.stores.pool, coupon, [order].into_iter()).await?;
                let is_order = rows.contains_key(&order);
                Ok(is_order.then_some(()).ok_or_else(|| Kept::Refused(SET_ASIDE.to_owned())))
            }
            Err(NotWritten::Poison(why)) => Ok(Err(Kept::Refused(why))),
            Err(NotWritten::Postgres(error)) => Err(error.into()),
            Err(NotWritten::Stale | NotWritten::LastMissing(_) | NotWritten::LocksLost) => {
                Err(Failure::Recovering(lane))
            }
        }
    }
}
