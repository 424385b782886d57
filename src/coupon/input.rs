//! Bodies of administrators' requests, with their limits: a new coupon, an edit, a restock.

use chrono::{DateTime, SubsecRound, Utc};
use garde::Validate;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::base::limits;
use crate::coupon::model::SaleTerms;
use crate::coupon::model::{CouponKind, CouponRow};
use crate::coupon::values::{
    Cents, Currency, Headline, Line, RestockKey, Terms, Units, a_time_redis_can_count, headline,
    iso_4217, lines, one_line,
};

/// A coupon to be created.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(context(()))]
pub struct NewCoupon {
    /// Whether it has a sale.
    #[garde(custom(sale_matches_kind(&self.sale)))]
    pub kind: CouponKind,
    /// Headline, 1 to 200 characters, none of them a control character, and not only spaces.
    #[schema(value_type = Headline)]
    #[garde(length(chars, min = 1, max = 200), custom(headline))]
    pub title: String,
    /// Second line, up to 200 characters.
    #[serde(default)]
    #[schema(value_type = Line)]
    #[garde(length(chars, max = 200), custom(one_line))]
    pub sub_title: String,
    /// Terms, in words, up to 4,000 characters.
    #[serde(default)]
    #[schema(value_type = Terms)]
    #[garde(length(chars, max = 4_000), custom(lines))]
    pub rules: String,
    /// Price, in minor units.
    #[schema(value_type = Cents)]
    #[garde(range(min = 0, max = limits::CENTS_MAX))]
    pub pay_cents: i64,
    /// Currency of the price; CNY if none is given.
    #[serde(default = "cny")]
    #[schema(value_type = Currency)]
    #[garde(custom(iso_4217))]
    pub currency: String,
    /// Worth, in minor units.
    #[schema(value_type = Cents)]
    #[garde(range(min = 0, max = limits::CENTS_MAX))]
    pub value_cents: i64,
    /// The sale of the coupon: required for a flash coupon, not allowed for a regular one.
    #[garde(dive)]
    pub sale: Option<NewSale>,
}

/// The sale of a coupon to be created.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct NewSale {
    /// Units on offer, 1 or more.
    #[schema(minimum = 1, maximum = 100_000_000)]
    #[garde(range(min = 1, max = limits::TOTAL_MAX))]
    pub total: i64,
    /// Start of the window.
    #[garde(custom(a_time_redis_can_count))]
    pub opens_at: DateTime<Utc>,
    /// End of the window; not part of it.
    #[garde(custom(after(&self.opens_at)), custom(a_time_redis_can_count))]
    pub closes_at: DateTime<Utc>,
}

/// Changes to a coupon. Fields that are left out stay as they are.
#[derive(Clone, Debug, Default, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct CouponEdit {
    /// Edit only if the coupon still has this revision.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false, minimum = 1)]
    #[garde(range(min = 1))]
    pub revision: Option<i64>,
    /// Headline, 1 to 200 characters, none of them a control character, and not only spaces.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<Headline>, nullable = false)]
    #[garde(length(chars, min = 1, max = 200), inner(custom(headline)))]
    pub title: Option<String>,
    /// Second line, up to 200 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<Line>, nullable = false)]
    #[garde(length(chars, max = 200), inner(custom(one_line)))]
    pub sub_title: Option<String>,
    /// Terms, in words, up to 4,000 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<Terms>, nullable = false)]
    #[garde(length(chars, max = 4_000), inner(custom(lines)))]
    pub rules: Option<String>,
    /// Price of claims from now on, in minor units: an order keeps the price of its claim.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<Cents>, nullable = false)]
    #[garde(range(min = 0, max = limits::CENTS_MAX))]
    pub pay_cents: Option<i64>,
    /// Worth, in minor units.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<Cents>, nullable = false)]
    #[garde(range(min = 0, max = limits::CENTS_MAX))]
    pub value_cents: Option<i64>,
    /// Changes to the coupon's sale; flash coupons only.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    #[garde(dive)]
    pub sale: Option<SaleEdit>,
}

