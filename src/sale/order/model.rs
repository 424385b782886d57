//! An order, and the states of its life.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sale::ids::{CouponId, OrderId, UserId};

/// Where an order stands.
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
    /// On its way back.
    Refunding,
    /// Paid back.
    Refunded,
}

/// An order, as its buyer sees it. Times are UTC; each is set while its status implies it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Order {
    /// Its id.
    pub order_id: OrderId,
    /// What was claimed.
    pub coupon_id: CouponId,
    /// By whom.
    pub user_id: UserId,
    /// Where it stands.
    pub status: OrderStatus,
    /// How it was paid.
    pub pay_method: Option<String>,
    /// When the claim was accepted.
    pub claimed_at: DateTime<Utc>,
    /// When it was paid.
    pub paid_at: Option<DateTime<Utc>>,
    /// When it was used.
    pub redeemed_at: Option<DateTime<Utc>>,
    /// When it was cancelled.
    pub cancelled_at: Option<DateTime<Utc>>,
    /// When its time to be paid was over.
    pub expired_at: Option<DateTime<Utc>>,
    /// When a refund was asked for.
    pub refunding_at: Option<DateTime<Utc>>,
    /// When it was paid back.
    pub refunded_at: Option<DateTime<Utc>>,
}

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
