//! Creates and reads coupons.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::PgPool;

use crate::base::shutdown::Shutdown;
use crate::kit::redis::{Redis, is_data_error};
use crate::sale::coupon::input::NewCoupon;
use crate::sale::coupon::load::WarmUp;
use crate::sale::coupon::model::{Coupon, CouponKind, CouponState, Sale};
use crate::sale::coupon::stock;
use crate::sale::ids::CouponId;
use crate::sale::installation;
use crate::sale::keys::Keys;
use crate::sale::{Failure, Stores};

/// Creates and reads coupons.
pub struct Coupons {
    pool: PgPool,
    redis: Redis,
    keys: Keys,
    warm_up: Arc<WarmUp>,
    /// Owner of transactions that a request must not break off half-way.
    shutdown: Shutdown,
}

impl Coupons {
    /// Coupons over these stores.
    pub fn new(stores: &Stores, warm_up: Arc<WarmUp>, shutdown: Shutdown) -> Self {
        let Stores { pool, redis, keys } = stores.clone();
        Self { pool, redis, keys, warm_up, shutdown }
    }

    /// Creates a valid coupon and, if it has a sale, loads it. While Redis is away the coupon is created all the
    /// same, and its first claim loads it.
    pub async fn create(&self, new: NewCoupon) -> Result<Coupon, Failure> {
        let (pool, kind) = (self.pool.clone(), new.kind);
        // A task of its own: dropping a `begin` half-way can poison the connection (sqlx#4393).
        let inserted = self.shutdown.spawn(async move { insert(&pool, &new).await }).await;
        let id = inserted.map_err(|_| sqlx::Error::WorkerCrashed)??;
        if kind == CouponKind::Flash
            && let Err(error) = self.warm_up.resolve_now(id).await
        {
            tracing::warn!(coupon = %id, %error, "a new sale could not be loaded; its first claim will try again");
        }
        Ok(self.get(id).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    /// One coupon.
    pub async fn get(&self, coupon: CouponId) -> Result<Option<Coupon>, Failure> {
        // Ids are whole numbers, so "before the next one" and a limit of one is "this one or older".
        let before = CouponId::new(coupon.get().saturating_add(1)).unwrap_or(coupon);
        let found = self.list(Some(before), 1).await?.pop();
        Ok(found.filter(|found| found.id == coupon))
    }

    /// Coupons, newest first, from before the given one on.
    pub async fn list(&self, before: Option<CouponId>, limit: u32) -> Result<Vec<Coupon>, Failure> {
        let rows = sqlx::query!(
            r#"SELECT id AS "id: CouponId", coupons.kind AS "kind: CouponKind", title, sub_title, rules,
                      pay_cents, value_cents, state AS "state: CouponState", revision, total AS "total?",
                      sold AS "sold?", opens_at AS "opens_at?", closes_at AS "closes_at?",
                      coalesce(loaded_at IS NOT NULL AND archived_at IS NULL, false) AS "in_redis!"
               FROM coupons LEFT JOIN flash_sales ON coupon_id = id
               WHERE id < coalesce($1, 9223372036854775807) ORDER BY id DESC LIMIT $2"#,
            before.map(CouponId::get),
            i64::from(limit),
        )
        .fetch_all(&self.pool)
        .await?;
        let left = self.left_of(rows.iter().filter(|row| row.in_redis).map(|row| row.id)).await;
        let coupons = rows.into_iter().map(|row| Coupon {
            sale: row.total.zip(row.sold).zip(row.opens_at.zip(row.closes_at)).map(
                |((stock, sold), (opens_at, closes_at))| {
                    let unloaded = (!row.in_redis).then_some(stock - sold);
                    Sale {
                        stock,
                        left: unloaded.or(left.get(&row.id).copied()),
                        opens_at,
                        closes_at,
                    }
                },
            ),
            id: row.id,
            kind: row.kind,
            title: row.title,
            sub_title: row.sub_title,
            rules: row.rules,
            pay_cents: row.pay_cents,
            value_cents: row.value_cents,
            state: row.state,
            revision: row.revision,
        });
        Ok(coupons.collect())
    }

    /// Units left of each of these sales, by Redis, which sells them; none for a sale that can't be read. Stops when
    /// Redis doesn't answer: asking for one coupon after the other would take far too long then.
    async fn left_of(&self, coupons: impl Iterator<Item = CouponId>) -> HashMap<CouponId, i64> {
        let mut left = HashMap::new();
        for coupon in coupons {
            let mut command = redis::cmd("HGET");
            command.arg(self.keys.coupon(coupon)).arg("stock");
            match self.redis.query::<Option<i64>>(&command).await {
                Ok(stock) => left.extend(stock.map(|stock| (coupon, stock))),
                Err(error) if is_data_error(&error) => {}
                Err(_) => break,
            }
        }
        left
    }
}

async fn insert(pool: &PgPool, new: &NewCoupon) -> sqlx::Result<CouponId> {
    // Before the transaction begins: a holder of one connection must not wait for another.
    let lanes = installation::read(pool).await?.lanes;
    let mut tx = pool.begin().await?;
    let sequence = sqlx::query_scalar!(r#"SELECT nextval('coupon_sequence') AS "sequence!""#)
        .fetch_one(&mut *tx)
        .await?;
    let id = CouponId::compose(sequence, lanes);
    sqlx::query!(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        id.get(),
        new.kind.as_str(),
        new.title,
        new.sub_title,
        new.rules,
        new.pay_cents,
        new.value_cents,
    )
    .execute(&mut *tx)
    .await?;
    if let Some(sale) = &new.sale {
        stock::insert(&mut tx, id, sale).await?;
    }
    tx.commit().await?;
    Ok(id)
}
