//! The sales as Postgres knows them: window, total and units sold.
//!
//! Redis sells; `sold` is the second lock on the same door. It grows only by rows that are really inserted, in their
//! transaction, and never past `total`.

mod queries;

use std::collections::BTreeMap;

use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::coupon::input::NewSale;
use crate::coupon::model::{CouponKind, CouponState, SaleTerms};
use crate::store::ids::{CouponId, Lane};
use crate::store::postgres;

pub use queries::{
    HeldSale, SaleToBuild, allow_long_statements, allow_statements, archived, closed, ended,
    is_loaded, load_id, loaded, loaded_in, loaded_of, lock_holder, newest_loaded, open_of,
    to_build, to_load, total, unapplied,
};

/// What Postgres knows about a coupon, for its load.
#[derive(Debug)]
pub enum StoredCoupon {
    /// A coupon without a sale, in this state.
    Regular(CouponState),
    Flash(StoredSale),
}

/// What Postgres knows about a sale, for its load.
#[derive(Debug)]
pub struct StoredSale {
    pub state: CouponState,
    /// Revision of state and terms.
    pub revision: i64,
    pub terms: SaleTerms,
    pub stage: Stage,
}

/// Whether a sale is in Redis, as Postgres has noted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The sale has never been in Redis.
    Unloaded,
    /// The load of this id has put the sale into Redis.
    Loaded { load_id: String },
    /// The sale has been archived: removed from Redis, or about to be.
    Archived { load_id: String },
}

impl StoredCoupon {
    pub fn state(&self) -> CouponState {
        match self {
            Self::Regular(state) => *state,
            Self::Flash(sale) => sale.state,
        }
    }
}

impl StoredSale {
    pub fn is_archived(&self) -> bool {
        matches!(self.stage, Stage::Archived { .. })
    }
}

pub async fn find(pool: &PgPool, coupon: CouponId) -> sqlx::Result<Option<StoredCoupon>> {
    let row = sqlx::query!(
        r#"SELECT coupons.kind AS "kind: CouponKind", state AS "state: CouponState", revision,
                  opens_at AS "opens_at?", closes_at AS "closes_at?", total AS "total?",
                  load_id, (archived_at IS NOT NULL) AS "archived!"
           FROM coupons LEFT JOIN flash_sales ON coupon_id = id
           WHERE id = $1"#,
        coupon.get(),
    )
    .fetch_optional(pool)
    .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let (total, opens_at, closes_at) = match (row.kind, row.total, row.opens_at, row.closes_at) {
        (CouponKind::Regular, ..) => return Ok(Some(StoredCoupon::Regular(row.state))),
        (CouponKind::Flash, Some(total), Some(opens_at), Some(closes_at)) => {
            (total, opens_at, closes_at)
        }
        // Can't be: one transaction writes both rows.
        (CouponKind::Flash, ..) => return Err(sqlx::Error::RowNotFound),
    };
    Ok(Some(StoredCoupon::Flash(StoredSale {
        state: row.state,
        revision: row.revision,
        terms: SaleTerms { total, opens_at, closes_at },
        stage: match row.load_id {
            None => Stage::Unloaded,
            Some(load_id) if row.archived => Stage::Archived { load_id },
            Some(load_id) => Stage::Loaded { load_id },
        },
    })))
}

pub async fn insert(tx: &mut PgConnection, coupon: CouponId, sale: &NewSale) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total)
         VALUES ($1, $2, $3, $4)",
        coupon.get(),
        sale.opens_at,
        sale.closes_at,
        sale.total,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The sale of a coupon that this transaction has locked; `None` for a regular coupon.
pub async fn terms(tx: &mut PgConnection, coupon: CouponId) -> sqlx::Result<Option<SaleTerms>> {
    sqlx::query_as!(
        SaleTerms,
        "SELECT total, opens_at, closes_at FROM flash_sales WHERE coupon_id = $1",
        coupon.get(),
    )
    .fetch_optional(tx)
    .await
}

