//! Reads coupons from the stores, each time anew. `coupon/cache.rs` keeps what shoppers read.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::base::limits;
use crate::coupon::model::{
    Coupon, CouponFilter, CouponKind, CouponRow, CouponState, Sale, SaleTerms,
};
use crate::store::fleet::Fleet;
use crate::store::ids::CouponId;
use crate::store::keys::Keys;
use crate::store::redis::is_data_error;
use crate::store::{Failure, Stores};

#[derive(Clone)]
pub struct CouponReader {
    pool: PgPool,
    fleet: Fleet,
    keys: Keys,
}

impl CouponReader {
    pub fn new(stores: &Stores) -> Self {
        let Stores { pool, fleet, keys } = stores.clone();
        Self { pool, fleet, keys }
    }

    pub async fn get(&self, coupon: CouponId) -> Result<Option<Coupon>, Failure> {
        let row = self.row(coupon).await?;
        Ok(self.with_left(row.into_iter().collect()).await.pop())
    }

    /// Coupons below `before`, newest first.
    pub async fn list(
        &self,
        filter: CouponFilter,
        before: Option<CouponId>,
        limit: u32,
    ) -> Result<Vec<Coupon>, Failure> {
        let rows = self.rows(filter, before, limit).await?;
        Ok(self.with_left(rows).await)
    }

    /// The newest sales that are not over, and then the newest others, as Postgres has them: Redis isn't asked for the
    /// units left.
    pub async fn newest_sales(&self, now: DateTime<Utc>, limit: u32) -> sqlx::Result<Vec<Coupon>> {
        let flash = |state| CouponFilter { kind: Some(CouponKind::Flash), state: Some(state) };
        let mut not_ended = self.rows(flash(CouponState::Active), None, limits::PAGE_MAX).await?;
        not_ended.extend(self.rows(flash(CouponState::Paused), None, limits::PAGE_MAX).await?);
        let lasts = |row: &StoredRow| row.closes_at.is_some_and(|at| at > now);
        let (mut sales, mut over): (Vec<_>, Vec<_>) = not_ended.into_iter().partition(lasts);
        over.extend(self.rows(flash(CouponState::Ended), None, limit).await?);
        sales.sort_by_key(|row| Reverse(row.id));
        over.sort_by_key(|row| Reverse(row.id));
        sales.extend(over);
        sales.truncate(limit as usize);
        Ok(sales.into_iter().map(|row| row.coupon(None)).collect())
    }

    async fn row(&self, coupon: CouponId) -> sqlx::Result<Option<StoredRow>> {
        sqlx::query_as!(
            StoredRow,
            r#"SELECT id AS "id: CouponId", coupons.kind AS "kind: CouponKind", title, sub_title, rules,
                      pay_cents, currency, value_cents, state AS "state: CouponState", revision, total AS "total?",
                      sold AS "sold?", opens_at AS "opens_at?", closes_at AS "closes_at?",
                      coalesce(loaded_at IS NOT NULL AND archived_at IS NULL, false) AS "in_redis!"
               FROM coupons LEFT JOIN flash_sales ON coupon_id = id
               WHERE id = $1"#,
            coupon.get(),
        )
        .fetch_optional(&self.pool)
        .await
    }

    /// Reads a page of each kind and state by an index, and takes the newest of all.
    async fn rows(
        &self,
        filter: CouponFilter,
        before: Option<CouponId>,
        limit: u32,
    ) -> sqlx::Result<Vec<StoredRow>> {
        let kinds = CouponKind::ALL.into_iter().filter(|it| filter.kind.is_none_or(|of| of == *it));
        let states =
            CouponState::ALL.into_iter().filter(|it| filter.state.is_none_or(|of| of == *it));
        let kinds: Vec<String> = kinds.map(|kind| kind.as_str().to_owned()).collect();
        let states: Vec<String> = states.map(|state| state.as_str().to_owned()).collect();
        sqlx::query_as!(
            StoredRow,
            r#"SELECT id AS "id!: CouponId", found.kind AS "kind!: CouponKind", title AS "title!", sub_title AS "sub_title!",
                      rules AS "rules!", pay_cents AS "pay_cents!", currency AS "currency!", value_cents AS "value_cents!",
                      found.state AS "state!: CouponState", revision AS "revision!", total AS "total?",
                      sold AS "sold?", opens_at AS "opens_at?", closes_at AS "closes_at?",
                      coalesce(loaded_at IS NOT NULL AND archived_at IS NULL, false) AS "in_redis!"
               FROM (
                   SELECT page.* FROM UNNEST($1::text[]) AS one (kind) CROSS JOIN UNNEST($2::text[]) AS other (state) CROSS JOIN LATERAL (
                       -- Compared and sorted as rows, because only one index has this order. Sorted by id alone, the primary
                       -- key fits as well, in which a rare state lies behind all other coupons.
                       SELECT * FROM coupons
                       WHERE (coupons.kind, coupons.state, id) >= (one.kind, other.state, 0)
                         AND (coupons.kind, coupons.state, id) < (one.kind, other.state, coalesce($3, 9223372036854775807))
                       ORDER BY coupons.kind DESC, coupons.state DESC, id DESC LIMIT $4) AS page
                   ORDER BY page.id DESC LIMIT $4) AS found
               -- With a LIMIT the sales are looked up one by one. Otherwise all are read where their number is not known.
               LEFT JOIN LATERAL (SELECT * FROM flash_sales WHERE coupon_id = found.id LIMIT 1) AS sale ON true
               ORDER BY found.id DESC"#,
            &kinds,
            &states,
            before.map(CouponId::get),
            i64::from(limit),
        )
        .fetch_all(&self.pool)
        .await
    }

