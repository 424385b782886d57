//! Terms of a new order: price and deadline, both of the claim's moment.

use std::time::Duration;

use sqlx::PgConnection;

use crate::base::limits;
use crate::sale::coupon::prices::{self, Price, Prices};
use crate::sale::ids::CouponId;
use crate::sale::log::LoggedClaim;

/// Terms of the orders that are written. Clones share the memory of prices.
#[derive(Clone)]
pub(super) struct Terms {
    prices: Prices,
    /// Time that an order may stay unpaid after its claim.
    pub(super) payment_window: Duration,
}

/// Reason why a batch has no prices.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoPrices {
    /// The coupon has no price.
    #[error("coupon {0} has no price")]
    Missing(CouponId),
    /// Postgres doesn't answer.
    #[error(transparent)]
    Postgres(#[from] sqlx::Error),
}

impl Terms {
    /// Terms with this time to pay.
    pub(super) fn new(payment_window: Duration) -> Self {
        Self { prices: Prices::default(), payment_window }
    }

    /// Time that an order may stay unpaid after it was written: a claim that has waited in the log can be paid all the
    /// same.
    pub(super) fn pay_time_min(&self) -> Duration {
        self.payment_window.min(limits::PAY_TIME_MIN)
    }

    /// The price of each of these claims: at its revision, or at its time if its entry is gone.
    pub(super) async fn prices(
        &self,
        connection: &mut PgConnection,
        claims: &[LoggedClaim],
    ) -> Result<Vec<Price>, NoPrices> {
        let mut prices = Vec::with_capacity(claims.len());
        for claim in claims {
            let coupon = claim.coupon_id;
            let price = match claim.revision {
                Some(revision) => self.prices.at(&mut *connection, coupon, revision).await?,
                None => prices::at_time(&mut *connection, coupon, claim.claimed_at).await?,
            };
            prices.push(price.ok_or(NoPrices::Missing(coupon))?);
        }
        Ok(prices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pay_time_min_is_the_payment_window_where_that_is_shorter() {
        let least = limits::PAY_TIME_MIN;
        for (window, expected) in [(least * 3, least), (least, least), (least / 3, least / 3)] {
            assert_eq!(Terms::new(window).pay_time_min(), expected, "{window:?}");
        }
    }
}
