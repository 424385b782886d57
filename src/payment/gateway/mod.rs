//! **The port to payment gateways.**
//!
//! The rest of the code relies on this of a gateway:
//!
//! * A payment is opened, paid, refunded and asked about by an id; a repeat opens no second payment, takes no more money,
//!   and refunds no more.
//! * A payment or refund that isn't settled at once is confirmed later, by `POST /v1/payments/callback`, signed
//!   (`http/payments.rs`), and again until it is answered 200.
//!
//! Three are known:
//!
//! * One elsewhere that takes requests (`--gateway-url`): `http.rs`. To connect a real gateway, put a program between
//!   that speaks `docs/gateway.md` on this side.
//! * One elsewhere that takes none. It takes money by itself and confirms that. No client of it is here to ask for a
//!   refund, so such refunds wait until it confirms them, or an administrator closes them (`payment/owed.rs`).
//! * The service itself, for trying only: every user is rich, and every answer is yes, at once. It keeps no books but
//!   the table `payments`. It takes payments only with `--in-process-gateway`. Payments that it took before are
//!   refunded without that setting, too.
//!
//! With the flag and another gateway, both take payments: the flag is given by hand, for trying the callbacks beside it,
//! and `flash-sale doctor` fails because of it.

// A gateway elsewhere that takes requests.
pub mod http;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::config::Config;
use crate::base::limits;
use crate::order::model::PayMethod;
use crate::store::ids::{OrderId, PaymentId};

/// Numbers of methods, as gateways call them: 1 is balance, 2 is alipay, 3 is wechat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(try_from = "u8")]
#[schema(value_type = u8, minimum = 1, maximum = 3)]
pub struct MethodCode(pub PayMethod);

/// A number that names no method.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`method` is 1 (balance), 2 (alipay) or 3 (wechat)")]
pub struct UnknownMethod;

/// The place where users pay for their orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkout {
    /// Here: the service says yes, and no money moves.
    InProcess,
    /// At a gateway elsewhere, where payments are opened from here.
    Opened,
    /// At a gateway elsewhere that takes no requests, and confirms by callback.
    Elsewhere,
    /// Nowhere: no gateway is set up.
    Nowhere,
}

/// True for a gateway's id of a payment that can be kept: ASCII letters, digits and signs. An id has no spaces, and
/// Postgres stores no NUL.
pub fn is_payment_id(id: &str) -> bool {
    (1..=limits::PAYMENT_ID_BYTES_MAX).contains(&id.len()) && is_visible(id)
}

/// True for a page to which a payer can be sent.
pub fn is_pay_url(url: &str) -> bool {
    (1..=limits::PAY_URL_BYTES_MAX).contains(&url.len()) && is_visible(url)
}

/// True for text of ASCII letters, digits and signs.
pub(super) fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Holder of a payment's money, who refunds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Gateway {
    /// The service itself.
    InProcess,
    /// One elsewhere, which confirms by callback.
    External,
}

/// The in-process gateway takes the money for an order. Returns its id of the payment.
pub fn charge(order: OrderId) -> String {
    // One id for each order, so that a repeat is the same payment.
    order.to_string()
}

impl Checkout {
    /// The place of payment by these settings.
    pub fn of(config: &Config) -> Self {
        match (config.in_process_gateway, &config.gateway_url, &config.payment_callback_secret) {
            (true, ..) => Self::InProcess,
            (false, Some(_), _) => Self::Opened,
            (false, None, Some(_)) => Self::Elsewhere,
            (false, None, None) => Self::Nowhere,
        }
    }
}

impl TryFrom<u8> for MethodCode {
    type Error = UnknownMethod;

    fn try_from(code: u8) -> Result<Self, UnknownMethod> {
        let methods = [PayMethod::Balance, PayMethod::Alipay, PayMethod::Wechat];
        let index = usize::from(code).checked_sub(1).ok_or(UnknownMethod)?;
        methods.get(index).copied().map(Self).ok_or(UnknownMethod)
    }
}

impl Gateway {
    /// Name of the gateway in Postgres.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProcess => "in_process",
            Self::External => "external",
        }
    }
}

/// A payment to be refunded.
pub(super) struct Refunding {
    pub(super) id: PaymentId,
    pub(super) gateway: Gateway,
    pub(super) gateway_payment_id: String,
    pub(super) amount_cents: i64,
}

impl Refunding {
    /// Name of the refund in requests, the same in each. A database that was restored gives its own ids a second time, and
    /// a gateway would take the refund of another payment for a repeat.
    pub(super) fn key(&self) -> String {
        format!("refund-of-{}", self.gateway_payment_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_pages_of_a_gateway_can_be_kept() {
        let long = "x".repeat(201);
        for (id, fits) in
            [("g-1/ä", false), ("g 1", false), ("", false), ("g\0", false), ("g-1", true)]
        {
            assert_eq!(is_payment_id(id), fits, "{id:?}");
        }
        assert!(is_payment_id("g") && is_pay_url("x"));
        assert!(!is_payment_id(&long) && is_payment_id(&long[1..]) && is_pay_url(&long));
        assert!(!is_pay_url("") && !is_pay_url("https://x/\n"));
        assert!(!is_pay_url(&"x".repeat(2_049)) && is_pay_url(&"x".repeat(2_048)));
    }
}
