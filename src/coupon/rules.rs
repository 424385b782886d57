//! Rules of changes: which ones are allowed, and why others are refused. No store is used here: `changes.rs` brings the
//! values and writes the results.

use chrono::{DateTime, Utc};

use crate::base::limits;
use crate::coupon::input::{CouponEdit, Restock};
use crate::coupon::model::SaleTerms;
use crate::coupon::model::{CouponKind, CouponRow, CouponState};
use crate::store::audit::Action;

#[derive(Clone, Debug)]
pub enum Change {
    /// Other words, prices, window or total.
    Edit(CouponEdit),
    /// Pause, resume or end; with a revision, only if the coupon still has that one.
    Move(CouponState, Option<i64>),
    Restock(Restock),
    /// The end, if the window still ends at this time, which has passed.
    EndClosed(DateTime<Utc>),
}

impl Change {
    /// The action, as the audit log calls it.
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
    #[error("there is no coupon with this id")]
    NotFound,
    /// The coupon can't go from this state to that one.
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
        /// Present revision.
        revision: i64,
    },
    #[error("a regular coupon has no `sale`")]
    NoSale,
    /// The edit has fewer units than are on offer.
    #[error("{total} units are on offer, and there can only be more; end the coupon to sell fewer")]
    StockOnlyGrows {
        /// Units on offer.
        total: i64,
    },
    /// The sale would have more than [`limits::TOTAL_MAX`] units.
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
        /// Units that the key has added.
        units: i64,
    },
}

/// A coupon and its sale, if it has one.
type Values = (CouponRow, Option<SaleTerms>);

/// The coupon in this state. A repeat, which changes nothing, is never refused for what its first time has changed.
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

