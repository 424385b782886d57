//! Invariants about stock and buyers.

use std::collections::BTreeSet;

use super::verdict::{Broken, POISON_ORDERS_MAX};
use crate::facts::{Evidence, RedisSale, SaleFacts};

/// Ids that a message spells out.
const NAMED_MAX: usize = 5;

/// I1 to I4 and I8.
pub fn check(evidence: &Evidence, broken: &mut Vec<Broken>) {
    for detail in &evidence.seen_on_the_way {
        broken.push(Broken { invariant: "I1", detail: detail.clone() });
    }
    for sale in &evidence.sales {
        let coupon = sale.coupon;
        let Some(redis) = &sale.redis else {
            let detail = format!("coupon {coupon} is not in Redis");
            broken.push(Broken { invariant: "I1", detail });
            continue;
        };
        broken.extend(conserved(coupon, redis));
        broken.extend(same_orders(evidence, coupon, redis));
        broken.extend(same_users(evidence, coupon, redis));
        broken.extend(within_total(evidence, sale));
    }
}

/// I1 and I8 of a sale in Redis at one moment.
pub fn conserved(coupon: i64, sale: &RedisSale) -> Vec<Broken> {
    let RedisSale { total, stock, shards_missing, buyers } = sale;
    let mut broken = Vec::new();
    let count = i64::try_from(buyers.len()).unwrap_or(i64::MAX);
    if *shards_missing > 0 {
        let detail = format!("coupon {coupon}: {shards_missing} shards of buyers are missing");
        broken.push(Broken { invariant: "I1", detail });
    } else if *total != stock + count {
        let detail = format!("coupon {coupon}: total {total}, stock {stock}, {count} buyers");
        broken.push(Broken { invariant: "I1", detail });
    }
    if *stock < 0 {
        let detail = format!("coupon {coupon}: the stock is {stock}");
        broken.push(Broken { invariant: "I8", detail });
    }
    broken
}

/// I2: by order id, buyers = live orders + units on their way back + open dead letters that hold a unit.
fn same_orders(evidence: &Evidence, coupon: i64, redis: &RedisSale) -> Option<Broken> {
    let buyers: BTreeSet<(i64, i64)> = redis.buyers.iter().map(|(u, o)| (*u, *o)).collect();
    let mut expected = live(evidence, coupon);
    let coming = evidence.returns.iter().filter(|r| r.coupon == coupon && r.done.is_none());
    expected.extend(coming.map(|r| (r.user, r.order)));
    expected.extend(letters_with_unit(evidence, coupon, redis));
    differs("I2", coupon, "(user, order)", &buyers, &expected)
}

/// I4: the users of both.
fn same_users(evidence: &Evidence, coupon: i64, redis: &RedisSale) -> Option<Broken> {
    let buyers: BTreeSet<i64> = redis.buyers.keys().copied().collect();
    let live = live(evidence, coupon).into_iter();
    let expected =
        live.chain(letters_with_unit(evidence, coupon, redis)).map(|(user, _)| user).collect();
    differs("I4", coupon, "user", &buyers, &expected)
}

fn live(evidence: &Evidence, coupon: i64) -> BTreeSet<(i64, i64)> {
    let rows = evidence.rows.iter().filter(|row| row.coupon == coupon && row.is_live);
    rows.map(|row| (row.user, row.order)).collect()
}

/// Open letters whose user is a buyer by them.
fn letters_with_unit(evidence: &Evidence, coupon: i64, redis: &RedisSale) -> BTreeSet<(i64, i64)> {
    let letters = evidence.letters.iter().filter(|letter| letter.is_open);
    let claims = letters.filter_map(|letter| letter.claim);
    let ours = claims.filter(|(of, _, order)| *of == coupon && *order >= POISON_ORDERS_MAX);
    let ours = ours.filter(|(_, user, order)| redis.buyers.get(user) == Some(order));
    ours.map(|(_, user, order)| (user, order)).collect()
}

fn differs<T: Copy + Ord + std::fmt::Debug>(
    invariant: &'static str,
    coupon: i64,
    of: &str,
    redis: &BTreeSet<T>,
    postgres: &BTreeSet<T>,
) -> Option<Broken> {
    let named = |one: &BTreeSet<T>, two: &BTreeSet<T>| {
        let only: Vec<T> = one.difference(two).copied().collect();
        format!("{} {:?}", only.len(), &only[..only.len().min(NAMED_MAX)])
    };
    (redis != postgres).then(|| {
        let detail = format!(
            "coupon {coupon}: {of} only in Redis: {}; only in Postgres: {}",
            named(redis, postgres),
            named(postgres, redis),
        );
        Broken { invariant, detail }
    })
}

/// I3: live orders within the total, and counted.
fn within_total(evidence: &Evidence, sale: &SaleFacts) -> Option<Broken> {
    let live = live(evidence, sale.coupon).len();
    let live = i64::try_from(live).unwrap_or(i64::MAX);
    let SaleFacts { coupon, total, sold, .. } = sale;
    (live > *total || live != *sold).then(|| {
        let detail = format!("coupon {coupon}: {live} live orders, sold {sold}, total {total}");
        Broken { invariant: "I3", detail }
    })
}
