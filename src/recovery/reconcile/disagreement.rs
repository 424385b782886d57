//! Disagreements between Redis and Postgres. `docs/reconcile.md` explains each, and what to do.

use std::fmt;

use crate::store::ids::CouponId;

/// Defines the kinds, their codes, and the list of codes.
macro_rules! kinds {
    ($($kind:ident = $code:literal,)+) => {
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
            /// All codes. `docs/reconcile.md` has a heading for each.
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
    NotReleased = "not_released",
    BuyerMissing = "buyer_missing",
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    pub kind: Kind,
    pub coupon: CouponId,
    words: String,
}

impl Disagreement {
    /// A disagreement about a sale; `words` follow the name of the coupon.
    pub(super) fn of(coupon: CouponId, kind: Kind, words: impl fmt::Display) -> Self {
        Self { kind, coupon, words: format!("coupon {coupon}: {words}") }
    }

    /// The kind, for programs.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// Whether Redis has lost the sale, or buyers of it.
    pub fn is_loss(&self) -> bool {
        matches!(self.kind, Kind::SaleMissing | Kind::ShardsMissing)
    }

    /// Whether a recovery of the lane repairs this: Redis has other buyers than Postgres, even after a second check, or
    /// another revision.
    pub fn closes_its_lane(&self) -> bool {
        matches!(
            self.kind,
            Kind::OrderLost | Kind::NotReleased | Kind::BuyerMissing | Kind::RevisionDiffers
        )
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
