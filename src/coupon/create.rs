//! Creates and reads coupons.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use crate::base::shutdown::Shutdown;
use crate::coupon::cache::CouponCache;
use crate::coupon::creation_keys::{self, CreationKey, Former};
use crate::coupon::input::NewCoupon;
use crate::coupon::load::Loader;
use crate::coupon::model::{Coupon, CouponFilter, CouponKind};
use crate::coupon::read::CouponReader;
use crate::coupon::stock;
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::CouponId;
use crate::store::installation;
use crate::store::postgres;
use crate::store::{Failure, Stores};

pub struct Coupons {
    pool: PgPool,
    stored: CouponReader,
    pub cache: CouponCache,
    loader: Arc<Loader>,
    /// Owner of transactions that a request must not break off half-way.
    shutdown: Shutdown,
}

/// Outcome of the creation of a coupon.
#[derive(Debug, thiserror::Error)]
pub enum Creation {
    /// The coupon exists: created now, or before under the same key.
    #[error("the coupon is there")]
    Created(Box<Coupon>),
    /// The key has created another coupon, from another body; nothing was created.
    #[error(
        "this key has created a coupon by another body; give another creation a key of its own"
    )]
    KeyReused,
    /// The window of the sale has closed already; nothing was created.
    #[error("has passed: the sale would never open")]
    WindowPast,
}

impl Coupons {
    pub fn new(stores: &Stores, loader: Arc<Loader>, shutdown: Shutdown) -> Self {
        let pool = stores.pool.clone();
        let stored = CouponReader::new(stores);
        let cache = CouponCache::new(stored.clone());
        Self { pool, stored, cache, loader, shutdown }
    }

    /// Creates a valid coupon and loads its sale, if it has one. While Redis is away, the coupon is created all the
    /// same, and a job or the first claim loads its sale later. A repeat under the same key gets the coupon that is
    /// there.
    pub async fn create(
        &self,
        new: NewCoupon,
        key: Option<CreationKey>,
        by: &Actor,
    ) -> Result<Creation, Failure> {
        if let Some(key) = &key
            && let Some(former) = creation_keys::former(&self.pool, key).await?
        {
            return self.repeated(former).await;
        }
        if let Some(sale) = &new.sale
            && self.has_passed(sale.closes_at).await?
        {
            return Ok(Creation::WindowPast);
        }
        let pool = self.pool.clone();
        let (kind, by, cache) = (new.kind, by.clone(), self.cache.clone());
        // A task of its own: what follows the commit is done even if the request is dropped.
        let inserted = self.shutdown.spawn(async move {
            let inserted = insert(&pool, &new, key, &by).await;
            if let Ok(Ok(coupon)) = &inserted {
                cache.forget(*coupon).await;
            }
            inserted
        });
        let id = match inserted.await.map_err(|_| sqlx::Error::WorkerCrashed)?? {
            Ok(id) => id,
            Err(former) => return self.repeated(former).await,
        };
        if kind == CouponKind::Flash
            && let Err(error) = self.loader.resolve_now(id).await
        {
            tracing::warn!(coupon = %id, %error, "a new sale could not be loaded; its first claim will try again");
        }
        Ok(Creation::Created(Box::new(self.created(id).await?)))
    }

    async fn repeated(&self, former: Former) -> Result<Creation, Failure> {
        match former {
            Former::Same(id) => Ok(Creation::Created(Box::new(self.created(id).await?))),
            Former::Other => Ok(Creation::KeyReused),
        }
    }

    /// By the clock of Postgres, which ends sales.
    async fn has_passed(&self, time: DateTime<Utc>) -> sqlx::Result<bool> {
        sqlx::query_scalar!(r#"SELECT now() >= $1 AS "passed!""#, time).fetch_one(&self.pool).await
    }

    async fn created(&self, id: CouponId) -> Result<Coupon, Failure> {
        Ok(self.get(id).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    /// One coupon, as the stores have it now.
    pub async fn get(&self, coupon: CouponId) -> Result<Option<Coupon>, Failure> {
        self.stored.get(coupon).await
    }

    /// Coupons below `before`, newest first.
    pub async fn list(
        &self,
        filter: CouponFilter,
        before: Option<CouponId>,
        limit: u32,
    ) -> Result<Vec<Coupon>, Failure> {
        self.stored.list(filter, before, limit).await
    }

    /// The newest sales that are not over, and then the newest others, as Postgres has them: Redis isn't asked for the
    /// units left.
    pub async fn newest_sales(&self, now: DateTime<Utc>, limit: u32) -> sqlx::Result<Vec<Coupon>> {
        self.stored.newest_sales(now, limit).await
    }
}

/// Creates the coupon, or returns the former creation under its key.
async fn insert(
    pool: &PgPool,
    new: &NewCoupon,
    key: Option<CreationKey>,
    by: &Actor,
) -> sqlx::Result<Result<CouponId, Former>> {
    // Before the transaction begins: a holder of one connection must not wait for another.
    let lanes = installation::read(pool).await?.lanes;
    let mut tx = postgres::begin(pool).await?;
    let sequence = sqlx::query_scalar!(r#"SELECT nextval('coupon_sequence') AS "sequence!""#)
        .fetch_one(&mut *tx)
        .await?;
    let id = CouponId::compose(sequence, lanes);
    sqlx::query!(
        "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents, currency)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        id.get(),
        new.kind.as_str(),
        new.title,
        new.sub_title,
        new.rules,
        new.pay_cents,
        new.value_cents,
        new.currency,
    )
    .execute(&mut *tx)
    .await?;
    if let Some(sale) = &new.sale {
        stock::insert(&mut tx, id, sale).await?;
    }
    if let Some(key) = key
        && !creation_keys::note(&mut tx, &key, id).await?
    {
        // Another request was faster, and its transaction has ended.
        tx.rollback().await?;
        let former = creation_keys::former(pool, &key).await?;
        return Ok(Err(former.ok_or(sqlx::Error::RowNotFound)?));
    }
    audit::note(&mut tx, by, Event::of(Action::CreateCoupon, id.get()).after(new)).await?;
    tx.commit().await?;
    Ok(Ok(id))
}
