//! Disagreements between Redis and Postgres, and the meaning of each. `docs/reconcile.md` has the remedies.

use std::fmt;

use crate::sale::ids::{CouponId, Lane, OrderId, UserId};
use crate::sale::order::model::OrderStatus;

/// A disagreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// Redis doesn't hold a sale that it was given.
    SaleMissing { coupon: CouponId },
    /// Redis holds a sale of which Postgres knows nothing.
    SaleOrphaned { coupon: CouponId },
    /// Redis doesn't hold so many shards of a sale's buyers.
    ShardsMissing { coupon: CouponId, shards: i64 },
    /// A value of the sale in Redis can't be read, so the sale can't be compared.
    SaleUnreadable { coupon: CouponId, error: String },
    /// total ≠ stock + buyers.
    NotConserved { coupon: CouponId, total: i64, stock: i64, buyers: i64 },
    /// stock < 0.
    NegativeStock { coupon: CouponId, stock: i64 },
    /// Redis and Postgres have different totals under the same revision.
    TotalDiffers { coupon: CouponId, redis: i64, postgres: i64 },
    /// Redis and Postgres have another state or window under the same revision.
    TermsDiffer { coupon: CouponId, what: &'static str, redis: String, postgres: String },
    /// A change has not reached Redis for a while, or Postgres has lost one.
    RevisionDiffers { coupon: CouponId, redis: i64, postgres: i64 },
    /// Redis and Postgres have different epochs.
    EpochDiffers { coupon: CouponId, redis: i64, postgres: i64 },
    /// More live orders than units.
    Oversold { coupon: CouponId, live_orders: usize, total: i64 },
    /// `sold` doesn't count the live orders.
    SoldMiscounted { coupon: CouponId, sold: i64, live_orders: usize },
    /// A buyer whose order is nowhere.
    OrderLost { coupon: CouponId, user: UserId, order: OrderId },
    /// A buyer whose order is closed, with nothing under way that would give the unit back.
    NotGivenBack { coupon: CouponId, user: UserId, order: OrderId },
    /// A live order whose user is no buyer in Redis, or a buyer under another id.
    BuyerMissing { coupon: CouponId, user: UserId, order: OrderId, in_redis: Option<OrderId> },
    /// Orders of acknowledged entries that are neither row nor dead letter.
    AcknowledgedUnwritten { lane: Lane, acknowledged: u64, accounted: u64 },
    /// A pending entry that the log doesn't have any more.
    PendingDeleted { lane: Lane, entry_id: String },
    /// A fault of the numbers of promised orders.
    Numbering(Numbering),
    /// The order log of a lane can't be read, so its claims can't be compared.
    LogUnreadable { lane: Lane, error: String },
    /// A fault of the lists of unpaid orders.
    Listing(Listing),
}

/// Codes of the variants, and their list: a variant without a code doesn't compile, and no code is left out of the list.
macro_rules! codes {
    ($($of:ident { $($variant:ident = $code:literal,)+ $(..$part:ident,)* })+) => {
        impl Disagreement {
            /// All codes; `docs/reconcile.md` has a heading for each.
            pub const CODES: [&str; [$($($code),+),+].len()] = [$($($code),+),+];
        }

        $(impl $of {
            /// Kind of the disagreement, for programs.
            pub fn code(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $code,)+
                    $(Self::$part(part) => part.code(),)*
                }
            }
        })+
    };
}

codes! {
    Disagreement {
        SaleMissing = "sale_missing",
        SaleOrphaned = "sale_orphaned",
        ShardsMissing = "shards_missing",
        SaleUnreadable = "sale_unreadable",
        NotConserved = "not_conserved",
        NegativeStock = "negative_stock",
        TotalDiffers = "total_differs",
        TermsDiffer = "terms_differ",
        RevisionDiffers = "revision_differs",
        EpochDiffers = "epoch_differs",
        Oversold = "oversold",
        SoldMiscounted = "sold_miscounted",
        OrderLost = "order_lost",
        NotGivenBack = "not_given_back",
        BuyerMissing = "buyer_missing",
        AcknowledgedUnwritten = "acknowledged_unwritten",
        PendingDeleted = "pending_deleted",
        LogUnreadable = "log_unreadable",
        ..Numbering,
        ..Listing,
    }
    Numbering {
        Missing = "numbers_missing",
        Repeated = "numbers_repeated",
    }
    Listing {
        NotFreed = "place_not_freed",
        Missing = "place_missing",
        Unreadable = "places_unreadable",
    }
}

