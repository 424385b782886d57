//! **The port to whoever moves the money.** To connect a real gateway, change this file.
//!
//! What is asked of a gateway, and what the rest of the code relies on:
//!
//! * [`charge`] takes the money of one order, and says under which id. Asked again about the same order, it takes
//!   nothing more and says the same.
//!
//! The gateway that is here is the service itself: every user is rich and every answer is yes, at once. It keeps
//! no books; its payments are what the table `payments` says.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ids::OrderId;

/// How an order is paid.
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

/// Who has the money of a payment, and gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Gateway {
    /// The service itself.
    InProcess,
    /// One elsewhere.
    External,
}

/// Takes the money for an order. Returns the gateway's id of the payment.
pub fn charge(order: OrderId) -> String {
    // One for each order, so that a repeat is the same payment.
    order.to_string()
}

impl PayMethod {
    /// Its name in Postgres and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Balance => "balance",
            Self::Alipay => "alipay",
            Self::Wechat => "wechat",
        }
    }
}

impl Gateway {
    /// Its name in Postgres.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProcess => "in_process",
            Self::External => "external",
        }
    }
}
