//! The record of recoveries; owner of the table `recoveries`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgPool;
use sqlx::types::Json;
use utoipa::ToSchema;

use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::{CouponId, Lane, OrderId, RecoveryId, UserId};
use crate::store::postgres;

/// A claim that a recovery could not keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostClaim {
    /// The coupon.
    pub coupon_id: CouponId,
    /// The buyer.
    pub user_id: UserId,
    /// Order id that the buyer was told.
    pub order_id: OrderId,
    /// `superseded`: the same user has a newer order of this coupon. `promised_without_unit`: the sale has no unit left
    /// for the dead letter of this claim. `refused`: Postgres takes neither an order nor a dead letter of it.
    pub reason: String,
}

/// Reason of a lost claim whose user has a newer order.
pub(super) const SUPERSEDED: &str = "superseded";
/// Reason of a lost claim for which there is no unit.
pub(super) const WITHOUT_UNIT: &str = "promised_without_unit";

/// Reason of a lost claim of which Postgres takes neither an order nor a dead letter.
pub(super) const REFUSED: &str = "refused";

/// Result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Sales that Redis had kept.
    pub kept: i64,
    /// Sales that were built from Postgres.
    pub built: i64,
    /// Buyers of the built sales.
    pub buyers: i64,
    /// Buyers that only Redis knew, and that became orders.
    pub harvested: i64,
    /// Promises of living processes that neither store had, and that became orders.
    pub receipts: i64,
    /// Living processes that handed nothing in within the time, by name.
    pub absent: Vec<String>,
    /// Promises, at least, that neither a store nor a living process knows; `None` where that can't be known.
    pub unknown: Option<i64>,
    /// Claims that could not be kept.
    pub lost: Vec<LostClaim>,
}

impl Outcome {
    /// Adds claims that could not be kept, each once.
    pub(super) fn add_lost(&mut self, claims: Vec<LostClaim>) {
        let untold: Vec<_> =
            claims.into_iter().filter(|claim| !self.lost.contains(claim)).collect();
        self.lost.extend(untold);
    }
}

/// A recovery of a lane.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Recovery {
    /// Id of the recovery; newer ones have larger ids.
    pub id: RecoveryId,
    /// The lane.
    pub lane: i32,
    /// Epoch of the lane since then.
    pub epoch: i64,
    /// Reason of the closure.
    pub reason: String,
    /// Time at which the lane was closed.
    pub closed_at: DateTime<Utc>,
    /// Time at which the lane was opened again; null while the recovery lasts.
    pub opened_at: Option<DateTime<Utc>>,
    /// Sales that Redis had kept.
    pub sales_kept: Option<i64>,
    /// Sales that were built from Postgres.
    pub sales_built: Option<i64>,
    /// Buyers of the built sales.
    pub buyers: Option<i64>,
    /// Buyers that only Redis knew, and that became orders.
    pub harvested: Option<i64>,
    /// Promises of living processes that neither store had, and that became orders.
    pub receipts: Option<i64>,
    /// Living processes that handed nothing in within the time: what they promised last is looked at when they do.
    pub absent: Option<i64>,
    /// Names of these processes.
    pub absent_processes: Vec<String>,
    /// Claims, at least, that Redis had granted before its last look, and that neither a store nor a living process knows:
    /// nothing tells whose they were. Null where that can't be known.
    pub unknown: Option<i64>,
    /// Claims that could not be kept.
    #[schema(value_type = Vec<LostClaim>)]
    pub lost: Json<Vec<LostClaim>>,
    /// Time at which an administrator has settled these claims with their buyers.
    pub settled_at: Option<DateTime<Utc>>,
    /// Words of the administrator.
    pub note: Option<String>,
}

/// What the attempts before have left to a recovery of the same closure.
pub(super) struct Begun {
    /// Time at which the lane was closed.
    pub closed_at: DateTime<Utc>,
    /// Claims that they have found lost: only they can name them.
    pub lost: Json<Vec<LostClaim>>,
    /// Epoch of the last one.
    pub broken_off: Option<i64>,
}

