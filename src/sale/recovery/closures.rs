//! The list of closures.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use super::records::{LostClaim, Recovery};
use crate::kit::postgres;
use crate::sale::fence::ClosureReason;
use crate::sale::ids::RecoveryId;

/// State of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
pub enum RecoveryState {
    /// Has not opened the lane: the recovery lasts, or another one has taken its place.
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
    /// Of a lane that was closed for this reason.
    pub reason: Option<ClosureReason>,
    /// Of a lane that was closed at this time or later.
    pub from: Option<DateTime<Utc>>,
    /// Of a lane that was closed before this time.
    pub to: Option<DateTime<Utc>>,
}

/// Recoveries that fit, the newest closure first, from behind the given one on; none if that one has been deleted.
pub async fn list(
    pool: &PgPool,
    filter: &RecoveryFilter,
    behind: Option<RecoveryId>,
    limit: u32,
) -> sqlx::Result<Vec<Recovery>> {
    // Each part has an index of its own, which a plan that knows no values can't choose.
    let mut tx = postgres::begin_planning(pool).await?;
    let behind_at = match behind {
        None => None,
        Some(id) => match time_of(&mut tx, id).await? {
            Some(at) => Some(at),
            None => return Ok(Vec::new()),
        },
    };
    let found = sqlx::query_as!(
        Recovery,
        r#"SELECT id AS "id: RecoveryId", lane, epoch, reason, closed_at, opened_at, sales_kept, sales_built,
                  buyers, harvested, receipts, absent, coalesce(absent_processes, '{}') AS "absent_processes!",
                  receipts_dropped, unknown, lost AS "lost: Json<Vec<LostClaim>>", settled_at, note
           FROM recoveries
           WHERE ($1::integer IS NULL OR lane = $1) AND ($2::text IS NULL OR reason = $2)
             AND ($3::text IS NULL
                  OR $3 = 'unfinished' AND opened_at IS NULL
                  OR $3 = 'kept_all' AND opened_at IS NOT NULL AND settled_at IS NULL AND lost = '[]'
                     AND coalesce(unknown, 0) = 0
                  OR $3 = 'unsettled' AND settled_at IS NULL AND (lost <> '[]' OR unknown > 0)
                  OR $3 = 'settled' AND settled_at IS NOT NULL)
             AND closed_at >= coalesce($4::timestamptz, '-infinity')
             AND closed_at < coalesce($5::timestamptz, 'infinity')
             AND (closed_at, id) < (coalesce($6::timestamptz, 'infinity'), coalesce($7, 9223372036854775807))
           ORDER BY closed_at DESC, id DESC LIMIT $8"#,
        filter.lane,
        filter.reason.map(ClosureReason::sentence),
        filter.state.map(RecoveryState::as_str),
        filter.from,
        filter.to,
        behind_at,
        behind.map(RecoveryId::get),
        i64::from(limit),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(found)
}

async fn time_of(
    tx: &mut PgConnection,
    recovery: RecoveryId,
) -> sqlx::Result<Option<DateTime<Utc>>> {
    sqlx::query_scalar!("SELECT closed_at FROM recoveries WHERE id = $1", recovery.get())
        .fetch_optional(tx)
        .await
}
