//! The books of an installation after its upgrade: each promise is a row, each unit is counted, both stores agree.

use std::collections::BTreeSet;

use private_servers::testing::eventually;

use super::crowd::{History, Told, USER_MIN};
use super::installation::{Binary, Installation};
use super::shop::Shop;

/// Examples that a failure names.
const EXAMPLES: usize = 5;
/// Statuses of live orders.
const LIVE: &str = "status IN ('unpaid', 'paid', 'redeemed', 'refunding')";

/// Each 202 of any process is one row with the id that was answered, and there is no other row of the crowd's users.
/// Returns the number of rows.
pub async fn assert_promises_kept(installation: &Installation, history: &History) -> usize {
    let promised: BTreeSet<Told> =
        history.told.iter().filter(|told| told.order.is_some()).copied().collect();
    let count = format!("SELECT count(*) FROM orders WHERE user_id >= {USER_MIN}");
    let expected = i64::try_from(promised.len()).expect("some");
    eventually("everything is written", async || installation.number(&count).await >= expected)
        .await;
    let query = "SELECT coupon_id, user_id, id FROM orders WHERE user_id >= $1";
    let rows: Vec<(i64, i64, i64)> = sqlx::query_as(query)
        .bind(USER_MIN)
        .fetch_all(&installation.pool)
        .await
        .expect("Postgres answers");
    let rows = rows.into_iter().map(|(coupon, user, id)| Told { coupon, user, order: Some(id) });
    let rows: BTreeSet<Told> = rows.collect();
    let lost: Vec<&Told> = promised.difference(&rows).take(EXAMPLES).collect();
    assert!(lost.is_empty(), "no row for {lost:?} ...");
    let unasked: Vec<&Told> = rows.difference(&promised).take(EXAMPLES).collect();
    assert!(unasked.is_empty(), "no claim of the crowd is {unasked:?} ...");
    let users: BTreeSet<(i64, i64)> = rows.iter().map(|row| (row.coupon, row.user)).collect();
    assert_eq!(users.len(), rows.len(), "a user has two orders of one coupon");
    rows.len()
}

/// "Sold out" was the truth: all units of the small sale are the crowd's.
pub fn assert_sold_out_was_true(shop: &Shop, history: &History, units: i64) {
    let of_small: Vec<&Told> =
        history.told.iter().filter(|told| told.coupon == shop.small).collect();
    let buyers = of_small.iter().filter(|told| told.order.is_some()).count();
    assert!(buyers < of_small.len(), "the small sale was never sold out");
    assert_eq!(i64::try_from(buyers).expect("some"), units, "sold out, and yet units are left");
}

/// No sale has more live orders than units, each unit is a live order or left, and no claim is a dead letter.
pub async fn assert_units_add_up(installation: &Installation, shop: &Shop) {
    let api = installation.api().await;
    for coupon in [shop.large, shop.small, shop.mixed] {
        let live = format!("SELECT count(*) FROM orders WHERE coupon_id = {coupon} AND {LIVE}");
        // Units of closed orders come back a moment later.
        eventually("each unit is left or a live order", async || {
            let (total, left) = api.units(coupon).await;
            let live = installation.number(&live).await;
            assert!(live <= total, "coupon {coupon} has {total} units and {live} live orders");
            total == left + live
        })
        .await;
    }
    let twice = format!(
        "SELECT count(*) FROM (SELECT FROM orders WHERE kind = 'flash' AND {LIVE}
         GROUP BY coupon_id, user_id HAVING count(*) > 1) AS twice"
    );
    assert_eq!(installation.number(&twice).await, 0, "a user has two live orders of one coupon");
    assert_eq!(api.dead_letters().await, 0, "a claim has become a dead letter");
}

/// `flash-sale reconcile` of the present binary agrees. Returns its last line.
pub async fn assert_stores_agree(installation: &Installation) -> String {
    let compared = installation.run(Binary::Present, &["reconcile"]).await;
    let findings = compared.stdout.lines().filter(|line| line.starts_with("DISAGREE"));
    let findings: Vec<&str> = findings.take(EXAMPLES).collect();
    assert_eq!(compared.code, Some(0), "{}\n{}", findings.join("\n"), compared.stderr);
    compared.stdout.lines().last().unwrap_or_default().to_owned()
}