/// Notes that a recovery has begun: in the record of the attempt before, if that was broken off. `None` if another recovery
/// has begun since.
pub(super) async fn begin(pool: &PgPool, lane: Lane, epoch: i64) -> sqlx::Result<Option<Begun>> {
    sqlx::query_as!(
        Begun,
        r#"WITH closed AS (SELECT lane, epoch, reason, closed_at FROM lanes WHERE lane = $1 AND epoch = $2),
           before AS (
               SELECT recoveries.id, recoveries.epoch FROM recoveries JOIN closed USING (lane)
               WHERE opened_at IS NULL AND settled_at IS NULL ORDER BY id DESC LIMIT 1),
           taken_up AS (
               UPDATE recoveries SET epoch = closed.epoch, reason = closed.reason, closed_at = closed.closed_at
               FROM before, closed WHERE recoveries.id = before.id
               RETURNING recoveries.closed_at, lost, before.epoch AS broken_off),
           begun AS (
               INSERT INTO recoveries (lane, epoch, reason, closed_at)
               SELECT lane, epoch, reason, closed_at FROM closed WHERE NOT EXISTS (SELECT FROM before)
               RETURNING closed_at, lost)
           SELECT closed_at AS "closed_at!", lost AS "lost!: Json<Vec<LostClaim>>", broken_off FROM taken_up
           UNION ALL SELECT closed_at, lost, NULL FROM begun"#,
        lane.get(),
        epoch,
    )
    .fetch_optional(pool)
    .await
}

/// Notes claims that can't be kept while the recovery goes on.
pub(super) async fn note_lost(
    pool: &PgPool,
    lane: Lane,
    epoch: i64,
    lost: &[LostClaim],
) -> sqlx::Result<()> {
    if !lost.is_empty() {
        sqlx::query!(
            "UPDATE recoveries SET lost = $3 WHERE lane = $1 AND epoch = $2",
            lane.get(),
            epoch,
            Json(lost) as _,
        )
        .execute(pool)
        .await?;
    }
    Ok(())
}

/// Notes the result of a recovery, and that the lane is open. Returns the time for which the lane was closed.
pub(super) async fn end(
    pool: &PgPool,
    lane: Lane,
    epoch: i64,
    outcome: &Outcome,
) -> sqlx::Result<Option<Duration>> {
    let ms = sqlx::query_scalar!(
        r#"UPDATE recoveries SET opened_at = now(), sales_kept = $3, sales_built = $4, buyers = $5,
             harvested = $6, lost = $7, receipts = $8, absent = cardinality($9::text[]), absent_processes = $9,
             unknown = $10
         WHERE lane = $1 AND epoch = $2
         RETURNING (extract(epoch FROM opened_at - closed_at) * 1000)::bigint AS "ms!""#,
        lane.get(),
        epoch,
        outcome.kept,
        outcome.built,
        outcome.buyers,
        outcome.harvested,
        Json(&outcome.lost) as _,
        outcome.receipts,
        &outcome.absent,
        outcome.unknown,
    )
    .fetch_optional(pool)
    .await?;
    Ok(ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis))
}

