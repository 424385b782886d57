//! A payment, and the states of its life.

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
    /// The payment goes back, and its gateway hasn't confirmed that yet.
    Refunding,
    /// The money is back.
    Refunded,
    /// No order has the money, and it doesn't go back yet: the reason says what is waited for.
    Held,
    /// An administrator has settled the matter by other means.
    Closed,
}

/// Reason why a payment doesn't pay an order, or pays it no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum PaymentReason {
    /// The order's refund was asked for.
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
    /// Reasons of held payments, in the order of docs/alarms.md.
    pub const HELD: [Self; 4] =
        [Self::UnknownOrder, Self::IdUsedTwice, Self::ChargedBack, Self::NotUnderstood];

    /// Name of the reason in Postgres and JSON.
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
    /// Status of a payment that pays its order, unless there is a reason why not: then it goes back.
    pub(super) fn for_reason(why_not: Option<PaymentReason>) -> Self {
        if why_not.is_some() { Self::Refunding } else { Self::Accepted }
    }

    /// Name of the status in Postgres and JSON.
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
    /// Page on which the payer pays.
    pub pay_url: String,
    /// The amount, in minor units.
    pub amount_cents: i64,
    /// Its currency (ISO 4217).
    pub currency: String,
    /// Time until which the order can be paid.
    pub pay_by: DateTime<Utc>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of the alarm says what each reason means.
    #[test]
    fn the_page_of_the_alarm_has_the_reasons_of_held_payments() {
        let page = include_str!("../../docs/alarms.md");
        let section = page.split("\n## ").find(|section| section.starts_with("PaymentHeld\n"));
        let rows = section
            .expect("the section is there")
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(reason, _)| reason));
        assert!(rows.eq(PaymentReason::HELD.map(PaymentReason::as_str)));
    }
}
