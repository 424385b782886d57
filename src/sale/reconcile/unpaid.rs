//! The lists of unpaid orders, which bound how many a user may hold, against the orders in Postgres.
//!
//! A place that is never freed refuses a user who has paid (`too_many_unpaid_orders`). An order that is on no list
//! bounds no user. Redis going back in time makes both. Without `--unpaid-orders-max` there are no lists, and
//! Postgres is not asked.
//!
//! * **From list to order.** Lists are read first, then the entries in flight, then dead letters, rows and the
//!   outbox, and then the lists once more. An order leaves its list before the outbox is done. So an order whose row
//!   has moved on, with no open return in the outbox, and that stands on its list even then, stays there.
//! * **From order to list.** An unpaid order is read first, then its list, then the order once more. If it is still
//!   unpaid, it was unpaid in between, and an unpaid order is never absent, since a claim enters its list first and
//!   leaves it last. Whether the bound held when an order was claimed is known only if an older one is on a list.

use std::collections::{HashMap, HashSet};

use super::{Check, Disagreement, Listing};
use crate::sale::Failure;
use crate::sale::ids::{CouponId, Lane, OrderId, UserId};
use crate::sale::order::live::{self, Unpaid};
use crate::sale::order::model::OrderStatus;

/// Orders read at a time; more would hold up all others.
const PAGE: usize = 1_000;
/// Users whose lists are read at a time, at first and at most: the fewer orders they name, the more next time.
const LISTS: usize = 100;
const LISTS_MAX: usize = 1_000;

/// An order on a user's list in a lane.
type Entry = (Lane, UserId, OrderId);

/// The row of a listed order.
struct Row {
    order: OrderId,
    coupon: CouponId,
    user: UserId,
    status: OrderStatus,
}

/// Orders that the lists of a lane name.
#[derive(Default)]
struct Listed {
    /// Orders that weren't unpaid rows of the list's user when they were looked up.
    unmatched: HashMap<OrderId, UserId>,
    /// The oldest order that is a row of the list's user: the bound has held since it was claimed.
    oldest: Option<OrderId>,
}

