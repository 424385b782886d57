//! The verdict on a storm: a pure function of what the crowd was told and what the stores have.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use sqlx::PgPool;

use super::crowd::{Outcome, Told};
use crate::order::live;
use crate::store::ids::{CouponId, OrderId, UserId};
use crate::store::{Failure, Stores};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub word: Word,
    /// Units that Redis has sold.
    pub sold: i64,
    /// Rows of live orders in Postgres.
    pub rows: i64,
    /// Distinct buyers in these rows.
    pub buyers: i64,
    /// Accepted orders. Each was looked up by its id.
    pub looked_up: i64,
    /// Accepted orders that aren't rows of their buyers.
    pub lost: i64,
    /// Rows beyond the stock.
    pub oversold: i64,
    /// Second and further orders of one buyer, as rows or as answers.
    pub twice: i64,
    /// Rows that no shopper was told of, beyond one for each shopper that never got an answer.
    pub unexplained: i64,
    /// Shoppers that were told "sold out" while units were left.
    pub turned_away: i64,
    /// Accepted orders that were closed since, for example by expiry.
    pub closed: i64,
    /// Time from the first shopper to the first "sold out".
    pub sold_out_ms: Option<u64>,
    /// Time within which half of the shoppers had their final answer.
    pub p50_us: u64,
    /// Time within which 99 of 100 had it.
    pub p99_us: u64,
    /// Longest time from a claim to its row, by the clocks of Redis and Postgres.
    pub last_row_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    Kept,
    Broken,
    /// No promise was broken, but orders were closed meanwhile, so the numbers can't be compared.
    Incomparable,
}

#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Units that the sale had at its start.
    pub stock: i64,
    pub left: i64,
    pub live: Vec<(UserId, OrderId)>,
    /// Those of the accepted orders that have rows: the buyer, and whether the order is live.
    pub rows: HashMap<OrderId, (UserId, bool)>,
    /// Longest time from a claim to its row.
    pub last_row_ms: Option<i64>,
}

pub async fn left(stores: &Stores, coupon: CouponId) -> Result<i64, Failure> {
    let Stores { keys, .. } = stores;
    let redis = stores.redis(coupon.lane());
    Ok(redis.query(redis::cmd("HGET").arg(keys.coupon(coupon)).arg("stock")).await?)
}

/// Number of live orders, as the transactions that insert rows count them.
pub async fn rows(pool: &PgPool, coupon: CouponId) -> sqlx::Result<i64> {
    sqlx::query_scalar!("SELECT sold FROM flash_sales WHERE coupon_id = $1", coupon.get())
        .fetch_one(pool)
        .await
}

/// Reads all facts for a verdict, order by order.
pub async fn found(
    stores: &Stores,
    coupon: CouponId,
    stock: i64,
    told: &[(OrderId, UserId)],
) -> Result<Found, Failure> {
    let (left, pool) = (left(stores, coupon).await?, &stores.pool);
    let mut rows = HashMap::new();
    for page in told.chunks(live::PAGE) {
        rows.extend(live::by_id(pool, coupon, page.iter().map(|(order, _)| *order)).await?);
    }
    let limit = i64::try_from(live::PAGE).unwrap_or(i64::MAX);
    let mut live: Vec<(UserId, OrderId)> = Vec::new();
    loop {
        let after = live.last().map(|(user, _)| *user);
        let page = live::live_page(pool, coupon, after, limit).await?;
        if page.is_empty() {
            break;
        }
        live.extend(page);
    }
    let last_row_ms = sqlx::query_scalar!(
        "SELECT (1000 * extract(epoch FROM max(created_at - claimed_at)))::bigint AS ms FROM orders
         WHERE coupon_id = $1 AND kind = 'flash' AND is_live(status)",
        coupon.get(),
    )
    .fetch_one(pool)
    .await?;
    Ok(Found { stock, left, live, rows, last_row_ms })
}