/// Changes to a sale. Fields that are left out stay as they are.
#[derive(Clone, Debug, Default, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct SaleEdit {
    /// Units on offer; never fewer than now.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false, minimum = 1, maximum = 100_000_000)]
    #[garde(range(min = 1, max = limits::TOTAL_MAX))]
    pub total: Option<i64>,
    /// Start of the window.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    #[garde(inner(custom(a_time_redis_can_count)))]
    pub opens_at: Option<DateTime<Utc>>,
    /// End of the window; not part of it.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    #[garde(inner(custom(a_time_redis_can_count)))]
    pub closes_at: Option<DateTime<Utc>>,
}

/// Condition of a pause, a resumption or an end.
#[derive(Clone, Debug, Default, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// Only if the coupon still has this revision.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false, minimum = 1)]
    #[garde(range(min = 1))]
    pub revision: Option<i64>,
}

/// More units for a sale.
#[derive(Clone, Debug, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Restock {
    /// Name of this restock of this coupon, 1 to 100 characters, chosen by the client. A repeat adds nothing.
    #[schema(value_type = RestockKey)]
    #[garde(length(chars, min = 1, max = 100), custom(one_line))]
    pub key: String,
    /// Units to add, 1 or more.
    #[schema(value_type = Units)]
    #[garde(range(min = 1, max = limits::TOTAL_MAX))]
    pub units: i64,
}

impl CouponEdit {
    pub fn of(&self, row: &CouponRow) -> CouponRow {
        CouponRow {
            title: self.title.as_ref().unwrap_or(&row.title).clone(),
            sub_title: self.sub_title.as_ref().unwrap_or(&row.sub_title).clone(),
            rules: self.rules.as_ref().unwrap_or(&row.rules).clone(),
            pay_cents: self.pay_cents.unwrap_or(row.pay_cents),
            currency: row.currency.clone(),
            value_cents: self.value_cents.unwrap_or(row.value_cents),
            ..row.clone()
        }
    }
}

impl SaleEdit {
    pub fn of(&self, terms: &SaleTerms) -> SaleTerms {
        // Postgres counts microseconds: a repeat has to find the stored value.
        let stored = |time: DateTime<Utc>| time.trunc_subsecs(6);
        SaleTerms {
            total: self.total.unwrap_or(terms.total),
            opens_at: self.opens_at.map_or(terms.opens_at, stored),
            closes_at: self.closes_at.map_or(terms.closes_at, stored),
        }
    }
}

/// Refuses null: a client leaves a member out for "no change".
fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

fn sale_matches_kind(
    sale: &Option<NewSale>,
) -> impl FnOnce(&CouponKind, &()) -> garde::Result + '_ {
    move |kind, ()| match (kind, sale) {
        (CouponKind::Flash, None) => Err(garde::Error::new("a flash coupon needs `sale`")),
        (CouponKind::Regular, Some(_)) => Err(garde::Error::new("a regular coupon has no `sale`")),
        _ => Ok(()),
    }
}

fn after(opens_at: &DateTime<Utc>) -> impl FnOnce(&DateTime<Utc>, &()) -> garde::Result + '_ {
    move |closes_at, ()| {
        // Redis counts milliseconds.
        if closes_at.timestamp_millis() > opens_at.timestamp_millis() {
            return Ok(());
        }
        Err(garde::Error::new("the window has to end after it opens"))
    }
}