impl Check<'_> {
    /// Compares the lists of these lanes with the orders.
    pub(super) async fn unpaid_lists(
        &self,
        lanes: &[Lane],
        found: &mut Vec<Disagreement>,
    ) -> Result<(), Failure> {
        let mut bounded_since = HashMap::new();
        for &lane in lanes {
            match self.lists_of(lane, found).await {
                Ok(oldest) => bounded_since.extend(oldest.map(|order| (lane, order))),
                Err(failure) if failure.is_of_item() => {
                    let error = failure.to_string();
                    found.push(Disagreement::Listing(Listing::Unreadable { lane, error }));
                }
                Err(failure) => return Err(failure),
            }
        }
        if bounded_since.is_empty() {
            return Ok(());
        }
        self.not_listed(&bounded_since, found).await
    }

    /// Compares the lists of a lane. Returns the oldest order on them.
    async fn lists_of(
        &self,
        lane: Lane,
        found: &mut Vec<Disagreement>,
    ) -> Result<Option<OrderId>, Failure> {
        let Listed { unmatched, oldest } = self.listed(lane).await?;
        self.not_freed(lane, unmatched, found).await?;
        Ok(oldest)
    }

    /// Reads all lists of a lane, page by page, and looks the orders up.
    async fn listed(&self, lane: Lane) -> Result<Listed, Failure> {
        let mut listed = Listed::default();
        let mut cursor = 0;
        let mut lists = LISTS;
        loop {
            let mut command = redis::cmd("HSCAN");
            command.arg(self.keys.unpaid(lane)).arg(cursor).arg("COUNT").arg(lists);
            let (next, fields): (u64, Vec<String>) = self.redis.query(&command).await?;
            let orders: Vec<(UserId, OrderId)> =
                fields.chunks_exact(2).flat_map(|pair| orders_on(&pair[0], &pair[1])).collect();
            for page in orders.chunks(PAGE) {
                let rows = self.rows_of(page).await?;
                for &(user, order) in page {
                    let row = rows.get(&order).filter(|row| row.user == user);
                    if row.is_some() {
                        let oldest = listed.oldest.get_or_insert(order);
                        *oldest = order.min(*oldest);
                    }
                    if row.is_none_or(|row| row.status != OrderStatus::Unpaid) {
                        listed.unmatched.insert(order, user);
                    }
                }
            }
            if next == 0 {
                return Ok(listed);
            }
            cursor = next;
            lists = match orders.len() {
                few if few < PAGE / 2 => (2 * lists).min(LISTS_MAX),
                many if many > PAGE => (lists / 2).max(1),
                _ => lists,
            };
        }
    }

    /// Orders on lists that no pass removes.
    async fn not_freed(
        &self,
        lane: Lane,
        mut unmatched: HashMap<OrderId, UserId>,
        found: &mut Vec<Disagreement>,
    ) -> Result<(), Failure> {
        if unmatched.is_empty() {
            return Ok(());
        }
        self.each_in_flight(lane, |claim| {
            if unmatched.get(&claim.order_id) == Some(&claim.user_id) {
                unmatched.remove(&claim.order_id);
            }
        })
        .await?;
        let unmatched: Vec<(UserId, OrderId)> =
            unmatched.into_iter().map(|(order, user)| (user, order)).collect();
        for page in unmatched.chunks(PAGE) {
            let in_review = self.open_letters(page).await?;
            let rows = self.rows_of(page).await?;
            let leaving = self.leaving(page).await?;
            let stays = |(user, order): &&(UserId, OrderId)| {
                let is_unpaid = rows.get(order).is_some_and(|row| row.is_unpaid_of(*user));
                !is_unpaid && !in_review.contains(order) && !leaving.contains(order)
            };
            let staying = page.iter().filter(stays);
            let staying: Vec<Entry> = staying.map(|(user, order)| (lane, *user, *order)).collect();
            let still = staying.iter().zip(self.are_listed(&staying).await?);
            for (&(lane, user, order), _) in still.filter(|(_, is_listed)| *is_listed) {
                let row = rows.get(&order).filter(|row| row.user == user);
                let row = row.map(|row| (row.coupon, row.status));
                found.push(Disagreement::Listing(Listing::NotFreed { lane, user, order, row }));
            }
        }
        Ok(())
    }

    /// Unpaid orders that stand on no list, as far as they are younger than the oldest one on a list of their lane.
    async fn not_listed(
        &self,
        bounded_since: &HashMap<Lane, OrderId>,
        found: &mut Vec<Disagreement>,
    ) -> Result<(), Failure> {
        let mut after = None;
        loop {
            let page = live::unpaid_page(self.pool, after).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.position());
            let bounded = |one: &&Unpaid| {
                bounded_since.get(&one.coupon.lane()).is_some_and(|since| one.order > *since)
            };
            let unpaid = page.iter().filter(bounded);
            let unpaid: Vec<Entry> =
                unpaid.map(|one| (one.coupon.lane(), one.user, one.order)).collect();
            let absent = unpaid.iter().zip(self.are_listed(&unpaid).await?);
            let absent = absent.filter(|(_, is_listed)| !is_listed);
            let absent: Vec<(UserId, OrderId)> =
                absent.map(|((_, user, order), _)| (*user, *order)).collect();
            let rows = self.rows_of(&absent).await?;
            let still = absent.into_iter().filter_map(|(user, order)| {
                let row = rows.get(&order).filter(|row| row.is_unpaid_of(user))?;
                Some(Listing::Missing { coupon: row.coupon, user, order })
            });
            found.extend(still.map(Disagreement::Listing));
        }
    }

    /// Whether each of these orders stands on its user's list.
    async fn are_listed(&self, entries: &[Entry]) -> Result<Vec<bool>, Failure> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut commands = redis::pipe();
        for (lane, user, _) in entries {
            commands.cmd("HGET").arg(self.keys.unpaid(*lane)).arg(user.get());
        }
        let lists: Vec<Option<String>> = self.redis.query_all(&commands).await?;
        let names = |(list, (_, _, order)): (Option<String>, &Entry)| {
            list.is_some_and(|list| ids_in(&list).any(|id| id == *order))
        };
        Ok(lists.into_iter().zip(entries).map(names).collect())
    }

    async fn rows_of(&self, orders: &[(UserId, OrderId)]) -> sqlx::Result<HashMap<OrderId, Row>> {
        if orders.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT id AS "order: OrderId", coupon_id AS "coupon: CouponId",
                      user_id AS "user: UserId", status AS "status: OrderStatus"
               FROM orders WHERE id = ANY($1) AND kind = 'flash'"#,
            &ids_of(orders),
        );
        let rows = rows.fetch_all(self.pool).await?;
        Ok(rows.into_iter().map(|row| (row.order, row)).collect())
    }

    /// The orders among these that are open dead letters.
    async fn open_letters(&self, orders: &[(UserId, OrderId)]) -> sqlx::Result<HashSet<OrderId>> {
        let open = sqlx::query_scalar!(
            r#"SELECT order_id AS "order_id!: OrderId" FROM dead_letters
               WHERE order_id = ANY($1) AND resolved_at IS NULL"#,
            &ids_of(orders),
        );
        Ok(open.fetch_all(self.pool).await?.into_iter().collect())
    }

    /// The orders among these that the outbox is going to remove from their lists.
    async fn leaving(&self, orders: &[(UserId, OrderId)]) -> sqlx::Result<HashSet<OrderId>> {
        let leaving = sqlx::query_scalar!(
            // By the key: for IS NULL there is another index, in which a plan from before a burst would search all open rows.
            r#"SELECT order_id AS "order_id: OrderId" FROM stock_returns
               WHERE order_id = ANY($1) AND coalesce(done_at, 'infinity') = 'infinity'"#,
            &ids_of(orders),
        );
        Ok(leaving.fetch_all(self.pool).await?.into_iter().collect())
    }
}

