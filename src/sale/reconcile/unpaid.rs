//! The lists of unpaid orders, which bound how many a user may hold, against the orders in Postgres. A place that is never
//! freed refuses a user who has paid (`too_many_unpaid_orders`). Without `--unpaid-orders-max` there are no lists.
//!
//! Lists are read first, then rows and the outbox, and then the lists once more. An order leaves its list before the
//! outbox is done. So an order whose row has moved on, with no open return in the outbox, and that stands on its list
//! even then, stays there.

use super::disagreement::{Disagreement, Kind};
use crate::sale::ids::{CouponId, Lane, OrderId, UserId};
use crate::sale::{Failure, Stores};

/// Users whose lists are read at a time.
const LISTS: usize = 500;

/// Compares the lists of these lanes with the orders.
pub(super) async fn check(
    stores: &Stores,
    lanes: &[Lane],
    found: &mut Vec<Disagreement>,
) -> Result<(), Failure> {
    for &lane in lanes {
        match check_lane(stores, lane, found).await {
            Err(failure) if failure.is_of_item() => {
                let words = format!(
                    "its lists of unpaid orders can't be read ({failure}). With --unpaid-orders-max its claims are refused"
                );
                found.push(Disagreement::of_lane(lane, Kind::PlacesUnreadable, words));
            }
            checked => checked?,
        }
    }
    Ok(())
}

async fn check_lane(
    stores: &Stores,
    lane: Lane,
    found: &mut Vec<Disagreement>,
) -> Result<(), Failure> {
    let mut cursor = 0;
    loop {
        let mut command = redis::cmd("HSCAN");
        command.arg(stores.keys.unpaid(lane)).arg(cursor).arg("COUNT").arg(LISTS);
        let (next, fields): (u64, Vec<String>) = stores.redis.query(&command).await?;
        let listed: Vec<(UserId, OrderId)> =
            fields.chunks_exact(2).flat_map(|pair| orders_on(&pair[0], &pair[1])).collect();
        for (user, order, coupon, status) in stuck(stores, &listed).await? {
            if is_listed(stores, lane, (user, order)).await? {
                let words = format!(
                    "order {order} of user {user} is {status}, and still on the user's list of unpaid orders. The user may be refused too early"
                );
                let claim = (user, order);
                found.push(Disagreement::of_claim(coupon, claim, Kind::PlaceNotFreed, words));
            }
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

/// The orders among these that are no longer unpaid, and that no return takes off their list.
async fn stuck(
    stores: &Stores,
    listed: &[(UserId, OrderId)],
) -> sqlx::Result<Vec<(UserId, OrderId, CouponId, String)>> {
    let (users, orders): (Vec<i64>, Vec<i64>) =
        listed.iter().map(|(user, order)| (user.get(), order.get())).unzip();
    let rows = sqlx::query!(
        r#"SELECT orders.user_id AS "user: UserId", id AS "order: OrderId", coupon_id AS "coupon: CouponId", status
           FROM unnest($1::bigint[], $2::bigint[]) AS listed (user_id, order_id)
                JOIN orders ON id = order_id AND orders.user_id = listed.user_id
           WHERE status <> 'unpaid' AND kind = 'flash'
             AND NOT EXISTS (SELECT FROM stock_returns AS back
                             WHERE back.order_id = orders.id AND back.done_at IS NULL)"#,
        &users,
        &orders,
    );
    let rows = rows.fetch_all(&stores.pool).await?.into_iter();
    Ok(rows.map(|row| (row.user, row.order, row.coupon, row.status)).collect())
}

async fn is_listed(
    Stores { redis, keys, .. }: &Stores,
    lane: Lane,
    (user, order): (UserId, OrderId),
) -> Result<bool, Failure> {
    let mut command = redis::cmd("HGET");
    let list: Option<String> = redis.query(command.arg(keys.unpaid(lane)).arg(user.get())).await?;
    Ok(list.is_some_and(|list| orders_on(&user.to_string(), &list).contains(&(user, order))))
}

/// The orders on a list, counted like the claim script does: runs of digits. A field that names no user bounds no user.
fn orders_on(user: &str, list: &str) -> Vec<(UserId, OrderId)> {
    let user: Option<UserId> = user.parse().ok();
    let ids = || list.split(|c: char| !c.is_ascii_digit()).filter_map(|id| id.parse().ok());
    user.into_iter().flat_map(|user| ids().map(move |order| (user, order))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_on_a_list_are_its_runs_of_digits_and_only_a_user_has_any() {
        for (user, list, expected) in [
            ("7", "", &[][..]),
            ("7", "12", &[(7, 12)]),
            ("7", "12,13;x14", &[(7, 12), (7, 13), (7, 14)]),
            ("7", "0 99999999999999999999 5", &[(7, 5)]),
            ("x", "12", &[]),
            ("0", "12", &[]),
        ] {
            let orders = orders_on(user, list);
            let orders: Vec<_> =
                orders.iter().map(|(user, order)| (user.get(), order.get())).collect();
            assert_eq!(orders, expected, "{user:?} {list:?}");
        }
    }
}
