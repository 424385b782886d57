//! **The port to payment gateways.** To connect a real gateway, change this file.
//!
//! The rest of the code relies on this of a gateway:
//!
//! * [`charge`] takes the money of one order, and returns the payment's id. A repeat for the same order takes no more
//!   money and returns the same id.
//! * [`give_back`] refunds one payment, named by that id. A repeat refunds no more money.
//! * An answer that can't be given at once is confirmed later, by `POST /v1/payments/callback`, signed
//!   (`http/payments.rs`), and again until it is answered 200.
//!
//! Two gateways are known:
//!
//! * One elsewhere, which has the secret `--payment-callback-secret`. It takes money by itself and confirms that.
//!   Only that gateway can refund its payments, and no client of it is here to ask for that, so such refunds wait
//!   until it confirms them.
//! * The service itself, for trying only: every user is rich, and every answer is yes, at once. It keeps no books but
//!   the table `payments`. It takes payments only with `--in-process-gateway`. Payments that it took before are
//!   refunded without that setting, too.
//!
//! With both settings, both take payments: the flag is given by hand, for trying the callbacks beside it, and
//! `flash-sale doctor` fails because of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::config::Config;
use crate::sale::ids::OrderId;
use crate::sale::order::model::PayMethod;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkout {
    /// Here: the service says yes, and no money moves.
    InProcess,
    /// At a gateway elsewhere, which confirms by callback.
    Elsewhere,
    /// Nowhere: no gateway is set up.
    Nowhere,
}

/// Holder of a payment's money, who refunds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::Type)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Gateway {
    /// The service itself.
    InProcess,
    /// One elsewhere, which confirms by callback.
    External,
}

/// Answer of a gateway that is asked for a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refund {
    /// The money is back.
    Done,
    /// The gateway will confirm the refund by callback.
    Later,
}

/// Takes the money for an order. Returns the gateway's id of the payment.
pub fn charge(order: OrderId) -> String {
    // One id for each order, so that a repeat is the same payment.
    order.to_string()
}

/// Refunds the payment that this gateway knows by this id.
pub fn give_back(gateway: Gateway, _payment_id: &str) -> Refund {
    match gateway {
        Gateway::InProcess => Refund::Done,
        // A client of a real gateway would ask here.
        Gateway::External => Refund::Later,
    }
}

impl Checkout {
    /// The place of payment by these settings.
    pub fn of(config: &Config) -> Self {
        match (config.in_process_gateway, &config.payment_callback_secret) {
            (true, _) => Self::InProcess,
            (false, Some(_)) => Self::Elsewhere,
            (false, None) => Self::Nowhere,
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

/// Reason of a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum RefundReason {
    /// The buyer wants a refund.
    AskedFor,
    /// The order had been cancelled or had expired.
    TooLate,
    /// The order had been paid by another payment.
    PaidTwice,
    /// The amount is not the coupon's price.
    WrongAmount,
}

impl RefundReason {
    /// Name of the reason in Postgres and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AskedFor => "asked_for",
            Self::TooLate => "too_late",
            Self::PaidTwice => "paid_twice",
            Self::WrongAmount => "wrong_amount",
        }
    }
}

/// A payment to be refunded.
pub(super) struct Refunding {
    pub(super) id: i64,
    pub(super) gateway: Gateway,
    pub(super) gateway_payment_id: String,
}
