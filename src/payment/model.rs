//! A payment and its statuses.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Status of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum PaymentStatus {
    /// The payment has paid its order.
    Accepted,
    /// The payment is being refunded, and its gateway hasn't confirmed that yet.
    Refunding,
    /// The money has been returned.
    Refunded,
    /// No order has the money, and it isn't being refunded yet. The reason says what it waits for.
    Held,
    /// An administrator has settled the matter by other means.
    Closed,
}

/// Reason why a payment doesn't pay an order, or pays it no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum PaymentReason {
    /// The refund of the order was requested.
    AskedFor,
    /// The order had been cancelled or had expired.
    TooLate,
    /// The order had been paid by another payment.
    PaidTwice,
    /// The amount is not the order's price.
    WrongAmount,
    /// There is no such order, or it isn't written yet.
    UnknownOrder,
    /// The gateway has used the payment's id for another order before.
    IdUsedTwice,
    /// The gateway has taken the money back from the shop.
    ChargedBack,
    /// A signed notice can't be understood; it may be about money.
    NotUnderstood,
}

impl PaymentReason {
    /// Reasons of held payments, in the order of docs/operate.md.
    pub const HELD: [Self; 4] =
        [Self::UnknownOrder, Self::IdUsedTwice, Self::ChargedBack, Self::NotUnderstood];

    /// The name in Postgres and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AskedFor => "asked_for",
            Self::TooLate => "too_late",
            Self::PaidTwice => "paid_twice",
            Self::WrongAmount => "wrong_amount",
            Self::UnknownOrder => "unknown_order",
            Self::IdUsedTwice => "id_used_twice",
            Self::ChargedBack => "charged_back",
            Self::NotUnderstood => "not_understood",
        }
    }
}

impl PaymentStatus {
    /// The status of a new payment: refunding if there is a reason why it doesn't pay its order, otherwise accepted.
    pub(super) fn for_reason(why_not: Option<PaymentReason>) -> Self {
        if why_not.is_some() { Self::Refunding } else { Self::Accepted }
    }

    /// The name in Postgres and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refunding => "refunding",
            Self::Refunded => "refunded",
            Self::Held => "held",
            Self::Closed => "closed",
        }
    }
}

/// A payment that its payer can make at the gateway now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToBePaid {
    /// The gateway's id of the payment.
    pub payment_id: String,
    pub pay_url: String,
    /// In minor units.
    pub amount_cents: i64,
    /// ISO 4217.
    pub currency: String,
    /// Time until which the order can be paid.
    pub pay_by: DateTime<Utc>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The alarm's page explains each reason.
    #[test]
    fn the_page_of_the_operator_has_the_reasons_of_held_payments() {
        let page = include_str!("../../docs/operate.md");
        let (_, section) = page.split_once("\n### Held payments\n").expect("the section is there");
        let rows =
            section.split("\n#").next().expect("its text").lines().filter_map(|line| {
                line.strip_prefix("| `")?.split_once('`').map(|(reason, _)| reason)
            });
        assert!(rows.eq(PaymentReason::HELD.map(PaymentReason::as_str)));
    }
}
