//! Client of an external gateway that takes requests: JSON over HTTP, signed both ways. `docs/gateway.md` is the
//! contract.
//!
//! Each request names the payment by an idempotency key of ours, so that the gateway recognises a repeat. If an answer
//! is lost, the payer or the job over opened payments asks again.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::base::clock::Clock;
use crate::base::config::Config;
use crate::base::limits;
use crate::coupon::values::iso_4217;
use crate::kit::signature::Signatures;
use crate::kit::signed_http::{NoAnswer, SignedClient};
use crate::order::model::PayMethod;
use crate::payment::gateway::{is_pay_url, is_payment_id};
use crate::store::ids::OrderId;

pub struct HttpGateway {
    client: SignedClient,
}

#[derive(Serialize)]
pub struct Opening {
    /// Idempotency key: a repeat with the same key opens no second payment.
    pub key: String,
    pub order_id: OrderId,
    pub method: PayMethod,
    /// In minor units.
    pub amount_cents: i64,
    /// ISO 4217.
    pub currency: String,
    /// The payer should pay before this time; later payments may be refunded.
    pub pay_by: DateTime<Utc>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Opened {
    /// The gateway's id of the payment.
    pub payment_id: String,
    pub pay_url: String,
}

#[derive(Serialize)]
struct Refunding<'a> {
    key: String,
    payment_id: &'a str,
    amount_cents: i64,
}

#[derive(Serialize)]
struct Query<'a> {
    payment_id: &'a str,
}

/// State of a payment at its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtGateway {
    /// The payer can still pay.
    Open,
    /// The gateway has taken the money.
    Paid,
    /// The gateway is returning the money.
    Refunding,
    /// The money has been returned.
    Refunded,
    /// Nothing was paid, and nothing can be paid any more.
    Closed,
}

#[derive(Deserialize)]
struct Answer {
    state: AtGateway,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Found {
    pub state: AtGateway,
    /// The amount taken, or to be paid, in minor units; `None` if the gateway doesn't say.
    pub amount_cents: Option<i64>,
    /// ISO 4217; `None` if the gateway doesn't say.
    pub currency: Option<String>,
}

impl HttpGateway {
    /// The gateway of these settings; `None` without a URL and a secret.
    pub fn of(config: &Config) -> Option<Self> {
        let (url, secret) =
            (config.gateway_url.as_ref()?, config.payment_callback_secret.as_ref()?);
        let before = config.payment_callback_secret_before.as_ref();
        let signatures = Signatures::changing(secret, before);
        let (timeout, bytes_max) = (config.gateway_timeout(), limits::GATEWAY_REPLY_BYTES_MAX);
        let client = SignedClient::new(url, signatures, Clock::System, timeout, bytes_max);
        Some(Self { client })
    }

    pub fn signatures(&self) -> &Signatures {
        self.client.signatures()
    }

    /// Opens a payment.
    ///
    /// # Errors
    ///
    /// When the gateway refuses, or the outcome is unknown. The outcome also counts as unknown if the gateway's id or
    /// page can't be stored.
    pub async fn open(&self, opening: &Opening) -> Result<Opened, NoAnswer> {
        let opened: Opened = self.client.post("/payments", opening).await?;
        match is_payment_id(&opened.payment_id) && is_pay_url(&opened.pay_url) {
            true => Ok(opened),
            false => {
                Err(NoAnswer::Unknown("its id of the payment, or its page, can't be kept".into()))
            }
        }
    }

    /// Requests the refund of a payment; `key` is its idempotency key.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub async fn refund(
        &self,
        key: String,
        payment_id: &str,
        amount_cents: i64,
    ) -> Result<AtGateway, NoAnswer> {
        let request = Refunding { key, payment_id, amount_cents };
        self.client.post::<Answer>("/refunds", &request).await.map(|answer| answer.state)
    }

    /// Asks for state and amount of a payment.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and when the amount or the currency isn't valid.
    pub async fn query(&self, payment_id: &str) -> Result<Found, NoAnswer> {
        let found: Found = self.client.post("/queries", &Query { payment_id }).await?;
        let is_amount = |cents: i64| (0..=limits::CENTS_MAX).contains(&cents);
        let is_currency = |code: &String| iso_4217(code, &()).is_ok();
        match found.amount_cents.is_none_or(is_amount) && found.currency.iter().all(is_currency) {
            true => Ok(found),
            false => Err(NoAnswer::Unknown(format!("it answers {found:?}"))),
        }
    }
}