impl Disagreement {
    /// Whether Redis has lost the sale, or buyers of it: such a sale never agrees again by itself.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::SaleMissing { .. } | Self::ShardsMissing { .. })
    }

    /// Coupon of the disagreement; `None` for a whole lane.
    pub fn coupon(&self) -> Option<CouponId> {
        if let Self::Listing(listing) = self {
            return listing.coupon();
        }
        match *self {
            Self::SaleMissing { coupon }
            | Self::SaleOrphaned { coupon }
            | Self::ShardsMissing { coupon, .. }
            | Self::SaleUnreadable { coupon, .. }
            | Self::NotConserved { coupon, .. }
            | Self::NegativeStock { coupon, .. }
            | Self::TotalDiffers { coupon, .. }
            | Self::TermsDiffer { coupon, .. }
            | Self::RevisionDiffers { coupon, .. }
            | Self::EpochDiffers { coupon, .. }
            | Self::Oversold { coupon, .. }
            | Self::SoldMiscounted { coupon, .. }
            | Self::OrderLost { coupon, .. }
            | Self::NotGivenBack { coupon, .. }
            | Self::BuyerMissing { coupon, .. } => Some(coupon),
            Self::AcknowledgedUnwritten { .. }
            | Self::PendingDeleted { .. }
            | Self::Numbering(_)
            | Self::LogUnreadable { .. }
            | Self::Listing(_) => None,
        }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SaleMissing { coupon } => write!(
                f,
                "coupon {coupon}: was loaded into Redis and is missing there. Redis has lost data; claims are refused until the sale is rebuilt"
            ),
            Self::ShardsMissing { coupon, shards } => write!(
                f,
                "coupon {coupon}: {shards} of its shards of buyers are missing. Redis has lost data; claims of users who belong there are refused"
            ),
            Self::SaleUnreadable { coupon, error } => write!(
                f,
                "coupon {coupon}: it can't be compared, because a part of it in Redis can't be read ({error}). Its other faults aren't seen"
            ),
            Self::NotConserved { coupon, total, stock, buyers } => write!(
                f,
                "coupon {coupon}: total {total} is not stock {stock} + buyers {buyers}. Units have been lost or made up in Redis"
            ),
            Self::NegativeStock { coupon, stock } => {
                write!(f, "coupon {coupon}: stock is {stock}. Redis has sold more than there was")
            }
            Self::TotalDiffers { coupon, redis, postgres } => write!(
                f,
                "coupon {coupon}: Redis offers {redis} units in all, Postgres {postgres}. A change has reached only one of them"
            ),
            Self::TermsDiffer { coupon, what, redis, postgres } => write!(
                f,
                "coupon {coupon}: its {what} is {redis} in Redis and {postgres} in Postgres. Claims go by Redis"
            ),
            Self::RevisionDiffers { coupon, redis, postgres } if redis < postgres => write!(
                f,
                "coupon {coupon}: Redis has revision {redis}, Postgres {postgres}. A change doesn't get through to Redis; claims go by the older one"
            ),
            Self::RevisionDiffers { coupon, redis, postgres } => write!(
                f,
                "coupon {coupon}: Redis has revision {redis}, Postgres only {postgres}. Postgres has lost a change"
            ),
            Self::EpochDiffers { coupon, redis, postgres } => write!(
                f,
                "coupon {coupon}: its epoch is {redis} in Redis and {postgres} in Postgres. Claims on it are refused"
            ),
            Self::Oversold { coupon, live_orders, total } => write!(
                f,
                "coupon {coupon}: {live_orders} live orders for {total} units. It is oversold"
            ),
            Self::SoldMiscounted { coupon, sold, live_orders } => write!(
                f,
                "coupon {coupon}: Postgres counts {sold} as sold, but has {live_orders} live orders. {}",
                harm_of_miscount(*sold, *live_orders)
            ),
            Self::OrderLost { coupon, user, order } => write!(
                f,
                "coupon {coupon}: user {user} was promised order {order}, which is neither in Postgres nor in a dead letter nor on its way. It is lost"
            ),
            Self::NotGivenBack { coupon, user, order } => write!(
                f,
                "coupon {coupon}: order {order} of user {user} is closed, and nothing gives its unit back. It can't be sold, and the user can't claim again"
            ),
            Self::BuyerMissing { coupon, user, order, in_redis } => write!(
                f,
                "coupon {coupon}: user {user} has order {order}, but {}",
                harm_of_missing(*in_redis)
            ),
            Self::SaleOrphaned { .. }
            | Self::AcknowledgedUnwritten { .. }
            | Self::PendingDeleted { .. }
            | Self::Numbering(_)
            | Self::LogUnreadable { .. }
            | Self::Listing(_) => self.fmt_of_others(f),
        }
    }
}