    /// The coupons of these rows, with the units left of their sales.
    async fn with_left(&self, rows: Vec<StoredRow>) -> Vec<Coupon> {
        let left = self.left_of(rows.iter().filter(|row| row.in_redis).map(|row| row.id)).await;
        let coupon = |row: StoredRow| {
            let left = left.get(&row.id).copied();
            row.coupon(left)
        };
        rows.into_iter().map(coupon).collect()
    }

    /// Units left of each of these sales, from Redis, which sells them; no entry for a sale that can't be read. A
    /// server that doesn't answer is asked only once: to ask it for one coupon after the other would take far too long.
    async fn left_of(&self, coupons: impl Iterator<Item = CouponId>) -> HashMap<CouponId, i64> {
        let (mut left, mut silent) = (HashMap::new(), HashSet::new());
        for coupon in coupons {
            let server = self.fleet.number(coupon.lane());
            if silent.contains(&server) {
                continue;
            }
            let mut command = redis::cmd("HGET");
            command.arg(self.keys.coupon(coupon)).arg("stock");
            match self.fleet.at(server).query::<Option<i64>>(&command).await {
                Ok(stock) => left.extend(stock.map(|stock| (coupon, stock))),
                Err(error) if is_data_error(&error) => {}
                Err(_) => drop(silent.insert(server)),
            }
        }
        left
    }
}

/// A coupon with its sale, as they stand in Postgres.
struct StoredRow {
    id: CouponId,
    kind: CouponKind,
    title: String,
    sub_title: String,
    rules: String,
    pay_cents: i64,
    currency: String,
    value_cents: i64,
    state: CouponState,
    revision: i64,
    /// Units on offer; none for a regular coupon.
    total: Option<i64>,
    sold: Option<i64>,
    opens_at: Option<DateTime<Utc>>,
    closes_at: Option<DateTime<Utc>>,
    /// Whether Redis has to hold the sale.
    in_redis: bool,
}

impl StoredRow {
    /// The coupon, with the units left as Redis has them. They count only while Redis has to hold the sale.
    fn coupon(self, left_in_redis: Option<i64>) -> Coupon {
        let sale = match (self.total, self.sold, self.opens_at, self.closes_at) {
            (Some(total), Some(sold), Some(opens_at), Some(closes_at)) => {
                let left = if self.in_redis { left_in_redis } else { Some(total - sold) };
                Some(Sale::new(SaleTerms { total, opens_at, closes_at }, left))
            }
            _ => None,
        };
        let row = CouponRow {
            kind: self.kind,
            title: self.title,
            sub_title: self.sub_title,
            rules: self.rules,
            pay_cents: self.pay_cents,
            currency: self.currency,
            value_cents: self.value_cents,
            state: self.state,
            revision: self.revision,
        };
        Coupon { id: self.id, row, sale }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sale of which one unit is sold, or a regular coupon.
    fn example(total: Option<i64>, in_redis: bool) -> StoredRow {
        let time = total.map(|_| DateTime::UNIX_EPOCH);
        StoredRow {
            id: CouponId::compose(1, 1),
            kind: if total.is_some() { CouponKind::Flash } else { CouponKind::Regular },
            title: "t".to_owned(),
            sub_title: String::new(),
            rules: String::new(),
            pay_cents: 1,
            currency: "CNY".to_owned(),
            value_cents: 2,
            state: CouponState::Active,
            revision: 3,
            total,
            sold: total.map(|_| 1),
            opens_at: time,
            closes_at: time,
            in_redis,
        }
    }

    #[test]
    fn units_left_are_those_of_redis_while_it_holds_the_sale_and_of_postgres_otherwise() {
        for (total, in_redis, in_redis_left, left) in [
            (Some(10), true, Some(7), Some(Some(7))),
            (Some(10), true, None, Some(None)),
            (Some(10), false, Some(7), Some(Some(9))),
            (None, false, Some(7), None),
        ] {
            let coupon = example(total, in_redis).coupon(in_redis_left);
            let sale = coupon.sale.as_ref();
            assert_eq!(sale.map(|sale| sale.left), left, "{total:?} {in_redis}");
            assert_eq!(sale.map(|sale| sale.total), total);
        }
    }
}
