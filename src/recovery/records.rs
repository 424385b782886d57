//! The record of recoveries. Owns the table `recoveries`.

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
    /// `superseded`: the same user has a newer order of this coupon. `accepted_without_unit`: the sale has no unit left
    /// for the dead letter of this claim. `refused`: Postgres takes neither an order nor a dead letter for this claim.
    pub reason: String,
}

/// The user has a newer order.
pub(super) const SUPERSEDED: &str = "superseded";
/// There is no unit for the claim's dead letter.
pub(super) const WITHOUT_UNIT: &str = "accepted_without_unit";

/// Postgres takes neither an order nor a dead letter.
pub(super) const REFUSED: &str = "refused";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Sales that agreed with Postgres and were kept.
    pub kept: i64,
    pub built: i64,
    pub buyers: i64,
    /// Buyers that only Redis knew, and that became orders.
    pub harvested: i64,
    /// Accepted claims that only living processes knew, and that became orders.
    pub unwritten: i64,
    /// Names of living processes that handed in nothing in time.
    pub absent: Vec<String>,
    /// Least number of accepted claims that neither a store nor a living process knows; `None` if that can't be known.
    pub unknown: Option<i64>,
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
    /// The lane's epoch after this recovery.
    pub epoch: i64,
    /// Why the lane was closed.
    pub reason: String,
    /// Time at which the lane was closed.
    pub closed_at: DateTime<Utc>,
    /// Time at which the lane was opened again; null during the recovery.
    pub opened_at: Option<DateTime<Utc>>,
    /// Sales that agreed with Postgres and were kept.
    pub sales_kept: Option<i64>,
    /// Sales built from Postgres.
    pub sales_built: Option<i64>,
    /// Buyers of the built sales.
    pub buyers: Option<i64>,
    /// Buyers that only Redis knew, and that became orders.
    pub harvested: Option<i64>,
    /// Accepted claims that only living processes knew, and that became orders.
    pub unwritten: Option<i64>,
    /// Number of living processes that handed in nothing in time. What they accepted last is checked when they hand it
    /// in.
    pub absent: Option<i64>,
    /// Names of these processes.
    pub absent_processes: Vec<String>,
    /// Least number of claims that Redis had accepted by the leader's last check, and that neither a store nor a living
    /// process knows. Nothing tells whose they were. Null if that can't be known.
    pub unknown: Option<i64>,
    /// Claims that could not be kept.
    #[schema(value_type = Vec<LostClaim>)]
    pub lost: Json<Vec<LostClaim>>,
    /// Time at which an administrator settled these claims with their buyers.
    pub settled_at: Option<DateTime<Utc>>,
    /// The administrator's note.
    pub note: Option<String>,
}

/// What earlier attempts at the same recovery have left.
pub(super) struct Begun {
    /// Time at which the lane was closed.
    pub closed_at: DateTime<Utc>,
    /// Claims that those attempts found lost: only the attempts can name them.
    pub lost: Json<Vec<LostClaim>>,
    /// Epoch of the last attempt.
    pub broken_off: Option<i64>,
}

/// Records that a recovery has begun, in the record of the previous attempt if that was broken off. `None` if another
/// recovery has begun since.
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

/// Records claims that can't be kept, while the recovery goes on.
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

/// Records the result of a recovery, and that the lane is open. Returns for how long the lane was closed.
pub(super) async fn end(
    pool: &PgPool,
    lane: Lane,
    epoch: i64,
    outcome: &Outcome,
) -> sqlx::Result<Option<Duration>> {
    let ms = sqlx::query_scalar!(
        r#"UPDATE recoveries SET opened_at = now(), sales_kept = $3, sales_built = $4, buyers = $5,
             harvested = $6, lost = $7, unwritten = $8, absent = cardinality($9::text[]), absent_processes = $9,
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
        outcome.unwritten,
        &outcome.absent,
        outcome.unknown,
    )
    .fetch_optional(pool)
    .await?;
    Ok(ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis))
}

/// Records that the claims that a recovery could not keep are settled with their buyers. A repeat keeps the first note.
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

/// Deletes records of lanes that were closed before this time and have been opened by a newer recovery. Keeps records
/// with unsettled claims. Returns how many were deleted.
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

/// A filter for recoveries. All parts that are set have to match.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryFilter {
    /// Number of the lane.
    pub lane: Option<i32>,
    pub state: Option<RecoveryState>,
}

/// Matching recoveries older than `before`, newest first.
pub async fn list(
    pool: &PgPool,
    filter: RecoveryFilter,
    before: Option<RecoveryId>,
    limit: u32,
) -> sqlx::Result<Vec<Recovery>> {
    // A lane, and a rare state, have indexes of their own, which a generic plan wouldn't choose.
    let mut tx = postgres::begin_planning(pool).await?;
    let found = sqlx::query_as!(
        Recovery,
        r#"SELECT id AS "id: RecoveryId", lane, epoch, reason, closed_at, opened_at, sales_kept, sales_built,
                  buyers, harvested, unwritten, absent, coalesce(absent_processes, '{}') AS "absent_processes!",
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