impl Verdict {
    pub fn of(told: &Told, found: &Found) -> Self {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let count = |outcome| told.outcomes.get(&outcome).copied().unwrap_or(0).cast_signed();
        let orders: HashMap<OrderId, UserId> = told.orders.iter().copied().collect();
        let accepted: HashSet<UserId> = told.orders.iter().map(|(_, user)| *user).collect();
        let is_row = |(order, user): &&(OrderId, UserId)| {
            found.rows.get(order).is_some_and(|(buyer, _)| buyer == user)
        };
        let kept = number(told.orders.iter().filter(is_row).count());
        let closed = number(found.rows.values().filter(|(_, live)| !live).count());
        let buyers = found.live.iter().map(|(user, _)| *user).collect::<HashSet<_>>().len();
        let untold = found.live.iter().filter(|(_, order)| !orders.contains_key(order)).count();
        let (rows, sold) = (number(found.live.len()), found.stock - found.left);
        let mut waited = told.waited_us.clone();
        waited.sort_unstable();
        let of_100 = |count: usize| waited.get(waited.len() * count / 100).copied().unwrap_or(0);
        let further = number(told.orders.len()) - number(accepted.len()) + rows - number(buyers);
        let mut verdict = Self {
            word: Word::Broken,
            sold,
            rows,
            buyers: number(buyers),
            looked_up: number(told.orders.len()),
            lost: number(told.orders.len()) - kept,
            oversold: (rows - found.stock).max(0),
            twice: further + told.repeats.other.cast_signed(),
            unexplained: (number(untold) - count(Outcome::Unknown)).max(0),
            turned_away: if found.left > 0 && closed == 0 { count(Outcome::SoldOut) } else { 0 },
            closed,
            sold_out_ms: told.sold_out_ms,
            p50_us: of_100(50),
            p99_us: of_100(99),
            last_row_ms: found.last_row_ms,
        };
        verdict.word = verdict.in_a_word();
        verdict
    }

