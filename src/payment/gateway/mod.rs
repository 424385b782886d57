//! **The port to payment gateways.**
//!
//! The service relies on this from every gateway:
//!
//! * A payment is opened, paid, refunded and queried by an id. A repeat opens no second payment, takes no more money,
//!   and refunds no more.
//! * A payment or refund that isn't settled at once is confirmed later by `POST /v1/payments/callback`, signed
//!   (`http/payments.rs`). The gateway repeats the callback until it is answered 200.
//!
//! There are three kinds:
//!
//! * An external gateway that takes requests (`--gateway-url`): `http.rs`. To connect a real gateway, put a program in
//!   between that speaks `docs/gateway.md` on this side.
//! * An external gateway that takes none. It takes money on its own and confirms that. The service can't request
//!   refunds from it, so a refund waits until the gateway confirms it, or an administrator closes the payment
//!   (`payment/owed.rs`).
//! * The service itself, for trials only: every user is rich, and every payment succeeds at once. It keeps no books but
//!   the table `payments`, and takes payments only with `--in-process-gateway`. Earlier payments are refunded without
//!   that setting, too.
//!
//! With `--in-process-gateway` and an external gateway, both take payments. This is for trying out callbacks by hand,
//! and `flash-sale doctor` fails because of it.

// Client of an external gateway that takes requests.
pub mod http;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::config::Config;
use crate::base::limits;
use crate::order::model::PayMethod;
use crate::store::ids::{OrderId, PaymentId};

/// A payment method, as gateways number them: 1 is balance, 2 is alipay, 3 is wechat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(try_from = "u8")]
#[schema(value_type = u8, minimum = 1, maximum = 3)]
pub struct MethodCode(pub PayMethod);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`method` is 1 (balance), 2 (alipay) or 3 (wechat)")]
pub struct UnknownMethod;

/// Where users pay for their orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkout {
    /// In the service itself: every payment succeeds, and no money moves.
    InProcess,
    /// At an external gateway, where the service opens payments.
    Opened,
    /// At an external gateway that takes no requests, and confirms by callback.
    Elsewhere,
    /// Nowhere: no gateway is configured.
    Nowhere,
}

/// True for a gateway's payment id that can be stored: ASCII letters, digits and signs. Ids contain no spaces, and
/// Postgres stores no NUL.
pub fn is_payment_id(id: &str) -> bool {
    (1..=limits::PAYMENT_ID_BYTES_MAX).contains(&id.len()) && is_visible(id)
}

/// True for a page that a payer can be sent to.
pub fn is_pay_url(url: &str) -> bool {
    (1..=limits::PAY_URL_BYTES_MAX).contains(&url.len()) && is_visible(url)
}

/// True for text of ASCII letters, digits and signs.
pub(super) fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Who holds a payment's money, and refunds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Gateway {
    /// The service itself.
    InProcess,
    /// An external gateway, which confirms by callback.
    External,
}

/// Takes the money for an order. Returns the payment's id at the in-process gateway.
pub fn charge(order: OrderId) -> String {
    // One id for each order, so that a repeat is the same payment.
    order.to_string()
}

impl Checkout {
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
    /// The name in Postgres.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProcess => "in_process",
            Self::External => "external",
        }
    }
}

pub(super) struct Refunding {
    pub(super) id: PaymentId,
    pub(super) gateway: Gateway,
    pub(super) gateway_payment_id: String,
    pub(super) amount_cents: i64,
}

impl Refunding {
    /// Idempotency key of the refund. Our own payment id wouldn't do: a restored database assigns ids a second time,
    /// and the gateway would take the refund of another payment for a repeat.
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
