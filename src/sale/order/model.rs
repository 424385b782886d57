//! An order, and the states of its life.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sale::ids::{CouponId, OrderId, UserId};

/// Status of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum OrderStatus {
    /// Waits for payment.
    Unpaid,
    /// Paid.
    Paid,
    /// Used.
    Redeemed,
    /// Cancelled before it was paid.
    Cancelled,
    /// Not paid in time.
    Expired,
    /// The refund of the order is on its way.
    Refunding,
    /// Refunded.
    Refunded,
}

/// An order, as its buyer sees it. Times are UTC; each is set while its status implies it.
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
    /// Price, in minor units: that of the claim's moment, whatever the coupon costs by now.
    pub pay_cents: i64,
    /// Currency of the price (ISO 4217).
    pub currency: String,
    /// Time until which the order may be paid; null for an order that an older version has written.
    pub pay_by: Option<DateTime<Utc>>,
    /// Time of the claim.
    pub claimed_at: DateTime<Utc>,
    /// Time of the payment.
    pub paid_at: Option<DateTime<Utc>>,
    /// Time of the redemption.
    pub redeemed_at: Option<DateTime<Utc>>,
    /// Time of the cancellation.
    pub cancelled_at: Option<DateTime<Utc>>,
    /// Time of the expiry.
    pub expired_at: Option<DateTime<Utc>>,
    /// Time of the request for a refund.
    pub refunding_at: Option<DateTime<Utc>>,
    /// Time of the refund.
    pub refunded_at: Option<DateTime<Utc>>,
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
    /// Name of the status in Postgres and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Balance => "balance",
            Self::Alipay => "alipay",
            Self::Wechat => "wechat",
        }
    }
}

impl OrderStatus {
    /// Name of the status in Postgres and JSON.
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