impl Disagreement {
    /// Fault of a whole lane, or of a sale that only Redis has.
    fn fmt_of_others(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SaleOrphaned { coupon } => write!(
                f,
                "coupon {coupon}: Redis has a sale under this id of which Postgres knows nothing. Its buyers have no orders"
            ),
            Self::AcknowledgedUnwritten { lane, acknowledged, accounted } => write!(
                f,
                "lane {lane}: {acknowledged} orders of the order log were acknowledged, but only {accounted} are rows or dead letters. The others are lost"
            ),
            Self::PendingDeleted { lane, entry_id } => write!(
                f,
                "lane {lane}: entry {entry_id} was deleted from the order log before it was written. Its order is lost unless a buyer still names it"
            ),
            Self::Numbering(numbering) => write!(f, "{numbering}"),
            Self::LogUnreadable { lane, error } => write!(
                f,
                "lane {lane}: its order log can't be read ({error}). No claim of this lane is written, and none can be accepted"
            ),
            Self::Listing(listing) => write!(f, "{listing}"),
            _ => Ok(()),
        }
    }
}

/// Kinds of faults of the numbers of promised orders in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// No entry has these numbers, which lie between those of two entries.
    Missing { lane: Lane, from: u64, to: u64 },
    /// Two entries have these numbers.
    Repeated { lane: Lane, from: u64, to: u64 },
}

impl fmt::Display for Numbering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { lane, from, to } => write!(
                f,
                "lane {lane}: the order log lacks the promised orders with the numbers {from} to {to}. They are lost unless buyers still name them"
            ),
            Self::Repeated { lane, from, to } => write!(
                f,
                "lane {lane}: the order log has the numbers {from} to {to} twice. Redis went back in time and has promised them anew"
            ),
        }
    }
}

/// Kinds of faults of a list of unpaid orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// A list names an order that isn't unpaid, and no pass removes it.
    NotFreed {
        lane: Lane,
        user: UserId,
        order: OrderId,
        /// The row; `None` if this user has none.
        row: Option<(CouponId, OrderStatus)>,
    },
    /// An unpaid order that stands on no list.
    Missing { coupon: CouponId, user: UserId, order: OrderId },
    /// The lists of a lane can't be read.
    Unreadable { lane: Lane, error: String },
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFreed { user, order, row: Some((coupon, status)), .. } => write!(
                f,
                "coupon {coupon}: order {order} of user {user} is {}, and still on the user's list of unpaid orders. The user may be refused too early",
                status.as_str()
            ),
            Self::NotFreed { lane, user, order, row: None } => write!(
                f,
                "lane {lane}: the list of unpaid orders of user {user} names order {order}, which the user doesn't have. The user may be refused too early"
            ),
            Self::Missing { coupon, user, order } => write!(
                f,
                "coupon {coupon}: order {order} of user {user} is unpaid, and not on the user's list of unpaid orders. The user may hold more than --unpaid-orders-max"
            ),
            Self::Unreadable { lane, error } => write!(
                f,
                "lane {lane}: its lists of unpaid orders can't be read ({error}). With --unpaid-orders-max its claims are refused"
            ),
        }
    }
}

