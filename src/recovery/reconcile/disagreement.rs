//! Disagreements between Redis and Postgres. `docs/reconcile.md` has the meaning of each, and the remedies.

use std::fmt;

use crate::store::ids::CouponId;

/// Kinds, their codes, and the list of codes.
macro_rules! kinds {
    ($($kind:ident = $code:literal,)+) => {
        /// Kind of a disagreement.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = $code] $kind),+
        }

        impl Kind {
            pub(super) fn code(self) -> &'static str {
                match self {
                    $(Self::$kind => $code),+
                }
            }
        }

        impl Disagreement {
            /// All codes; `docs/reconcile.md` has a heading for each.
            pub const CODES: [&str; [$($code),+].len()] = [$($code),+];
        }
    };
}

kinds! {
    SaleMissing = "sale_missing",
    SaleOrphaned = "sale_orphaned",
    ShardsMissing = "shards_missing",
    SaleUnreadable = "sale_unreadable",
    NotConserved = "not_conserved",
    NegativeStock = "negative_stock",
    TermsDiffer = "terms_differ",
    RevisionDiffers = "revision_differs",
    EpochDiffers = "epoch_differs",
    Oversold = "oversold",
    SoldMiscounted = "sold_miscounted",
    OrderLost = "order_lost",
    NotGivenBack = "not_given_back",
    BuyerMissing = "buyer_missing",
}

/// A disagreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Its kind.
    pub kind: Kind,
    /// The coupon.
    pub coupon: CouponId,
    words: String,
}

impl Disagreement {
    /// A disagreement about a sale, in words behind the name of the coupon.
    pub(super) fn of(coupon: CouponId, kind: Kind, words: impl fmt::Display) -> Self {
        Self { kind, coupon, words: format!("coupon {coupon}: {words}") }
    }

    /// Kind of the disagreement, for programs.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// Whether Redis has lost the sale, or buyers of it.
    pub fn is_loss(&self) -> bool {
        matches!(self.kind, Kind::SaleMissing | Kind::ShardsMissing)
    }

    /// Whether a recovery of the lane puts this right: Redis has other buyers than Postgres (read again, the difference was
    /// still there), or another revision.
    pub fn closes_its_lane(&self) -> bool {
        matches!(
            self.kind,
            Kind::OrderLost | Kind::NotGivenBack | Kind::BuyerMissing | Kind::RevisionDiffers
        )
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
