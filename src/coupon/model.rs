//! A coupon, its sale, and the fields of both that can be changed.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::store::ids::CouponId;

/// Whether a coupon has a sale.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum CouponKind {
    /// Bought at any time; no stock and no window.
    Regular,
    /// Sold in a window, as long as the stock lasts, one to a user.
    Flash,
}

impl CouponKind {
    pub const ALL: [Self; 2] = [Self::Regular, Self::Flash];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Flash => "flash",
        }
    }
}

/// Whether a coupon can be claimed at all.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum CouponState {
    /// On offer; a flash coupon within its window.
    Active,
    /// Claims are suspended.
    Paused,
    /// Over for good.
    Ended,
}

impl CouponState {
    pub const ALL: [Self; 3] = [Self::Active, Self::Paused, Self::Ended];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}

/// Coupons to list; each field narrows them down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CouponFilter {
    pub kind: Option<CouponKind>,
    pub state: Option<CouponState>,
}

/// A coupon, as all users see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Coupon {
    /// Id of the coupon.
    pub id: CouponId,
    /// Its words, prices and state.
    #[serde(flatten)]
    pub row: CouponRow,
    /// The sale of the coupon; only flash coupons have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub sale: Option<Sale>,
}

/// The sale of a flash coupon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Sale {
    /// Units on offer.
    pub total: i64,
    /// Units left; null while Redis can't tell.
    pub left: Option<i64>,
    /// Start of the window.
    pub opens_at: DateTime<Utc>,
    /// End of the window; not part of it.
    pub closes_at: DateTime<Utc>,
}

impl Sale {
    pub fn new(terms: SaleTerms, left: Option<i64>) -> Self {
        let SaleTerms { total, opens_at, closes_at } = terms;
        Self { total, left, opens_at, closes_at }
    }
}

/// Fields of a coupon that can be changed, apart from its sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CouponRow {
    /// Whether it has a sale; never changes.
    pub kind: CouponKind,
    /// Headline.
    pub title: String,
    /// Second line.
    pub sub_title: String,
    /// Terms, in words.
    pub rules: String,
    /// Price, in minor units.
    pub pay_cents: i64,
    /// Currency of the price (ISO 4217); never changes.
    pub currency: String,
    /// Worth, in minor units.
    pub value_cents: i64,
    /// Whether it can be claimed at all.
    pub state: CouponState,
    /// Revision of these values; grows with every change.
    pub revision: i64,
}

/// Fields of a sale that can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SaleTerms {
    pub total: i64,
    pub opens_at: DateTime<Utc>,
    /// Not part of the window.
    pub closes_at: DateTime<Utc>,
}

/// A coupon and its sale, as the audit log has them.
#[derive(Serialize)]
pub(super) struct Values<'a> {
    #[serde(flatten)]
    row: &'a CouponRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    sale: Option<&'a SaleTerms>,
}

impl<'a> Values<'a> {
    pub(super) fn new(row: &'a CouponRow, sale: Option<&'a SaleTerms>) -> Self {
        Self { row, sale }
    }
}
