//! The passes of the worker by name, and an operator's remedy for each item that one has postponed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pass of the worker, as metrics, log lines and the table `postponed` call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
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
    #[serde(rename = "warm_up")]
    #[value(name = "warm_up")]
    Load,
    /// Removes sales that are over from Redis.
    Archive,
    /// Applies changes of coupons to Redis.
    Changes,
    /// Looks for sales of which Redis has an older revision.
    Revisions,
    /// Returns units of closed orders to stock.
    StockReturns,
    /// Takes paid orders off their users' lists of unpaid orders.
    Places,
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

/// Kind of the items of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A coupon.
    Coupon,
    /// An order.
    Order,
    /// A payment.
    Payment,
}

impl ItemKind {
    /// Name of the kind in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Coupon => "coupon",
            Self::Order => "order",
            Self::Payment => "payment",
        }
    }
}

impl Pass {
    /// All passes.
    pub const ALL: [Self; 15] = [
        Self::Write,
        Self::TidyUp,
        Self::Numbers,
        Self::Reconcile,
        Self::Load,
        Self::Archive,
        Self::Changes,
        Self::Revisions,
        Self::StockReturns,
        Self::Places,
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
            Self::Revisions => "revisions",
            Self::StockReturns => "stock_returns",
            Self::Places => "places",
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

    /// Kind of the items that this pass postpones, and an operator's remedy; `None` for a pass that never postpones.
    /// A bad entry of the log becomes a dead letter, and a sale that can't be compared is a finding.
    pub fn postpones(self) -> Option<(ItemKind, &'static str)> {
        match self {
            Self::Write | Self::TidyUp | Self::Numbers => None,
            Self::Reconcile | Self::Revisions => None,
            Self::Retention => None,
            Self::Load => Some((
                ItemKind::Coupon,
                "The sale can't be loaded, and claims on it fail: look at its keys in Redis, which nothing but this service may write; `GET /v1/coupons/ID/progress` tells what both stores have.",
            )),
            Self::Archive => Some((
                ItemKind::Coupon,
                "The sale is over and can't be compared, or Redis has lost it: `POST /v1/coupons/ID/archive` says what stands in the way, and with `accept_loss` gives that up.",
            )),
            Self::Changes => Some((
                ItemKind::Coupon,
                "A change of the coupon is decided and not in force: claims go by the old values. `flash-sale reconcile` names what is wrong with the sale in Redis. If the coupon has ended, `POST /v1/coupons/ID/archive` with `accept_loss` gives up what is there.",
            )),
            Self::StockReturns => Some((
                ItemKind::Coupon,
                "Units of closed orders can't come back to the sale: `flash-sale reconcile` names what is wrong with it in Redis. If the sale is over, `POST /v1/coupons/ID/archive` with `accept_loss` ends the wait.",
            )),
            Self::Places => Some((
                ItemKind::Coupon,
                "Users who have paid are still counted as holding unpaid orders: look at the key of unpaid orders of the coupon's lane, which has to be a hash; ARCHITECTURE.md has its name.",
            )),
            Self::Expiry => Some((
                ItemKind::Order,
                "The order stays unpaid and keeps its unit, because Postgres refuses to close it: if the error names `sold`, `flash-sale reconcile --repair` counts it again; if it names a lock, end the session that keeps a row of the sale.",
            )),
            Self::Rebuild => Some((
                ItemKind::Coupon,
                "Redis has lost the sale, which can't be built from Postgres and stays closed, alone: the error names the obstacle. Each try closes the sale's lane for a moment, and the first one after the cause has gone opens the sale. If the sale is over, `POST /v1/coupons/ID/archive` with `accept_loss` gives up what is lost.",
            )),
            Self::Openings => Some((
                ItemKind::Order,
                "If the gateway gives no answer about a payment of the order, ask its staff what became of it: the payer may have paid. If Postgres refuses to note the answer, the error names the value; if it names `sold`, `flash-sale reconcile --repair` counts it again.",
            )),
            Self::Refunds => Some((
                ItemKind::Payment,
                "If the gateway refuses the refund, settle that with the gateway, then POST /v1/payments/{id}/close says so here. If Postgres refuses to close the order and the error names `sold`, `flash-sale reconcile --repair` counts it again.",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn all_passes_are_listed() {
        assert_eq!(Pass::ALL, Pass::value_variants());
    }

    #[test]
    fn every_pass_has_a_name_of_its_own_and_is_found_by_it() {
        for pass in Pass::ALL {
            assert_eq!(Pass::of_name(pass.name()), Some(pass));
            let in_json = serde_json::to_value(pass).expect("it is a word");
            assert_eq!(in_json, pass.name());
        }
        assert_eq!(Pass::of_name("cook"), None);
    }

    #[test]
    fn what_to_do_is_a_sentence() {
        for (_, what_to_do) in Pass::ALL.into_iter().filter_map(Pass::postpones) {
            assert!(what_to_do.ends_with('.') && what_to_do.len() > 40, "{what_to_do}");
        }
    }

    #[test]
    fn kinds_are_named_as_in_json_and_passes_that_postpone_have_one() {
        for kind in [ItemKind::Coupon, ItemKind::Order, ItemKind::Payment] {
            assert_eq!(serde_json::to_value(kind).expect("a word"), kind.as_str());
        }
        let of = |kind| {
            let passes = Pass::ALL.into_iter();
            let passes = passes.filter(|pass| pass.postpones().map(|(of, _)| of) == kind);
            passes.map(Pass::name).collect::<Vec<_>>()
        };
        let orders = ["expiry", "openings"];
        assert_eq!(of(Some(ItemKind::Order)), orders);
        assert_eq!(of(Some(ItemKind::Payment)), ["refunds"]);
        let never = ["write", "tidy_up", "numbers", "reconcile", "revisions", "retention"];
        assert_eq!(of(None), never);
    }
}
