//! The buyers of one sale in Redis against its orders in Postgres.
//!
//! First by count and digest, which reads each side once. If these differ (because entries are in flight, or because
//! of a fault), one by one in both directions, page by page:
//!
//! * **From buyer to order.** Buyers are read first, then the entries in flight, then dead letters and rows. A
//!   buyer's entry that was no longer in flight when the log was read is in Postgres by the time that is read. A
//!   buyer whose order is closed is on the way out: the outbox is asked first, and then Redis once more, which the
//!   buyer has left before the outbox is done.
//! * **From order to buyer**, as `sale/order/live.rs` says.

use std::collections::HashMap;

use super::super::{Check, Disagreement};
use super::digest::Digest;
use super::rows;
use crate::sale::Failure;
use crate::sale::buyers;
use crate::sale::ids::{CouponId, OrderId, UserId};
use crate::sale::order::dead_letter;
use crate::sale::order::give_back::stock_returns;
use crate::sale::order::live;

/// Elements read at a time; more would hold up all other clients.
const PAGE: usize = 1_000;

/// Counts of kept and broken promises of a sale.
pub(super) struct Promises {
    pub live_orders: usize,
    pub in_review: usize,
    pub identical: bool,
}

/// Buyers without a live order.
#[derive(Default)]
struct Unmatched {
    /// Buyers without any row.
    unwritten: HashMap<OrderId, UserId>,
    /// Buyers with a closed order.
    closed: Vec<(UserId, OrderId)>,
}

impl Check<'_> {
    pub(super) async fn promises(
        &self,
        coupon: CouponId,
        found: &mut Vec<Disagreement>,
    ) -> Result<Promises, Failure> {
        let mut buyers = Digest::default();
        let mut pages = buyers::Pages::begin(self.redis, self.keys, coupon).await?;
        while let Some(page) = pages.next().await? {
            page.into_iter().for_each(|(user, order)| buyers.add(user, order));
        }
        let mut live = Digest::default();
        let units = rows::each_live(self.pool, coupon, |user, order| live.add(user, order)).await?;
        let live_orders = live.count;
        found.extend(rows::compare_units(coupon, live_orders, &units));
        let identical = buyers == live;
        let mut in_review = 0;
        if !identical {
            in_review = self.buyers_without_order(coupon, found).await?;
            self.orders_without_buyer(coupon, found).await?;
        }
        Ok(Promises { live_orders, in_review, identical })
    }

    /// Returns the buyers whose order is an open dead letter.
    async fn buyers_without_order(
        &self,
        coupon: CouponId,
        found: &mut Vec<Disagreement>,
    ) -> Result<usize, Failure> {
        let Unmatched { mut unwritten, closed } = self.unmatched(coupon).await?;
        self.each_in_flight(coupon.lane(), |claim| {
            if claim.coupon_id == coupon && unwritten.get(&claim.order_id) == Some(&claim.user_id) {
                unwritten.remove(&claim.order_id);
            }
        })
        .await?;
        let dead = dead_letter::open_of_coupon(self.pool, coupon).await?;
        let before = unwritten.len();
        unwritten.retain(|order, _| !dead.contains(order));
        let in_review = before - unwritten.len();
        let unwritten: Vec<(UserId, OrderId)> =
            unwritten.into_iter().map(|(order, user)| (user, order)).collect();
        for page in unwritten.chunks(PAGE) {
            let rows = live::by_id(self.pool, coupon, page.iter().map(|(_, order)| *order)).await?;
            let lost = page.iter().filter(|(user, order)| match rows.get(order) {
                Some((of_user, _)) => of_user != user,
                None => true,
            });
            found.extend(lost.map(|&(user, order)| Disagreement::OrderLost {
                coupon,
                user,
                order,
            }));
        }
        for page in closed.chunks(PAGE) {
            self.closed(coupon, page, found).await?;
        }
        Ok(in_review)
    }

    /// Checks buyers whose orders aren't live rows.
    async fn unmatched(&self, coupon: CouponId) -> Result<Unmatched, Failure> {
        let mut unmatched = Unmatched::default();
        let mut pages = buyers::Pages::begin(self.redis, self.keys, coupon).await?;
        while let Some(page) = pages.next().await? {
            let rows = live::by_id(self.pool, coupon, page.iter().map(|(_, order)| *order)).await?;
            for (user, order) in page {
                match rows.get(&order) {
                    Some((of_user, true)) if *of_user == user => {}
                    Some((of_user, false)) if *of_user == user => {
                        unmatched.closed.push((user, order));
                    }
                    _ => drop(unmatched.unwritten.insert(order, user)),
                }
            }
        }
        Ok(unmatched)
    }

    /// Checks buyers whose orders are closed: each unit has to be on its way back.
    async fn closed(
        &self,
        coupon: CouponId,
        closed: &[(UserId, OrderId)],
        found: &mut Vec<Disagreement>,
    ) -> Result<(), Failure> {
        let orders: Vec<i64> = closed.iter().map(|(_, order)| order.get()).collect();
        let coming_back = stock_returns::open_among(self.pool, &orders).await?;
        let in_redis = self.orders_of(coupon, closed).await?;
        for (&(user, order), in_redis) in closed.iter().zip(in_redis) {
            if in_redis == Some(order) && !coming_back.contains(&order) {
                found.push(Disagreement::NotGivenBack { coupon, user, order });
            }
        }
        Ok(())
    }

    async fn orders_without_buyer(
        &self,
        coupon: CouponId,
        found: &mut Vec<Disagreement>,
    ) -> Result<(), Failure> {
        let mut after = None;
        while let Some(missing) =
            live::missing_page(self.pool, self.redis, self.keys, coupon, &mut after).await?
        {
            found.extend(missing.into_iter().map(|((user, order), in_redis)| {
                Disagreement::BuyerMissing { coupon, user, order, in_redis }
            }));
        }
        Ok(())
    }

    /// The orders of these users, by Redis.
    async fn orders_of(
        &self,
        coupon: CouponId,
        users: &[(UserId, OrderId)],
    ) -> Result<Vec<Option<OrderId>>, Failure> {
        let users = users.iter().map(|(user, _)| *user);
        buyers::orders_of(self.redis, self.keys, coupon, users).await
    }
}