/// The coupon, edited at this time. A repeat, which changes nothing, is never refused for what its first time has
/// changed.
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

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::coupon::input::SaleEdit;

    fn row(kind: CouponKind, state: CouponState) -> CouponRow {
        let text = |text: &str| text.to_owned();
        CouponRow {
            kind,
            title: text("t"),
            sub_title: text("s"),
            rules: text("r"),
            pay_cents: 1,
            currency: text("CNY"),
            value_cents: 2,
            state,
            revision: 5,
        }
    }

    fn at(ms: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds(ms)
    }

    /// A sale of 100 units from 1,000 ms to 9,000 ms.
    fn terms() -> SaleTerms {
        SaleTerms { total: 100, opens_at: at(1_000), closes_at: at(9_000) }
    }

    #[test]
    fn a_state_is_left_for_another_one_unless_it_is_the_end_or_the_revision_another() {
        use CouponState::{Active, Ended, Paused};
        let conflict = Some(Refusal::RevisionConflict { revision: 5 });
        let final_from = |to| Some(Refusal::InvalidTransition { from: Ended, to });
        for (from, to, revision, refusal) in [
            (Active, Paused, None, None),
            (Active, Paused, Some(5), None),
            (Active, Paused, Some(4), conflict),
            (Active, Paused, Some(6), conflict),
            (Active, Ended, Some(5), None),
            (Active, Ended, Some(4), conflict),
            (Paused, Active, None, None),
            // A repeat.
            (Paused, Paused, Some(4), None),
            (Ended, Ended, Some(4), None),
            (Ended, Active, None, final_from(Active)),
            (Ended, Paused, Some(5), final_from(Paused)),
        ] {
            let row = row(CouponKind::Flash, from);
            let expected = match refusal {
                Some(refusal) => Err(refusal),
                None => Ok(CouponRow { state: to, ..row.clone() }),
            };
            assert_eq!(moved(&row, to, revision), expected, "{from:?} {to:?} {revision:?}");
        }
    }

    fn sale(total: i64, opens_at: i64, closes_at: i64) -> CouponEdit {
        let [opens_at, closes_at] = [opens_at, closes_at].map(|ms| Some(at(ms)));
        let sale = SaleEdit { total: Some(total), opens_at, closes_at };
        CouponEdit { sale: Some(sale), ..CouponEdit::default() }
    }

    #[test]
    fn an_edit_of_a_sale_adds_units_and_leaves_a_window_to_come() {
        let grows = Some(Refusal::StockOnlyGrows { total: 100 });
        for (edit, now, refusal) in [
            (sale(100, 1_000, 9_000), 0, None),
            (sale(101, 1_000, 9_000), 0, None),
            (sale(99, 1_000, 9_000), 0, grows),
            (sale(100, 1_000, 1_001), 0, None),
            (sale(100, 1_000, 1_000), 0, Some(Refusal::EmptyWindow)),
            (sale(100, 2_000, 1_000), 0, Some(Refusal::EmptyWindow)),
            (sale(100, 1_000, 8_000), 7_999, None),
            (sale(100, 1_000, 8_000), 8_000, Some(Refusal::WindowPast)),
            (sale(100, 1_000, 8_000), 8_001, Some(Refusal::WindowPast)),
            (sale(100, 2_000, 9_000), 9_000, Some(Refusal::WindowPast)),
            // The window is the same.
            (sale(101, 1_000, 9_000), 9_001, None),
        ] {
            let row = row(CouponKind::Flash, CouponState::Active);
            let found = edited(&row, Some(&terms()), &edit, at(now));
            let expected = match refusal {
                Some(refusal) => Err(refusal),
                None => Ok((row, Some(edit.sale.as_ref().expect("a sale").of(&terms())))),
            };
            assert_eq!(found, expected, "{edit:?} at {now}");
        }
        // Redis counts milliseconds.
        let mut short = sale(100, 1_000, 1_000);
        let closes_at = at(1_000) + TimeDelta::microseconds(900);
        short.sale.as_mut().expect("a sale").closes_at = Some(closes_at);
        let row = row(CouponKind::Flash, CouponState::Active);
        assert_eq!(edited(&row, Some(&terms()), &short, at(0)), Err(Refusal::EmptyWindow));
    }

    #[test]
    fn an_edit_is_refused_of_an_ended_coupon_or_another_revision_unless_it_is_a_repeat() {
        use CouponState::{Active, Ended};
        let conflict = Some(Refusal::RevisionConflict { revision: 5 });
        for (state, title, revision, refusal) in [
            (Active, "new", None, None),
            (Active, "new", Some(5), None),
            (Active, "new", Some(4), conflict),
            (Active, "t", Some(4), None),
            (Ended, "new", Some(5), Some(Refusal::Ended)),
            (Ended, "t", Some(4), None),
        ] {
            for terms in [None, Some(terms())] {
                let row = row(CouponKind::Regular, state);
                let title = title.to_owned();
                let edit =
                    CouponEdit { title: Some(title.clone()), revision, ..CouponEdit::default() };
                let expected = match refusal {
                    Some(refusal) => Err(refusal),
                    None => Ok((CouponRow { title, ..row.clone() }, terms.clone())),
                };
                let found = edited(&row, terms.as_ref(), &edit, at(0));
                assert_eq!(found, expected, "{state:?} {edit:?}");
            }
        }
        let regular = row(CouponKind::Regular, Active);
        assert_eq!(edited(&regular, None, &sale(1, 1, 2), at(0)), Err(Refusal::NoSale));
        // Other units alone make a change, too.
        let ended = row(CouponKind::Flash, Ended);
        let more = edited(&ended, Some(&terms()), &sale(101, 1_000, 9_000), at(0));
        assert_eq!(more, Err(Refusal::Ended));
    }

    #[test]
    fn units_are_added_to_a_sale_that_goes_on_up_to_the_largest_total() {
        use CouponKind::{Flash, Regular};
        use CouponState::{Active, Ended, Paused};
        let most = limits::TOTAL_MAX - 100;
        for (kind, state, has_terms, units, found) in [
            (Flash, Active, true, 7, Ok(107)),
            (Flash, Paused, true, 7, Ok(107)),
            (Flash, Active, true, most, Ok(limits::TOTAL_MAX)),
            (Flash, Active, true, most + 1, Err(Refusal::StockTooLarge)),
            (Flash, Ended, true, 7, Err(Refusal::Ended)),
            (Flash, Active, false, 7, Err(Refusal::NoSale)),
            (Regular, Active, true, 7, Err(Refusal::NoSale)),
        ] {
            let row = row(kind, state);
            let restock = Restock { key: "k".to_owned(), units };
            let terms = has_terms.then(terms);
            let expected = found.map(|total| {
                (row.clone(), terms.clone().map(|terms| SaleTerms { total, ..terms }))
            });
            assert_eq!(restocked(&row, terms.as_ref(), &restock), expected, "{state:?} {units}");
        }
    }

    #[test]
    fn a_coupon_is_ended_if_its_window_still_ends_at_that_time() {
        use CouponState::{Active, Ended, Paused};
        for (state, terms, closes_at, ended) in [
            (Active, Some(terms()), 9_000, Ended),
            (Paused, Some(terms()), 9_000, Ended),
            (Paused, Some(terms()), 9_001, Paused),
            (Active, None, 9_000, Active),
        ] {
            let row = row(CouponKind::Flash, state);
            let found = ended_if_closed(&row, terms.as_ref(), at(closes_at));
            assert_eq!(found, CouponRow { state: ended, ..row }, "{state:?} {closes_at}");
        }
    }
}
