//! Statuses of claims: what the `Location` of a 202 answers.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use crate::coupon::buyers;
use crate::coupon::load::{Loader, Resolution};
use crate::fence::LaneStates;
use crate::fence::in_redis::read_lane;
use crate::order::dead_letter;
use crate::order::model::OrderStatus;
use crate::order::write::Orders;
use crate::store::ids::{CouponId, Lane, OrderId, UserId};
use crate::store::{Failure, Stores};

/// Status of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClaimStatus {
    /// Accepted, and on its way to Postgres.
    Pending,
    /// The claim could not be written as it is; an operator will decide. The unit stays reserved.
    InReview,
    /// An order that waits for payment.
    Unpaid,
    /// Paid.
    Paid,
    /// Used.
    Redeemed,
    /// Cancelled before it was paid.
    Cancelled,
    /// Not paid in time.
    Expired,
    /// The refund of the order is on its way.
    Refunding,
    /// Refunded.
    Refunded,
}

/// A claim and its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClaimState {
    /// The order that the claim has become, or will become.
    pub order_id: OrderId,
    /// Status of the claim.
    pub status: ClaimStatus,
}

/// The answer to a question about a user's claim.
#[derive(Debug, PartialEq, Eq)]
pub enum Inquiry {
    Claimed(ClaimState),
    NotClaimed,
    NoCoupon,
}

pub struct ClaimStatuses {
    stores: Stores,
    orders: Orders,
    loader: Arc<Loader>,
    lanes: Arc<LaneStates>,
}

impl ClaimStatuses {
    pub fn new(
        stores: &Stores,
        orders: &Orders,
        loader: &Arc<Loader>,
        lanes: &Arc<LaneStates>,
    ) -> Self {
        Self {
            stores: stores.clone(),
            orders: orders.clone(),
            loader: loader.clone(),
            lanes: lanes.clone(),
        }
    }

    /// Tells what has become of a user's claim. Redis knows a live claim from the moment it is accepted, and Postgres
    /// knows the rest. If the lane isn't open, or Redis isn't the approved one, only Postgres is believed.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer, or Redis has lost the sale and can't tell. [`Failure::Recovering`] when only an
    /// approved Redis could tell.
    pub async fn inquire(&self, coupon: CouponId, user: UserId) -> Result<Inquiry, Failure> {
        let approved = self.approved(coupon.lane()).await?;
        let redis = self.stores.redis(coupon.lane());
        let held = buyers::orders_of(redis, &self.stores.keys, coupon, [user].into_iter()).await;
        let held = match (held, &approved) {
            (Ok(held), _) => held[0],
            (Err(failure), None) if failure.is_of_item() => None,
            (Err(failure), _) => return Err(failure),
        };
        // Asked after the read, too: in between, the lane may have been closed, and Redis may have gone back in time.
        let Some(approved) = self.still(approved, coupon.lane()).await? else {
            return self.inquire_of_postgres(coupon, user, held).await;
        };
        if let Some(order_id) = held {
            let status = self.status_of(coupon, user, order_id).await?;
            return Ok(Inquiry::Claimed(ClaimState { order_id, status }));
        }
        if let Some((order_id, status)) = self.orders.last_of(coupon, user).await? {
            return Ok(Inquiry::Claimed(ClaimState { order_id, status: status.into() }));
        }
        if let Some(order_id) = dead_letter::newest_open_of(&self.stores.pool, coupon, user).await?
        {
            let status = ClaimStatus::InReview;
            return Ok(Inquiry::Claimed(ClaimState { order_id, status }));
        }
        // "Not claimed" has to be certain: only an approved Redis that still has the sale can tell.
        match self.loader.resolve(coupon).await? {
            Resolution::Unknown => return Ok(Inquiry::NoCoupon),
            Resolution::Regular | Resolution::Archived => {}
            Resolution::Loaded => {
                if !buyers::can_tell(redis, &self.stores.keys, coupon, user).await? {
                    self.loader.missing(coupon).await?;
                }
                if self.still(Some(approved), coupon.lane()).await?.is_none() {
                    return Err(self.lanes.suspect(coupon.lane()));
                }
            }
        }
        Ok(Inquiry::NotClaimed)
    }

    /// The epoch of an open lane; `None` for a lane that isn't open.
    async fn approved(&self, lane: Lane) -> Result<Option<i64>, Failure> {
        match self.lanes.admit(lane) {
            Ok(epoch) => Ok(Some(epoch)),
            Err(_) => {
                self.lanes.refresh().await?;
                Ok(self.lanes.admit(lane).ok())
            }
        }
    }

    /// The same epoch, if the lane is still open under it, and in the approved Redis as well.
    async fn still(&self, epoch: Option<i64>, lane: Lane) -> Result<Option<i64>, Failure> {
        let Some(epoch) = epoch else { return Ok(None) };
        let seen = read_lane(&self.stores, lane).await?;
        let is_same = seen.is_open(epoch) && self.lanes.admit(lane).ok() == Some(epoch);
        Ok(is_same.then_some(epoch))
    }

    /// The newest claim that Postgres has, for a lane that isn't open. If Redis names a newer one, it is on its way or
    /// lost: only the end of the recovery tells.
    async fn inquire_of_postgres(
        &self,
        coupon: CouponId,
        user: UserId,
        in_redis: Option<OrderId>,
    ) -> Result<Inquiry, Failure> {
        let row = self.orders.last_of(coupon, user).await?;
        let row = row.map(|(order_id, status)| ClaimState { order_id, status: status.into() });
        let letter = dead_letter::newest_open_of(&self.stores.pool, coupon, user).await?;
        let status = ClaimStatus::InReview;
        let letter = letter.map(|order_id| ClaimState { order_id, status });
        let newest = row.into_iter().chain(letter).max_by_key(|claim| claim.order_id);
        if let Some(claim) = newest.filter(|claim| Some(claim.order_id) >= in_redis) {
            return Ok(Inquiry::Claimed(claim));
        }
        match self.loader.resolve(coupon).await? {
            Resolution::Unknown => Ok(Inquiry::NoCoupon),
            Resolution::Regular | Resolution::Archived => {
                Ok(newest.map_or(Inquiry::NotClaimed, Inquiry::Claimed))
            }
            Resolution::Loaded => Err(self.lanes.suspect(coupon.lane())),
        }
    }

    /// A row with this id counts only if it is this claim's. If it is another claim's, this claim becomes a dead
    /// letter.
    async fn status_of(
        &self,
        coupon: CouponId,
        user: UserId,
        order: OrderId,
    ) -> Result<ClaimStatus, Failure> {
        let row = self.orders.get(user, order).await?;
        if let Some(row) = row.filter(|row| row.coupon_id == coupon) {
            return Ok(row.status.into());
        }
        let in_review = dead_letter::is_open(&self.stores.pool, order).await?;
        Ok(if in_review { ClaimStatus::InReview } else { ClaimStatus::Pending })
    }
}

impl From<OrderStatus> for ClaimStatus {
    fn from(status: OrderStatus) -> Self {
        match status {
            OrderStatus::Unpaid => Self::Unpaid,
            OrderStatus::Paid => Self::Paid,
            OrderStatus::Redeemed => Self::Redeemed,
            OrderStatus::Cancelled => Self::Cancelled,
            OrderStatus::Expired => Self::Expired,
            OrderStatus::Refunding => Self::Refunding,
            OrderStatus::Refunded => Self::Refunded,
        }
    }
}