impl Row {
    fn is_unpaid_of(&self, user: UserId) -> bool {
        self.user == user && self.status == OrderStatus::Unpaid
    }
}

/// The orders on a list. A field that names no user bounds no user.
fn orders_on(user: &str, list: &str) -> Vec<(UserId, OrderId)> {
    let user: Option<UserId> = user.parse().ok();
    user.into_iter().flat_map(|user| ids_in(list).map(move |order| (user, order))).collect()
}

/// The orders of a field, counted like the claim script does: runs of digits.
fn ids_in(list: &str) -> impl Iterator<Item = OrderId> {
    list.split(|c: char| !c.is_ascii_digit()).filter_map(|id| id.parse().ok())
}

fn ids_of(orders: &[(UserId, OrderId)]) -> Vec<i64> {
    orders.iter().map(|(_, order)| order.get()).collect()
}

impl Listing {
    /// The coupon of the fault, if it has one.
    pub fn coupon(&self) -> Option<CouponId> {
        match self {
            Self::NotFreed { row, .. } => row.map(|(coupon, _)| coupon),
            Self::Missing { coupon, .. } => Some(*coupon),
            Self::Unreadable { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_on_a_list_are_its_runs_of_digits_and_only_a_user_has_any() {
        for (user, list, expected) in [
            ("7", "", &[][..]),
            ("7", "12", &[(7, 12)]),
            ("7", "12 13", &[(7, 12), (7, 13)]),
            ("7", "12,13;x14", &[(7, 12), (7, 13), (7, 14)]),
            ("7", "0 99999999999999999999 5", &[(7, 5)]),
            ("x", "12", &[]),
            ("0", "12", &[]),
            ("", "12", &[]),
        ] {
            let orders = orders_on(user, list);
            let orders: Vec<_> =
                orders.iter().map(|(user, order)| (user.get(), order.get())).collect();
            assert_eq!(orders, expected, "{user:?} {list:?}");
            let ids: Vec<i64> = orders.iter().map(|(_, order)| *order).collect();
            assert_eq!(ids_of(&orders_on(user, list)), ids);
        }
    }

    #[test]
    fn a_row_is_unpaid_of_its_own_user_only() {
        let number = |id: i64| UserId::new(id).expect("a positive number");
        for (of, status, is_unpaid) in [
            (7, OrderStatus::Unpaid, true),
            (8, OrderStatus::Unpaid, false),
            (7, OrderStatus::Paid, false),
            (8, OrderStatus::Paid, false),
        ] {
            let order = OrderId::new(1).expect("a positive number");
            let row = Row { order, coupon: CouponId::compose(1, 1), user: number(7), status };
            assert_eq!(row.is_unpaid_of(number(of)), is_unpaid, "{of} {status:?}");
        }
    }
}
