//! Notices of a payment gateway, and the answers to them.

use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::base::limits;
use crate::coupon::values::{Cents, Currency, iso_4217};
use crate::order::model::Order;
use crate::payment::gateway::{self, MethodCode};
use crate::payment::model::PaymentReason;
use crate::store::ids::OrderId;

/// Notice of a gateway. Unknown members are ignored: a gateway can't be corrected, and its money counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema, Validate)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Notice {
    /// The gateway has taken money.
    Payment {
        /// The gateway's id of the payment: 1 to 200 letters, digits and signs.
        #[schema(min_length = 1, max_length = 200, pattern = "^[!-~]*$")]
        #[garde(length(min = 1, max = limits::PAYMENT_ID_BYTES_MAX), custom(visible))]
        payment_id: String,
        /// The order that was paid for.
        #[schema(value_type = OrderId)]
        #[garde(skip)]
        order_id: OrderId,
        /// Means of payment: 1 is balance, 2 is alipay, 3 is wechat.
        #[garde(skip)]
        method: MethodCode,
        /// The amount, in minor units.
        #[schema(value_type = Cents)]
        #[garde(range(min = 0, max = limits::CENTS_MAX))]
        amount_cents: i64,
        /// Its currency; by default, that of the order.
        #[serde(default)]
        #[schema(value_type = Option<Currency>, nullable = false)]
        #[garde(inner(custom(iso_4217)))]
        currency: Option<String>,
    },
    /// The gateway has refunded money.
    Refund {
        /// The gateway's id of the payment.
        #[schema(min_length = 1, max_length = 200, pattern = "^[!-~]*$")]
        #[garde(length(min = 1, max = limits::PAYMENT_ID_BYTES_MAX), custom(visible))]
        payment_id: String,
    },
}

/// Answer to a gateway's notice, with the order if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The payment has paid its order.
    Accepted(Order),
    /// The payment could not pay its order, and is being refunded.
    HandedBack(Option<Order>, PaymentReason),
    /// The payment is noted, but no order can take the money yet.
    Held(Option<Order>, PaymentReason),
    /// The refund has been noted.
    Refunded(Option<Order>),
    /// The refund has been noted, and the service had not requested it: the order has lost its payment.
    ChargedBack(Order),
    NoPayment,
}

fn visible(id: &str, _: &()) -> garde::Result {
    if gateway::is_visible(id) {
        return Ok(());
    }
    Err(garde::Error::new("an id consists of ASCII letters, digits and signs"))
}