/// Notes that the claims that a recovery could not keep are settled with their buyers; a repeat keeps the first note.
/// False if there is no such recovery, or it has kept all claims.
pub async fn settle(
    pool: &PgPool,
    recovery: RecoveryId,
    note: &str,
    by: &Actor,
) -> sqlx::Result<bool> {
    let mut tx = postgres::begin(pool).await?;
    let settled = sqlx::query!(
        r#"UPDATE recoveries SET settled_at = now(), note = $2
           WHERE id = $1 AND settled_at IS NULL AND (lost <> '[]' OR unknown > 0)
           RETURNING lane, epoch, reason, jsonb_array_length(lost) AS "lost!", coalesce(unknown, 0) AS "unknown!""#,
        recovery.get(),
        note,
    )
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(of) = settled {
        let before = json!({
            "state": "unsettled", "lane": of.lane, "epoch": of.epoch, "reason": of.reason, "claims_lost": of.lost,
            "claims_unknown": of.unknown,
        });
        let event = Event::of(Action::SettleRecovery, recovery.get()).before(before);
        audit::note(&mut tx, by, event.after(json!({"state": "settled", "note": note}))).await?;
        tx.commit().await?;
        return Ok(true);
    }
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM recoveries WHERE id = $1 AND settled_at IS NOT NULL) AS "settled!""#,
        recovery.get(),
    )
    .fetch_one(&mut *tx)
    .await
}

/// Deletes records of lanes that were closed before this time and have been opened in a newer recovery. Returns their
/// number.
pub async fn forget(pool: &PgPool, before: DateTime<Utc>, limit: u32) -> sqlx::Result<u64> {
    let done = sqlx::query!(
        "DELETE FROM recoveries WHERE id IN (
             SELECT id FROM recoveries AS older
             WHERE closed_at < $1
               AND (settled_at IS NOT NULL OR lost = '[]' AND coalesce(unknown, 0) = 0)
               AND EXISTS (SELECT FROM recoveries AS newer
                           WHERE newer.lane = older.lane AND newer.id > older.id AND newer.opened_at IS NOT NULL)
             ORDER BY id LIMIT $2)",
        before,
        i64::from(limit),
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected())
}

/// State of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
pub enum RecoveryState {
    /// Has not opened the lane.
    Unfinished,
    /// Has opened the lane, and kept all claims.
    KeptAll,
    /// Could not keep some claims, and their buyers have not been told.
    Unsettled,
    /// Could not keep some claims, and an administrator has settled them with their buyers.
    Settled,
}

impl RecoveryState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::KeptAll => "kept_all",
            Self::Unsettled => "unsettled",
            Self::Settled => "settled",
        }
    }
}

/// Recoveries that are looked for; each part narrows them down.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryFilter {
    /// Of the lane with this number.
    pub lane: Option<i32>,
    /// In this state.
    pub state: Option<RecoveryState>,
}

/// Recoveries that fit, newest first, from before the given one on.
pub async fn list(
    pool: &PgPool,
    filter: RecoveryFilter,
    before: Option<RecoveryId>,
    limit: u32,
) -> sqlx::Result<Vec<Recovery>> {
    // A lane and a rare state have indexes of their own, which a plan that knows no values can't choose.
    let mut tx = postgres::begin_planning(pool).await?;
    let found = sqlx::query_as!(
        Recovery,
        r#"SELECT id AS "id: RecoveryId", lane, epoch, reason, closed_at, opened_at, sales_kept, sales_built,
                  buyers, harvested, receipts, absent, coalesce(absent_processes, '{}') AS "absent_processes!",
                  unknown, lost AS "lost: Json<Vec<LostClaim>>", settled_at, note
           FROM recoveries
           WHERE ($1::integer IS NULL OR lane = $1)
             AND ($2::text IS NULL
                  OR $2 = 'unfinished' AND opened_at IS NULL
                  OR $2 = 'kept_all' AND opened_at IS NOT NULL AND settled_at IS NULL AND lost = '[]'
                     AND coalesce(unknown, 0) = 0
                  OR $2 = 'unsettled' AND settled_at IS NULL AND (lost <> '[]' OR unknown > 0)
                  OR $2 = 'settled' AND settled_at IS NOT NULL)
             AND id < coalesce($3, 9223372036854775807)
           ORDER BY id DESC LIMIT $4"#,
        filter.lane,
        filter.state.map(RecoveryState::as_str),
        before.map(RecoveryId::get),
        i64::from(limit),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(found)
}