    fn in_a_word(&self) -> Word {
        let faults = [self.lost, self.oversold, self.twice, self.unexplained, self.turned_away];
        let is_whole = self.sold == self.rows && self.rows == self.buyers;
        match (faults == [0; 5], self.closed == 0) {
            (false, _) => Word::Broken,
            (true, false) => Word::Incomparable,
            (true, true) if is_whole => Word::Kept,
            (true, true) => Word::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::crowd::Repeats;
    use super::*;

    fn user(number: i64) -> UserId {
        UserId::new(number).unwrap()
    }

    fn order(number: i64) -> OrderId {
        OrderId::new(number).unwrap()
    }

    /// Three shoppers, two units: two orders, and one "sold out".
    fn storm() -> (Told, Found) {
        let told = Told {
            orders: vec![(order(11), user(1)), (order(12), user(2))],
            outcomes: BTreeMap::from([(Outcome::Won, 2), (Outcome::SoldOut, 1)]),
            ..Told::default()
        };
        let found = Found {
            stock: 2,
            left: 0,
            live: vec![(user(1), order(11)), (user(2), order(12))],
            rows: HashMap::from([(order(11), (user(1), true)), (order(12), (user(2), true))]),
            last_row_ms: Some(5),
        };
        (told, found)
    }

    fn verdict(change: impl FnOnce(&mut Told, &mut Found)) -> Verdict {
        let (mut told, mut found) = storm();
        change(&mut told, &mut found);
        Verdict::of(&told, &found)
    }

    #[test]
    fn a_storm_without_a_fault_is_kept() {
        let kept = verdict(|_, _| {});
        assert_eq!((kept.word, kept.sold, kept.rows, kept.buyers), (Word::Kept, 2, 2, 2));
        assert_eq!(kept.looked_up, 2);
    }

    #[test]
    fn each_fault_has_its_number_and_breaks_the_verdict() {
        let lost = verdict(|_, found| {
            found.rows.remove(&order(11));
            found.live.remove(0);
        });
        assert_eq!((lost.word, lost.lost), (Word::Broken, 1));
        let anothers = verdict(|_, found| {
            found.rows.insert(order(11), (user(9), true));
        });
        assert_eq!((anothers.word, anothers.lost), (Word::Broken, 1));
        let oversold = verdict(|_, found| found.live.push((user(3), order(13))));
        assert_eq!((oversold.word, oversold.oversold, oversold.unexplained), (Word::Broken, 1, 1));
        let twice = verdict(|_, found| found.live.push((user(2), order(13))));
        assert_eq!((twice.word, twice.twice, twice.buyers), (Word::Broken, 1, 2));
        let told_twice = verdict(|told, _| told.repeats.other = 1);
        assert_eq!((told_twice.word, told_twice.twice), (Word::Broken, 1));
        let turned_away = verdict(|_, found| found.left = 1);
        assert_eq!((turned_away.word, turned_away.turned_away), (Word::Broken, 1));
    }

    /// Several faults at once: each number counts only its own.
    #[test]
    fn each_number_of_a_verdict_counts_its_own_fault() {
        let orders = [(11, 1), (12, 2), (13, 3), (14, 3), (15, 5)];
        let live = [(1, 11), (2, 12), (3, 13), (3, 14), (6, 16), (7, 17), (8, 18)];
        let told = Told {
            orders: orders.map(|(id, buyer)| (order(id), user(buyer))).to_vec(),
            outcomes: BTreeMap::from([
                (Outcome::Won, 5),
                (Outcome::SoldOut, 3),
                (Outcome::Unknown, 1),
            ]),
            repeats: Repeats { same: 0, other: 2 },
            sold_out_ms: Some(2),
            waited_us: vec![4, 3, 1],
            ..Told::default()
        };
        let rows = [(11, 1), (12, 2), (13, 3), (14, 3)];
        let mut found = Found {
            stock: 4,
            left: 1,
            live: live.map(|(buyer, id)| (user(buyer), order(id))).to_vec(),
            rows: rows.map(|(id, buyer)| (order(id), (user(buyer), true))).into(),
            last_row_ms: Some(9),
        };
        let expected = Verdict {
            word: Word::Broken,
            sold: 3,
            rows: 7,
            buyers: 6,
            looked_up: 5,
            lost: 1,
            oversold: 3,
            // One shopper got two orders, one has two rows, and two were told a different order.
            twice: 4,
            unexplained: 2,
            turned_away: 3,
            closed: 0,
            sold_out_ms: Some(2),
            p50_us: 3,
            p99_us: 4,
            last_row_ms: Some(9),
        };
        assert_eq!(Verdict::of(&told, &found), expected);
        // A unit that is left may have come from a closed order.
        found.rows.insert(order(14), (user(3), false));
        let closed = Verdict { closed: 1, turned_away: 0, ..expected };
        assert_eq!(Verdict::of(&told, &found), closed);
    }

    #[test]
    fn numbers_that_differ_are_never_kept() {
        let unsold = verdict(|told, found| {
            told.outcomes.remove(&Outcome::SoldOut);
            found.left = 1;
        });
        assert_eq!(unsold.word, Word::Broken);
    }

    #[test]
    fn a_shopper_without_an_answer_may_have_an_order() {
        let of_unknown = |told: &mut Told, found: &mut Found| {
            told.orders.pop();
            found.rows.remove(&order(12));
            told.outcomes = BTreeMap::from([(Outcome::Won, 1), (Outcome::Unknown, 1)]);
        };
        assert_eq!(verdict(of_unknown).word, Word::Kept);
        let of_nobody = |told: &mut Told, found: &mut Found| {
            of_unknown(told, found);
            told.outcomes.remove(&Outcome::Unknown);
        };
        assert_eq!((verdict(of_nobody).word, verdict(of_nobody).unexplained), (Word::Broken, 1));
    }

    #[test]
    fn orders_that_were_closed_meanwhile_leave_no_praise() {
        let closed = verdict(|_, found| {
            found.rows.insert(order(11), (user(1), false));
            found.live.remove(0);
            found.left = 1;
        });
        assert_eq!((closed.word, closed.lost, closed.closed), (Word::Incomparable, 0, 1));
    }
}