/// Changes the sale of a coupon that this transaction has locked.
pub async fn update_terms(
    tx: &mut PgConnection,
    coupon: CouponId,
    terms: &SaleTerms,
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE flash_sales SET total = $2, opens_at = $3, closes_at = $4, updated_at = now()
         WHERE coupon_id = $1",
        coupon.get(),
        terms.total,
        terms.opens_at,
        terms.closes_at,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Notes that Redis has this revision of the coupon, or a newer one.
pub async fn note_applied(pool: &PgPool, coupon: CouponId, revision: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE flash_sales SET applied_revision = $2, updated_at = now()
         WHERE coupon_id = $1 AND applied_revision < $2",
        coupon.get(),
        revision,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Notes that this load has put the sale into Redis. From now on its absence there means that Redis has lost data.
/// Returns the load that holds: the first one noted.
pub async fn note_load(
    tx: &mut PgConnection,
    coupon: CouponId,
    load_id: &str,
) -> sqlx::Result<String> {
    sqlx::query!(
        "UPDATE flash_sales SET loaded_at = now(), load_id = $2, updated_at = now()
         WHERE coupon_id = $1 AND loaded_at IS NULL",
        coupon.get(),
        load_id,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query_scalar!(
        r#"SELECT load_id AS "load_id!" FROM flash_sales WHERE coupon_id = $1"#,
        coupon.get(),
    )
    .fetch_one(tx)
    .await
}

/// Has the archived sales of a lane removed from Redis once more: a Redis that went back in time may have them again.
pub async fn remove_again(pool: &PgPool, lane: Lane) -> sqlx::Result<()> {
    let mut tx = postgres::begin(pool).await?;
    allow_long_statements(&mut tx).await?;
    sqlx::query!(
        "UPDATE flash_sales SET removed_at = NULL, updated_at = now()
         WHERE removed_at IS NOT NULL AND (coupon_id & 1023)::integer = $1",
        lane.get(),
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

/// Notes the revision that Redis has after the sale has been built anew. A sale that was archived meanwhile is removed
/// once more.
pub async fn set_applied(pool: &PgPool, coupon: CouponId, revision: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE flash_sales SET applied_revision = $2, removed_at = NULL, updated_at = now() WHERE coupon_id = $1",
        coupon.get(),
        revision,
    )
    .execute(pool)
    .await?;
    Ok(())
}

#[derive(Debug)]
pub struct LockedSale {
    /// Units that Postgres hasn't counted as sold.
    pub left: i64,
    /// Whether it is archived, and takes no order any more.
    pub is_archived: bool,
}

/// Locks the rows of these sales, in the order of their coupons: their units stay until the transaction ends.
pub async fn lock(
    tx: &mut PgConnection,
    coupons: impl Iterator<Item = CouponId>,
) -> sqlx::Result<BTreeMap<CouponId, LockedSale>> {
    let coupons: Vec<i64> = coupons.map(CouponId::get).collect();
    let rows = sqlx::query!(
        r#"SELECT coupon_id AS "coupon: CouponId", total - sold AS "left!", archived_at IS NOT NULL AS "is_archived!"
           FROM flash_sales WHERE coupon_id = ANY($1) ORDER BY coupon_id FOR NO KEY UPDATE"#,
        &coupons,
    )
    .fetch_all(tx)
    .await?;
    let sale = |left, is_archived| LockedSale { left, is_archived };
    Ok(rows.into_iter().map(|row| (row.coupon, sale(row.left, row.is_archived))).collect())
}

/// Counts `orders` more units as sold. False, and no change, if fewer are left or the sale is archived, because an
/// archived sale takes no order.
pub async fn add_sold(tx: &mut PgConnection, coupon: CouponId, orders: i64) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE flash_sales SET sold = sold + $2, updated_at = now()
         WHERE coupon_id = $1 AND sold + $2 <= total AND archived_at IS NULL",
        coupon.get(),
        orders,
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes `orders` units off `sold`: this transaction has closed as many live orders.
pub async fn subtract_sold(
    tx: &mut PgConnection,
    coupon: CouponId,
    orders: i64,
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE flash_sales SET sold = sold - $2, updated_at = now() WHERE coupon_id = $1",
        coupon.get(),
        orders,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Sets `sold` to the number of live orders. False, and no change, if there are more live orders than units.
///
/// # Errors
///
/// When Postgres doesn't answer, or can't count within [`RECOUNT_TIMEOUT`](crate::base::limits::RECOUNT_TIMEOUT).
pub async fn recount_sold(pool: &PgPool, coupon: CouponId) -> sqlx::Result<bool> {
    let mut tx = postgres::begin(pool).await?;
    allow_long_statements(&mut tx).await?;
    let lock =
        sqlx::query!("SELECT FROM flash_sales WHERE coupon_id = $1 FOR UPDATE", coupon.get());
    lock.execute(&mut *tx).await?;
    // A statement of its own, which sees the rows that earlier holders of the lock have committed. A transaction that
    // waits for the lock now counts its own rows later; this statement doesn't see them.
    let counted = sqlx::query!(
        "UPDATE flash_sales SET updated_at = now(), sold =
             (SELECT count(*) FROM orders WHERE orders.coupon_id = $1 AND orders.kind = 'flash'
              AND is_live(status))
         WHERE coupon_id = $1",
        coupon.get(),
    )
    .execute(&mut *tx)
    .await;
    match counted {
        Ok(_) => tx.commit().await.map(|()| true),
        Err(error) => {
            tx.rollback().await?;
            match postgres::violated_constraint(&error) {
                Some("flash_sales_sold_within_total") => Ok(false),
                _ => Err(error),
            }
        }
    }
}

/// Notes that an ended sale, whose claims are known to be orders, leaves Redis. False if an order may still expire, a
/// unit is on its way back to Redis, or an operator has to decide on a dead letter.
///
/// The smallest value is found by an index. For EXISTS, Postgres reads the whole table if there is no such row, because
/// it expects to meet one soon.
pub async fn archive(executor: impl PgExecutor<'_>, coupon: CouponId) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE flash_sales SET archived_at = now(), updated_at = now()
         WHERE coupon_id = $1 AND archived_at IS NULL
           AND EXISTS (SELECT FROM coupons
                       WHERE id = $1 AND state = 'ended' AND revision = applied_revision)
           AND (SELECT id FROM orders
                WHERE (orders.coupon_id, status, id) > ($1, 'unpaid', 0)
                  AND (orders.coupon_id, status, id) <= ($1, 'unpaid', 9223372036854775807)
                ORDER BY orders.coupon_id, status, id LIMIT 1) IS NULL
           AND (SELECT min(updated_at) FROM stock_returns
                WHERE stock_returns.coupon_id = $1 AND done_at IS NULL) IS NULL
           AND (SELECT min(order_id) FROM dead_letters
                WHERE dead_letters.coupon_id = $1 AND resolved_at IS NULL) IS NULL",
        coupon.get(),
    )
    .execute(executor)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Notes that an ended sale leaves Redis, whatever is open about it. Nothing changes if that has been noted before.
pub async fn archive_unsettled(tx: &mut PgConnection, coupon: CouponId) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE flash_sales SET archived_at = now(), updated_at = now()
         WHERE coupon_id = $1 AND archived_at IS NULL AND loaded_at IS NOT NULL
           AND EXISTS (SELECT FROM coupons WHERE id = $1 AND state = 'ended')",
        coupon.get(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Notes that an archived sale is not in Redis any more.
pub async fn note_removed(pool: &PgPool, coupon: CouponId) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE flash_sales SET removed_at = now(), updated_at = now()
         WHERE coupon_id = $1 AND archived_at IS NOT NULL AND removed_at IS NULL",
        coupon.get(),
    )
    .execute(pool)
    .await?;
    Ok(())
}
