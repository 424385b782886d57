//! Redis about a user: places among the buyers of sales, and lists of unpaid orders.

use serde::Serialize;

use crate::sale::ids::{CouponId, Lane, OrderId, UserId};
use crate::sale::{Failure, Stores, buyers, installation};

/// A user's place among the buyers of a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Place {
    pub(super) coupon_id: CouponId,
    pub(super) order_id: OrderId,
}

/// A user's list of unpaid orders in a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct UnpaidList {
    lane: i32,
    order_ids: Vec<OrderId>,
}

/// Places of the user among the buyers of all sales that Redis has.
pub(super) async fn places(stores: &Stores, user: UserId) -> Result<Vec<Place>, Failure> {
    let coupons = sqlx::query_scalar!(
        r#"SELECT coupon_id AS "coupon: CouponId" FROM flash_sales
           WHERE loaded_at IS NOT NULL AND removed_at IS NULL ORDER BY coupon_id"#
    );
    let mut places = Vec::new();
    for coupon_id in coupons.fetch_all(&stores.pool).await? {
        let (redis, keys) = (&stores.redis, &stores.keys);
        let held = buyers::orders_of(redis, keys, coupon_id, [user].into_iter()).await?;
        places.extend(held.into_iter().flatten().map(|order_id| Place { coupon_id, order_id }));
    }
    Ok(places)
}

/// Lists of the user's unpaid orders.
pub(super) async fn unpaid(stores: &Stores, user: UserId) -> Result<Vec<UnpaidList>, Failure> {
    let lanes = installation::read(&stores.pool).await?.lanes;
    let mut lists = Vec::new();
    for lane in Lane::all(lanes) {
        let mut command = redis::cmd("HGET");
        command.arg(stores.keys.unpaid(lane)).arg(user.get());
        let order_ids: Option<String> = stores.redis.query(&command).await?;
        lists.extend(order_ids.map(|list| {
            let ids = list.split(|c: char| !c.is_ascii_digit());
            let order_ids = ids.filter_map(|id| id.parse().ok()).collect();
            UnpaidList { lane: lane.get(), order_ids }
        }));
    }
    Ok(lists)
}
