//! Coupons: what is on offer. Owner of the table `coupons`.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use super::coupon_input::NewCoupon;
use super::ids::CouponId;
use super::keys::Keys;
use super::warm_up::WarmUp;
use super::{Failure, Stores, settings, stock};
use crate::base::shutdown::Shutdown;
use crate::kit::redis::{Redis, is_data_error};

/// Whether a coupon has a sale.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum CouponKind {
    /// Bought at any time; no stock and no window.
    Regular,
    /// Sold in a window, as long as the stock lasts, one to a user.
    Flash,
}

/// Whether a coupon can be claimed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum CouponState {
    /// On offer; a flash coupon within its window.
    Active,
    /// Claims are suspended.
    Paused,
    /// Over for good.
    Ended,
}

/// A coupon, as everybody sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Coupon {
    /// Its id.
    pub id: CouponId,
    /// Whether it has a sale.
    pub kind: CouponKind,
    /// Headline.
    pub title: String,
    /// Second line.
    pub sub_title: String,
    /// Terms, in words.
    pub rules: String,
    /// What the buyer pays, in minor units.
    pub pay_cents: i64,
    /// What it is worth, in minor units.
    pub value_cents: i64,
    /// Whether it can be claimed at all.
    pub state: CouponState,
    /// Grows with every change.
    pub revision: i64,
    /// Its sale; flash coupons only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sale: Option<Sale>,
}

/// The sale of a flash coupon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Sale {
    /// Units on offer.
    pub stock: i64,
    /// Units left; null while Redis can't tell.
    pub left: Option<i64>,
    /// Start of the window.
    pub opens_at: DateTime<Utc>,
    /// End of the window; not part of it.
    pub closes_at: DateTime<Utc>,
}

/// Creates and reads coupons.
pub struct Coupons {
    pool: PgPool,
    redis: Redis,
    keys: Keys,
    warm_up: Arc<WarmUp>,
    /// Runs transactions that a request must not break off half-way.
    shutdown: Shutdown,
}

impl Coupons {
    /// Puts the parts together.
    pub fn new(stores: &Stores, warm_up: Arc<WarmUp>, shutdown: Shutdown) -> Self {
        let Stores { pool, redis, keys } = stores.clone();
        Self { pool, redis, keys, warm_up, shutdown }
    }

    /// Creates a valid coupon and, if it has a sale, loads it. When Redis is away the coupon is created
    /// all the same, and loaded by the first claim.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
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
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn get(&self, coupon: CouponId) -> Result<Option<Coupon>, Failure> {
        // Ids are whole numbers, so "before the next one" and a limit of one is "this one or older".
        let before = CouponId::new(coupon.get().saturating_add(1)).unwrap_or(coupon);
        let found = self.list(Some(before), 1).await?.pop();
        Ok(found.filter(|found| found.id == coupon))
    }

    /// Coupons, newest first, from before the given one on.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
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

    /// Units left of each of these sales, by Redis, which sells them; nothing of a sale that can't be read. Stops when Redis
    /// doesn't answer: asking it for one coupon after the other would take far too long then.
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
    // Before the transaction begins: whoever holds one connection must not wait for another.
    let lanes = settings::read(pool).await?.lanes;
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

/// What can be changed about a coupon, apart from its sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CouponRow {
    /// Whether it has a sale; never changes.
    pub kind: CouponKind,
    /// Headline.
    pub title: String,
    /// Second line.
    pub sub_title: String,
    /// Terms, in words.
    pub rules: String,
    /// What the buyer pays, in minor units.
    pub pay_cents: i64,
    /// What it is worth, in minor units.
    pub value_cents: i64,
    /// Whether it can be claimed at all.
    pub state: CouponState,
    /// Revision of these values.
    pub revision: i64,
}

/// The coupon as it is, kept from others who want to change it until the transaction ends. Its orders go on
/// being written meanwhile: they refer to its id only, and this lock leaves that to them.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn lock(tx: &mut PgConnection, coupon: CouponId) -> sqlx::Result<Option<CouponRow>> {
    sqlx::query_as!(
        CouponRow,
        r#"SELECT kind AS "kind: CouponKind", title, sub_title, rules, pay_cents, value_cents,
                  state AS "state: CouponState", revision
           FROM coupons WHERE id = $1 FOR NO KEY UPDATE"#,
        coupon.get(),
    )
    .fetch_optional(tx)
    .await
}

/// Writes a locked coupon as its next revision.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn update(tx: &mut PgConnection, coupon: CouponId, row: &CouponRow) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE coupons SET title = $2, sub_title = $3, rules = $4, pay_cents = $5, value_cents = $6,
                state = $7, ended_at = CASE WHEN $7 = 'ended' THEN coalesce(ended_at, now()) END,
                revision = revision + 1, updated_at = now()
         WHERE id = $1",
        coupon.get(),
        row.title,
        row.sub_title,
        row.rules,
        row.pay_cents,
        row.value_cents,
        row.state.as_str(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

impl CouponKind {
    /// Its name in Postgres and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Flash => "flash",
        }
    }
}

impl CouponState {
    /// Its name in Postgres, Redis and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}
