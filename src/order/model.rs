//! An order and its statuses.

use std::fmt::{self, Write};
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::store::ids::{CouponId, OrderId, UserId};

/// Status of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum OrderStatus {
    /// Waits to be paid.
    Unpaid,
    /// Paid.
    Paid,
    /// Used.
    Redeemed,
    /// Cancelled before it was paid.
    Cancelled,
    /// Not paid in time.
    Expired,
    /// The order is being refunded.
    Refunding,
    /// Refunded.
    Refunded,
}

/// An order, as its buyer sees it. Times are UTC. The time of a status is null unless the order is, or has to have
/// been, in that status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Order {
    /// Id of the order.
    pub order_id: OrderId,
    /// The coupon.
    pub coupon_id: CouponId,
    /// The buyer.
    pub user_id: UserId,
    /// The status.
    pub status: OrderStatus,
    /// The means of payment.
    pub pay_method: Option<String>,
    /// Price at the time of the claim, in minor units. Later price changes don't count.
    pub pay_cents: i64,
    /// Currency of the price (ISO 4217).
    pub currency: String,
    /// Time until which the order may be paid.
    pub pay_by: DateTime<Utc>,
    /// Time of the claim.
    pub claimed_at: DateTime<Utc>,
    /// Time of the payment.
    pub paid_at: Option<DateTime<Utc>>,
    /// Time of the redemption.
    pub redeemed_at: Option<DateTime<Utc>>,
    /// Time of the cancellation.
    pub cancelled_at: Option<DateTime<Utc>>,
    /// Why an administrator cancelled all unpaid orders of the coupon; null otherwise.
    pub cancel_reason: Option<String>,
    /// Time of the expiry.
    pub expired_at: Option<DateTime<Utc>>,
    /// Time at which the refund was requested.
    pub refunding_at: Option<DateTime<Utc>>,
    /// Time at which the money was returned.
    pub refunded_at: Option<DateTime<Utc>>,
    /// Code by which a clerk redeems the order; null unless the order is paid.
    pub redemption_code: Option<RedemptionCode>,
}

/// A filter for orders. All parts that are set have to match.
#[derive(Clone, Copy, Debug, Default)]
pub struct OrderFilter {
    pub user: Option<UserId>,
    pub coupon: Option<CouponId>,
    pub status: Option<OrderStatus>,
    /// Claimed at or after this time.
    pub from: Option<DateTime<Utc>>,
    /// Claimed before this time.
    pub to: Option<DateTime<Utc>>,
}

impl Order {
    /// For readers other than the buyer.
    pub fn without_code(self) -> Self {
        Self { redemption_code: None, ..self }
    }
}

/// Code by which a clerk redeems a paid order: 80 random bits as 16 characters of Crockford's base 32, shown in groups
/// of four. It isn't derived from the order id, and can't be guessed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(into = "String")]
#[schema(value_type = String)]
#[sqlx(transparent)]
pub struct RedemptionCode(String);

impl RedemptionCode {
    /// Reads a code as people type it: case, hyphens and blanks don't count, and O, I and L are read as digits. A text
    /// that is no code matches no order.
    pub fn typed(text: &str) -> Self {
        let letters = text.chars().filter(char::is_ascii_alphanumeric);
        let canonical = letters.map(|letter| match letter.to_ascii_uppercase() {
            'O' => '0',
            'I' | 'L' => '1',
            letter => letter,
        });
        Self(canonical.collect())
    }

    /// The code as Postgres stores it: without hyphens.
    pub fn canonical(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedemptionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, letter) in self.0.chars().enumerate() {
            if at > 0 && at % 4 == 0 {
                f.write_char('-')?;
            }
            f.write_char(letter)?;
        }
        Ok(())
    }
}

impl From<RedemptionCode> for String {
    fn from(code: RedemptionCode) -> Self {
        code.to_string()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a redemption code has 16 letters and digits, such as 7K3M-Q9TX-2B8D-HV4N")]
pub struct InvalidCode;

impl FromStr for RedemptionCode {
    type Err = InvalidCode;

    fn from_str(text: &str) -> Result<Self, InvalidCode> {
        if text.is_empty() { Err(InvalidCode) } else { Ok(Self::typed(text)) }
    }
}

/// Means of payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum PayMethod {
    /// The user's balance with the shop.
    Balance,
    /// Alipay.
    Alipay,
    /// WeChat Pay.
    Wechat,
}

impl PayMethod {
    /// The name in Postgres and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Balance => "balance",
            Self::Alipay => "alipay",
            Self::Wechat => "wechat",
        }
    }
}

impl OrderStatus {
    pub const ALL: [Self; 7] = [
        Self::Unpaid,
        Self::Paid,
        Self::Redeemed,
        Self::Cancelled,
        Self::Expired,
        Self::Refunding,
        Self::Refunded,
    ];

    /// Whether an order in this status holds a unit; the same as `is_live` in Postgres.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Unpaid | Self::Paid | Self::Redeemed | Self::Refunding)
    }

    /// The name in Postgres and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unpaid => "unpaid",
            Self::Paid => "paid",
            Self::Redeemed => "redeemed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Refunding => "refunding",
            Self::Refunded => "refunded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Order {
        pub(in crate::order) fn example(order: i64, user: i64, status: OrderStatus) -> Self {
            Self {
                order_id: OrderId::new(order).expect("an id"),
                coupon_id: CouponId::compose(1, 1),
                user_id: UserId::new(user).expect("an id"),
                status,
                pay_method: None,
                pay_cents: 1,
                currency: "CNY".to_owned(),
                pay_by: DateTime::UNIX_EPOCH,
                claimed_at: DateTime::UNIX_EPOCH,
                paid_at: None,
                redeemed_at: None,
                cancelled_at: None,
                cancel_reason: None,
                expired_at: None,
                refunding_at: None,
                refunded_at: None,
                redemption_code: None,
            }
        }
    }

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let code = RedemptionCode("0123456789ABCDEF".to_owned());
        assert_eq!(code.to_string(), "0123-4567-89AB-CDEF");
        for text in [
            "0123-4567-89AB-CDEF",
            "o123 4567 89ab cdef",
            " OI23456789abCDef\n",
            "ol23-4567-89AB-CDEF\0",
        ] {
            assert_eq!(RedemptionCode::typed(text), code, "{text:?}");
        }
        assert_eq!(RedemptionCode::typed("-'\0").canonical(), "");
    }

    #[test]
    fn names_are_those_in_json() {
        for status in OrderStatus::ALL {
            assert_eq!(serde_json::to_value(status).expect("a word"), status.as_str());
        }
        for method in [PayMethod::Balance, PayMethod::Alipay, PayMethod::Wechat] {
            assert_eq!(serde_json::to_value(method).expect("a word"), method.as_str());
        }
        let code: RedemptionCode = "0o1l-2345".parse().expect("a code");
        assert_eq!(code, RedemptionCode("00112345".to_owned()));
    }
}
