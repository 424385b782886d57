//! The names of the worker's jobs, and what an operator can do about each item that a job has postponed.

/// A job of the worker. Metrics, log lines and the table `postponed` use its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Turns entries of the order log into rows; an entry that can't become a row becomes a dead letter.
    Write,
    /// Trims the order log.
    TidyUp,
    /// Collects the operator's numbers.
    Numbers,
    /// Compares Redis with Postgres.
    Reconcile,
    /// Loads sales that open soon.
    Load,
    /// Removes sales that are over from Redis.
    Archive,
    /// Applies changes of coupons to Redis.
    Changes,
    /// Returns units of closed orders to stock, and removes closed and paid orders from their users' lists of unpaid
    /// orders.
    StockReturns,
    /// Closes orders that were not paid in time.
    Expiry,
    /// Asks gateways to refund payments.
    Refunds,
    /// Asks gateways about opened payments, as a part of the job that refunds payments.
    Openings,
    /// Sends events to the endpoints of other systems.
    Webhooks,
    /// Deletes old orders and records.
    Retention,
    /// Rebuilds a sale that Redis has lost, in a recovery.
    Rebuild,
}

/// Result of one run of a job. A run deals with a bounded number of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Number of items dealt with.
    pub items: usize,
    /// True if the run stopped at its bound. The next run needs no pause before it.
    pub goes_on: bool,
}

impl Job {
    pub const ALL: [Self; 14] = [
        Self::Write,
        Self::TidyUp,
        Self::Numbers,
        Self::Reconcile,
        Self::Load,
        Self::Archive,
        Self::Changes,
        Self::StockReturns,
        Self::Expiry,
        Self::Refunds,
        Self::Openings,
        Self::Webhooks,
        Self::Retention,
        Self::Rebuild,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::TidyUp => "tidy_up",
            Self::Numbers => "numbers",
            Self::Reconcile => "reconcile",
            Self::Load => "warm_up",
            Self::Archive => "archive",
            Self::Changes => "changes",
            Self::StockReturns => "stock_returns",
            Self::Expiry => "expiry",
            Self::Refunds => "refunds",
            Self::Openings => "openings",
            Self::Webhooks => "webhooks",
            Self::Retention => "retention",
            Self::Rebuild => "rebuild",
        }
    }

    /// The job with this name; `None` if this version has no such job.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|job| job.name() == name)
    }

    /// What an operator can do about an item that this job has postponed. `None` for a job that never postpones: a bad
    /// entry of the log becomes a dead letter, and a sale that can't be compared becomes a finding.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Write
            | Self::TidyUp
            | Self::Numbers
            | Self::Reconcile
            | Self::Webhooks
            | Self::Retention => None,
            Self::Load => Some(
                "The sale can't be loaded, and claims on it fail: look at its keys in Redis, which nothing but this service may write; `GET /v1/coupons/ID/progress` tells what both stores have.",
            ),
            Self::Archive => Some(
                "The sale is over and can't be compared, or Redis has lost it: `POST /v1/coupons/ID/archive` says what stands in the way, and with `accept_loss` gives that up.",
            ),
            Self::Changes => Some(
                "A change of the coupon is decided and not in force: claims go by the old values. `flash-sale reconcile` names what is wrong with the sale in Redis. If the coupon has ended, `POST /v1/coupons/ID/archive` with `accept_loss` gives up what is there.",
            ),
            Self::StockReturns => Some(
                "Units of closed orders can't come back to the sale, and its paid and closed orders may count as unpaid ones of their users: `flash-sale reconcile` names what is wrong with it in Redis; the key of unpaid orders of its lane has to be a hash (ARCHITECTURE.md has its name). If the sale is over, `POST /v1/coupons/ID/archive` with `accept_loss` ends the wait.",
            ),
            Self::Expiry => Some(
                "The order stays unpaid and keeps its unit, because Postgres refuses to close it: if the error names `sold`, `flash-sale reconcile` counts it again; if it names a lock, end the session that keeps a row of the sale.",
            ),
            Self::Rebuild => Some(
                "Redis has lost the sale, which can't be built from Postgres and stays closed, alone: the error names the obstacle. Each try closes the sale's lane for a moment, and the first one after the cause has gone opens the sale. If the sale is over, `POST /v1/coupons/ID/archive` with `accept_loss` gives up what is lost.",
            ),
            Self::Openings => Some(
                "If the gateway gives no answer about a payment of the order, ask its staff what became of it: the payer may have paid. If Postgres refuses to note the answer, the error names the value; if it names `sold`, `flash-sale reconcile` counts it again.",
            ),
            Self::Refunds => Some(
                "If the gateway refuses the refund, settle that with the gateway, then POST /v1/payments/{id}/close says so here. If Postgres refuses to close the order and the error names `sold`, `flash-sale reconcile` counts it again.",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_has_a_name_of_its_own_and_is_found_by_it() {
        for job in Job::ALL {
            assert_eq!(Job::of_name(job.name()), Some(job));
        }
        assert_eq!(Job::of_name("cook"), None);
    }
}