fn cny() -> String {
    "CNY".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::coupon::model::CouponState;

    #[test]
    fn a_new_coupon_has_a_sale_if_it_is_a_flash_coupon_and_the_sale_a_window() {
        let sale =
            |opens: &str, closes: &str| json!({"total": 1, "opens_at": opens, "closes_at": closes});
        let (opens, closes) = ("2026-11-21T12:00:00.000Z", "2026-11-21T12:00:00.001Z");
        for (kind, sale, complaint) in [
            ("flash", Some(sale(opens, closes)), None),
            ("regular", None, None),
            ("flash", None, Some("a flash coupon needs `sale`")),
            ("regular", Some(sale(opens, closes)), Some("a regular coupon has no `sale`")),
            ("flash", Some(sale(opens, opens)), Some("the window has to end after it opens")),
            (
                "flash",
                Some(sale(opens, "2026-11-21T12:00:00.0009Z")),
                Some("the window has to end"),
            ),
            ("flash", Some(sale(closes, opens)), Some("the window has to end")),
        ] {
            let mut coupon = json!({"kind": kind, "title": "t", "pay_cents": 1, "value_cents": 2});
            if let Some(sale) = sale {
                coupon["sale"] = sale;
            }
            let new: NewCoupon = serde_json::from_value(coupon.clone()).expect("it can be read");
            assert_eq!((new.currency.as_str(), new.sub_title.as_str()), ("CNY", ""));
            let complaints = new.validate().err().map(|report| report.to_string());
            match complaint {
                None => assert_eq!(complaints, None, "{coupon}"),
                Some(words) => {
                    let complaints = complaints.expect("it is not valid");
                    assert!(complaints.contains(words), "{coupon}: {complaints}");
                }
            }
        }
    }

    #[test]
    fn a_member_of_an_edit_has_a_value_or_is_left_out() {
        let read = |edit| serde_json::from_value::<CouponEdit>(edit);
        assert!(read(json!({"title": null})).is_err());
        assert!(read(json!({"sale": {"total": null}})).is_err());
        assert_eq!(read(json!({"title": "new"})).expect("an edit").title.as_deref(), Some("new"));
        assert_eq!(read(json!({})).expect("an edit").title, None);
        let revision: Move = serde_json::from_value(json!({"revision": 3})).expect("a revision");
        assert_eq!(revision.revision, Some(3));
    }

    #[test]
    fn an_edit_changes_what_it_names_and_leaves_the_rest() {
        let row = CouponRow {
            kind: CouponKind::Flash,
            title: "t".to_owned(),
            sub_title: "s".to_owned(),
            rules: "r".to_owned(),
            pay_cents: 1,
            currency: "CNY".to_owned(),
            value_cents: 2,
            state: CouponState::Paused,
            revision: 5,
        };
        assert_eq!(CouponEdit::default().of(&row), row);
        let edit =
            json!({"title": "T", "sub_title": "S", "rules": "R", "pay_cents": 3, "value_cents": 4});
        let edit: CouponEdit = serde_json::from_value(edit).expect("an edit");
        let edited = edit.of(&row);
        let words = [&edited.title, &edited.sub_title, &edited.rules].map(|text| text.as_str());
        assert_eq!((words, edited.pay_cents, edited.value_cents), (["T", "S", "R"], 3, 4));
        assert_eq!((edited.state, edited.revision), (CouponState::Paused, 5));

        let time = |text: &str| text.parse::<DateTime<Utc>>().expect("a time");
        let (opens_at, closes_at) = (time("2026-11-21T12:00:00Z"), time("2026-11-22T12:00:00Z"));
        let terms = SaleTerms { total: 5, opens_at, closes_at };
        assert_eq!(SaleEdit::default().of(&terms), terms);
        let nanoseconds = Some(time("2026-11-20T12:00:00.123456789Z"));
        let edit = SaleEdit { total: Some(6), opens_at: nanoseconds, closes_at: None };
        let opens_at = time("2026-11-20T12:00:00.123456Z");
        assert_eq!(edit.of(&terms), SaleTerms { total: 6, opens_at, closes_at });
        let edit = SaleEdit { closes_at: nanoseconds, ..SaleEdit::default() };
        assert_eq!(edit.of(&terms), SaleTerms { closes_at: opens_at, ..terms });
    }
}