fn harm_of_miscount(sold: i64, live_orders: usize) -> &'static str {
    if usize::try_from(sold).is_ok_and(|sold| sold > live_orders) {
        "The last buyers would end as dead letters"
    } else {
        "The second lock on overselling doesn't hold"
    }
}

fn harm_of_missing(in_redis: Option<OrderId>) -> String {
    match in_redis {
        None => "is no buyer in Redis. They could claim twice".to_owned(),
        Some(other) => {
            format!("order {other} in Redis. One of them is not the one that was promised")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: i64) -> UserId {
        UserId::new(id).expect("a positive number")
    }

    fn order(id: i64) -> OrderId {
        OrderId::new(id).expect("a positive number")
    }

    /// A finding, its code, the beginning of its words, and a later part of them.
    type Told = (Disagreement, &'static str, &'static str, &'static str);

    /// Findings about the sale itself; their words begin behind the coupon.
    fn of_terms(coupon: CouponId) -> Vec<Told> {
        use Disagreement::{
            EpochDiffers, NegativeStock, NotConserved, RevisionDiffers, SaleMissing,
            SaleUnreadable, ShardsMissing, TermsDiffer, TotalDiffers,
        };
        let (redis, postgres, error) =
            ("paused".to_owned(), "active".to_owned(), "junk".to_owned());
        vec![
            (SaleMissing { coupon }, "sale_missing", "was loaded into Redis", "is missing there"),
            (
                ShardsMissing { coupon, shards: 3 },
                "shards_missing",
                "3 of its shards",
                "are missing",
            ),
            (SaleUnreadable { coupon, error }, "sale_unreadable", "it can't be compared", "(junk)"),
            (
                NotConserved { coupon, total: 9, stock: 4, buyers: 3 },
                "not_conserved",
                "total 9 is not stock 4",
                "+ buyers 3",
            ),
            (
                NegativeStock { coupon, stock: -2 },
                "negative_stock",
                "stock is -2",
                "sold more than",
            ),
            (
                TotalDiffers { coupon, redis: 5, postgres: 6 },
                "total_differs",
                "Redis offers 5 units",
                "Postgres 6",
            ),
            (
                TermsDiffer { coupon, what: "state", redis, postgres },
                "terms_differ",
                "its state is paused in Redis",
                "active in Postgres",
            ),
            (
                RevisionDiffers { coupon, redis: 1, postgres: 2 },
                "revision_differs",
                "Redis has revision 1, Postgres 2",
                "doesn't get through",
            ),
            (
                RevisionDiffers { coupon, redis: 3, postgres: 2 },
                "revision_differs",
                "Redis has revision 3, Postgres only 2",
                "lost a change",
            ),
            (
                EpochDiffers { coupon, redis: 1, postgres: 2 },
                "epoch_differs",
                "its epoch is 1 in Redis",
                "2 in Postgres",
            ),
        ]
    }

    /// Findings about its orders and buyers.
    fn of_orders(coupon: CouponId) -> Vec<Told> {
        use Disagreement::{BuyerMissing, NotGivenBack, OrderLost, Oversold, SoldMiscounted};
        let (user, order) = (user(7), order(8));
        let missing = |in_redis| BuyerMissing { coupon, user, order, in_redis };
        let (lane, row) = (Lane::numbered(2), Some((coupon, OrderStatus::Paid)));
        vec![
            (
                Oversold { coupon, live_orders: 6, total: 5 },
                "oversold",
                "6 live orders for 5 units",
                "oversold",
            ),
            (
                SoldMiscounted { coupon, sold: 6, live_orders: 5 },
                "sold_miscounted",
                "Postgres counts 6 as sold, but has 5",
                "The last buyers",
            ),
            (
                SoldMiscounted { coupon, sold: 4, live_orders: 5 },
                "sold_miscounted",
                "Postgres counts 4 as sold, but has 5",
                "The second lock",
            ),
            (
                SoldMiscounted { coupon, sold: -1, live_orders: 0 },
                "sold_miscounted",
                "Postgres counts -1 as sold",
                "The second lock",
            ),
            (
                OrderLost { coupon, user, order },
                "order_lost",
                "user 7 was promised order 8",
                "It is lost",
            ),
            (
                NotGivenBack { coupon, user, order },
                "not_given_back",
                "order 8 of user 7 is closed",
                "gives its unit back",
            ),
            (missing(None), "buyer_missing", "user 7 has order 8, but is no buyer", "claim twice"),
            (
                missing(OrderId::new(9).ok()),
                "buyer_missing",
                "user 7 has order 8, but order 9 in Redis",
                "promised",
            ),
            (
                Disagreement::Listing(Listing::NotFreed { lane, user, order, row }),
                "place_not_freed",
                "order 8 of user 7 is paid",
                "still on the user's list",
            ),
            (
                Disagreement::Listing(Listing::Missing { coupon, user, order }),
                "place_missing",
                "order 8 of user 7 is unpaid",
                "not on the user's list",
            ),
        ]
    }

    #[test]
    fn a_finding_about_a_sale_has_its_code_its_coupon_and_its_words() {
        let coupon = CouponId::compose(5, 1);
        for (found, code, begins, has) in of_terms(coupon).into_iter().chain(of_orders(coupon)) {
            let words = found.to_string();
            assert!(
                words.starts_with(&format!("coupon {coupon}: {begins}")) && words.contains(has),
                "{words}"
            );
            assert_eq!((found.code(), found.coupon()), (code, Some(coupon)), "{words}");
            let is_loss = ["sale_missing", "shards_missing"].contains(&code);
            assert_eq!(found.is_loss(), is_loss, "{words}");
            assert!(Disagreement::CODES.contains(&code), "{code}");
        }
    }

    #[test]
    fn a_finding_about_a_lane_has_its_code_no_coupon_and_its_words() {
        let (lane, error) = (Lane::numbered(2), "junk".to_owned());
        let (entry_id, user, order) = ("7-1".to_owned(), user(7), order(8));
        let row = None;
        for (found, code, begins, has) in [
            (
                Disagreement::AcknowledgedUnwritten { lane, acknowledged: 9, accounted: 4 },
                "acknowledged_unwritten",
                "9 orders of the order log",
                "only 4 are rows",
            ),
            (
                Disagreement::PendingDeleted { lane, entry_id },
                "pending_deleted",
                "entry 7-1 was deleted",
                "before it was written",
            ),
            (
                Disagreement::Numbering(Numbering::Missing { lane, from: 3, to: 5 }),
                "numbers_missing",
                "the order log lacks",
                "numbers 3 to 5",
            ),
            (
                Disagreement::Numbering(Numbering::Repeated { lane, from: 3, to: 5 }),
                "numbers_repeated",
                "the order log has the numbers 3 to 5 twice",
                "promised them anew",
            ),
            (
                Disagreement::LogUnreadable { lane, error: error.clone() },
                "log_unreadable",
                "its order log can't be read (junk)",
                "none can be accepted",
            ),
            (
                Disagreement::Listing(Listing::NotFreed { lane, user, order, row }),
                "place_not_freed",
                "the list of unpaid orders of user 7 names order 8",
                "doesn't have",
            ),
            (
                Disagreement::Listing(Listing::Unreadable { lane, error }),
                "places_unreadable",
                "its lists of unpaid orders can't be read (junk)",
                "its claims are refused",
            ),
        ] {
            let words = found.to_string();
            assert!(
                words.starts_with(&format!("lane 2: {begins}")) && words.contains(has),
                "{words}"
            );
            assert_eq!(
                (found.code(), found.coupon(), found.is_loss()),
                (code, None, false),
                "{words}"
            );
            assert!(Disagreement::CODES.contains(&code), "{code}");
        }
    }
}
