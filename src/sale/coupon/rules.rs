//! Rules of changes: which are allowed, and why others are refused. No store in sight: `changes.rs` brings the values
//! and writes the results.

use chrono::{DateTime, Utc};

use crate::base::limits;
use crate::sale::audit::Action;
use crate::sale::coupon::input::{CouponEdit, Restock};
use crate::sale::coupon::model::SaleTerms;
use crate::sale::coupon::model::{CouponKind, CouponRow, CouponState};

/// A requested change.
#[derive(Clone, Debug)]
pub enum Change {
    /// Other words, prices, window or stock.
    Edit(CouponEdit),
    /// Pause, resume or end; with a revision, only if the coupon still has that one.
    Move(CouponState, Option<i64>),
    /// More units.
    Restock(Restock),
    /// The end, if the window still ends at this time, which has passed.
    EndClosed(DateTime<Utc>),
}

impl Change {
    /// The action, as the book of changes calls it.
    pub(super) fn action(&self) -> Action {
        match self {
            Self::Edit(_) => Action::EditCoupon,
            Self::Move(CouponState::Paused, _) => Action::PauseCoupon,
            Self::Move(CouponState::Active, _) => Action::ResumeCoupon,
            Self::Move(CouponState::Ended, _) | Self::EndClosed(_) => Action::EndCoupon,
            Self::Restock(_) => Action::RestockCoupon,
        }
    }
}

/// Refusal of a change, in words for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such coupon.
    #[error("there is no coupon with this id")]
    NotFound,
    /// No way leads from this state to that one.
    #[error("the coupon is {}, and from there it can't become {}", from.as_str(), to.as_str())]
    InvalidTransition {
        /// Present state.
        from: CouponState,
        /// Requested state.
        to: CouponState,
    },
    /// The coupon has ended, which is final.
    #[error("the coupon has ended, and nothing about it can be changed any more")]
    Ended,
    /// The coupon has another revision than the edit was made for.
    #[error(
        "the coupon has been changed and has revision {revision} by now: read it, and edit that"
    )]
    RevisionConflict {
        /// Revision of the coupon.
        revision: i64,
    },
    /// A regular coupon has no sale.
    #[error("a regular coupon has no `sale`")]
    NoSale,
    /// Fewer units than are on offer.
    #[error("{total} units are on offer, and there can only be more; end the coupon to sell fewer")]
    StockOnlyGrows {
        /// Units on offer.
        total: i64,
    },
    /// More units than a sale can have.
    #[error("a sale has at most {} units", limits::TOTAL_MAX)]
    StockTooLarge,
    /// The window would end before it opens.
    #[error("the window has to end after it opens")]
    EmptyWindow,
    /// The window would end in the past.
    #[error("has passed: to end the sale, end the coupon")]
    WindowPast,
    /// The key belongs to a restock with another number of units.
    #[error("this key has added {units} units before; give another restock a key of its own")]
    RestockKeyUsed {
        /// Units that the key added.
        units: i64,
    },
}

/// A coupon and its sale, if it has one.
type Values = (CouponRow, Option<SaleTerms>);

/// The coupon in this state. A repeat, which changes nothing, is never refused for the effects of its first time.
pub(super) fn moved(
    row: &CouponRow,
    to: CouponState,
    revision: Option<i64>,
) -> Result<CouponRow, Refusal> {
    if row.state == CouponState::Ended && to != CouponState::Ended {
        return Err(Refusal::InvalidTransition { from: row.state, to });
    }
    if row.state != to && revision.is_some_and(|revision| revision != row.revision) {
        return Err(Refusal::RevisionConflict { revision: row.revision });
    }
    Ok(CouponRow { state: to, ..row.clone() })
}

/// The coupon, edited at this time. A repeat, which changes nothing, is never refused for the effects of its first time.
pub(super) fn edited(
    row: &CouponRow,
    terms: Option<&SaleTerms>,
    edit: &CouponEdit,
    now: DateTime<Utc>,
) -> Result<Values, Refusal> {
    let new_terms = match (&edit.sale, terms) {
        (Some(_), None) => return Err(Refusal::NoSale),
        (Some(sale), Some(terms)) => Some(sale.of(terms)),
        (None, terms) => terms.cloned(),
    };
    let new_row = edit.of(row);
    if new_row == *row && new_terms.as_ref() == terms {
        return Ok((new_row, new_terms));
    }
    if row.state == CouponState::Ended {
        return Err(Refusal::Ended);
    }
    if edit.revision.is_some_and(|revision| revision != row.revision) {
        return Err(Refusal::RevisionConflict { revision: row.revision });
    }
    if let (Some(new), Some(old)) = (&new_terms, terms) {
        if new.total < old.total {
            return Err(Refusal::StockOnlyGrows { total: old.total });
        }
        // Redis counts milliseconds.
        if new.closes_at.timestamp_millis() <= new.opens_at.timestamp_millis() {
            return Err(Refusal::EmptyWindow);
        }
        let same_window = (new.opens_at, new.closes_at) == (old.opens_at, old.closes_at);
        if !same_window && new.closes_at <= now {
            return Err(Refusal::WindowPast);
        }
    }
    Ok((new_row, new_terms))
}

/// The coupon with more units.
pub(super) fn restocked(
    row: &CouponRow,
    terms: Option<&SaleTerms>,
    restock: &Restock,
) -> Result<Values, Refusal> {
    let Some(terms) = terms.filter(|_| row.kind == CouponKind::Flash) else {
        return Err(Refusal::NoSale);
    };
    if row.state == CouponState::Ended {
        return Err(Refusal::Ended);
    }
    let total = terms.total + restock.units;
    if total > limits::TOTAL_MAX {
        return Err(Refusal::StockTooLarge);
    }
    Ok((row.clone(), Some(SaleTerms { total, ..terms.clone() })))
}

/// The coupon, ended if its window still ends at this time.
pub(super) fn ended_if_closed(
    row: &CouponRow,
    terms: Option<&SaleTerms>,
    at: DateTime<Utc>,
) -> CouponRow {
    let closed = terms.is_some_and(|terms| terms.closes_at == at);
    let state = if closed { CouponState::Ended } else { row.state };
    CouponRow { state, ..row.clone() }
}
