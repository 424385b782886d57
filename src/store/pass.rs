//! The passes of the worker by name, and an operator's remedy for each item that one has postponed.

/// A pass of the worker, as metrics, log lines and the table `postponed` call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Entries of the order log become rows; an entry that can't become one is a dead letter.
    Write,
    /// Trims the order log.
    TidyUp,
    /// Looks up the operator's numbers.
    Numbers,
    /// Compares the stores.
    Reconcile,
    /// Loads sales that open soon.
    Load,
    /// Removes sales that are over from Redis.
    Archive,
    /// Applies changes of coupons to Redis.
    Changes,
    /// Returns units of closed orders to stock, and takes closed and paid orders off their users' lists of unpaid ones.
    StockReturns,
    /// Closes orders that have not been paid in time.
    Expiry,
    /// Asks gateways to refund payments.
    Refunds,
    /// Asks the gateway about opened payments, within the pass over refunds.
    Openings,
    /// Deletes old orders and records.
    Retention,
    /// Builds a sale anew that Redis has lost, in a recovery.
    Rebuild,
}

/// Result of one run of a pass, which is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Items dealt with.
    pub items: usize,
    /// True if the run has ended at its bound: the next one needs no pause.
    pub goes_on: bool,
}

impl Pass {
    /// All passes.
    pub const ALL: [Self; 13] = [
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
        Self::Retention,
        Self::Rebuild,
    ];

    /// Name of the pass.
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
            Self::Retention => "retention",
            Self::Rebuild => "rebuild",
        }
    }

    /// The pass of this name, if this version has it.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pass| pass.name() == name)
    }

    /// An operator's remedy for an item that this pass has postponed; `None` for a pass that never postpones.
    /// A bad entry of the log becomes a dead letter, and a sale that can't be compared is a finding.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Write | Self::TidyUp | Self::Numbers | Self::Reconcile | Self::Retention => None,
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
    fn every_pass_has_a_name_of_its_own_and_is_found_by_it() {
        for pass in Pass::ALL {
            assert_eq!(Pass::of_name(pass.name()), Some(pass));
        }
        assert_eq!(Pass::of_name("cook"), None);
    }
}
