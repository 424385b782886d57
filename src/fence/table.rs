//! Owner of the table `lanes`.

use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use super::reason::ClosureReason;
use crate::store::ids::Lane;
use crate::store::postgres;

/// The store that an operator believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, sqlx::Type)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Trust {
    /// Buyers that only Redis has become orders.
    Redis,
    /// Buyers and sales that only Redis has are forgotten.
    Postgres,
}

#[derive(Clone, Debug)]
pub struct StoredLane {
    pub lane: Lane,
    /// Number of its approved state.
    pub epoch: i64,
    pub is_open: bool,
    /// Whether Redis has ever had the lane.
    pub has_begun: bool,
    /// The store that the next recovery believes; `None` while no operator has had to decide.
    pub trusts: Option<Trust>,
}

/// Adds the lanes that aren't there yet.
pub async fn add(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO lanes (lane, epoch)
         SELECT lane, epoch FROM settings, generate_series(0, settings.lanes - 1) AS lane
         ON CONFLICT DO NOTHING"
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// All lanes, in the order of their numbers.
pub async fn all(pool: &PgPool) -> sqlx::Result<Vec<StoredLane>> {
    let rows = sqlx::query!(
        r#"SELECT lane, epoch, state, begun, trusts AS "trusts: Trust" FROM lanes ORDER BY lane"#
    );
    let rows = rows.fetch_all(pool).await?;
    let lanes = rows.into_iter().map(|row| StoredLane {
        lane: Lane::numbered(row.lane),
        epoch: row.epoch,
        is_open: row.state == "open",
        has_begun: row.begun,
        trusts: row.trusts,
    });
    Ok(lanes.collect())
}

/// Notes that a lane has been begun in Redis.
pub async fn note_begun(pool: &PgPool, lane: Lane) -> sqlx::Result<()> {
    sqlx::query!("UPDATE lanes SET begun = true, updated_at = now() WHERE lane = $1", lane.get())
        .execute(pool)
        .await?;
    Ok(())
}

/// Raises the epoch of a lane and closes it; without a reason, only if it is closed already. Waits for the transactions
/// that write orders under the old epoch. Returns the new epoch; `None` if another process has raised it meanwhile.
pub async fn raise(
    pool: &PgPool,
    lane: Lane,
    epoch: i64,
    reason: Option<ClosureReason>,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "UPDATE lanes SET epoch = epoch + 1, state = 'recovering', updated_at = now(),
             closed_at = CASE state WHEN 'open' THEN now() ELSE closed_at END,
             reason = CASE state WHEN 'open' THEN $3 ELSE reason END
         WHERE lane = $1 AND epoch = $2 AND (state = 'recovering' OR $3::text IS NOT NULL) RETURNING epoch",
        lane.get(),
        epoch,
        reason.map(ClosureReason::sentence),
    )
    .fetch_optional(pool)
    .await
}

/// Closes a lane for an operator, under an epoch above its own and this one: the recovery that follows then has an
/// epoch above all of both stores. Returns the new epoch; `None` if there is no such lane.
pub async fn close_by_hand(
    tx: &mut PgConnection,
    lane: Lane,
    epoch: i64,
    trusts: Trust,
    reason: ClosureReason,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "UPDATE lanes SET epoch = greatest(epoch, $2) + 1, state = 'recovering', trusts = $3,
             closed_at = now(), reason = $4, updated_at = now()
         WHERE lane = $1 RETURNING epoch",
        lane.get(),
        epoch,
        trusts as Trust,
        reason.sentence(),
    )
    .fetch_optional(tx)
    .await
}

/// Closes all lanes. A lane in `epochs` gets an epoch above the one given there.
pub async fn close_all(
    tx: &mut PgConnection,
    epochs: &[(Lane, i64)],
    reason: ClosureReason,
) -> sqlx::Result<()> {
    let (lanes, epochs): (Vec<i32>, Vec<i64>) =
        epochs.iter().map(|(lane, epoch)| (lane.get(), *epoch)).unzip();
    sqlx::query!(
        "WITH in_redis AS (SELECT * FROM unnest($1::integer[], $2::bigint[]) AS told (lane, epoch))
         UPDATE lanes SET updated_at = now(), state = 'recovering', reason = $3,
             epoch = greatest(epoch, (SELECT epoch FROM in_redis WHERE in_redis.lane = lanes.lane)) + 1,
             closed_at = CASE state WHEN 'open' THEN now() ELSE closed_at END",
        &lanes,
        &epochs,
        reason.sentence(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Opens a lane under the epoch of its recovery. False if another recovery has begun.
pub async fn open(pool: &PgPool, lane: Lane, epoch: i64) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE lanes SET state = 'open', begun = true, trusts = NULL, updated_at = now()
         WHERE lane = $1 AND epoch = $2 AND state = 'recovering'",
        lane.get(),
        epoch,
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Locks the epoch of a lane until the transaction ends; others may hold it at the same time. Returns the epoch; `None`
/// if there is no such lane.
pub async fn hold_epoch(tx: &mut PgConnection, lane: Lane) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!("SELECT epoch FROM lanes WHERE lane = $1 FOR SHARE", lane.get())
        .fetch_optional(tx)
        .await
}

/// Locks a lane until the transaction ends; others may hold it at the same time. True if it is open under this epoch.
pub async fn hold_open(tx: &mut PgConnection, lane: Lane, epoch: i64) -> sqlx::Result<bool> {
    let held = sqlx::query_scalar!(
        r#"SELECT state = 'open' AS "open!" FROM lanes WHERE lane = $1 AND epoch = $2 FOR SHARE"#,
        lane.get(),
        epoch,
    );
    Ok(held.fetch_optional(tx).await?.unwrap_or(false))
}

/// Begins a transaction that [holds](hold_epoch) this epoch of a lane. `None` if the lane has another one.
pub async fn begin_in(
    pool: &PgPool,
    lane: Lane,
    epoch: i64,
) -> sqlx::Result<Option<Transaction<'static, Postgres>>> {
    let mut tx = postgres::begin(pool).await?;
    if hold_epoch(&mut tx, lane).await? == Some(epoch) {
        return Ok(Some(tx));
    }
    tx.rollback().await?;
    Ok(None)
}

/// The epoch of a lane; `None` if there is no such lane.
pub async fn epoch(pool: &PgPool, lane: Lane) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!("SELECT epoch FROM lanes WHERE lane = $1", lane.get())
        .fetch_optional(pool)
        .await
}
