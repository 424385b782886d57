//! Owner of the tables `lanes`, `lane_beats` and `lane_keeper`.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use crate::kit::postgres;
use crate::kit::redis::Origin;
use crate::sale::ids::Lane;

/// Reason of a closure on an operator's word.
pub const BY_HAND: &str = "an operator asked for it";

/// A lane in Postgres.
#[derive(Clone, Debug)]
pub struct StoredLane {
    /// The lane.
    pub lane: Lane,
    /// Number of its approved state.
    pub epoch: i64,
    /// Whether the lane is open.
    pub is_open: bool,
    /// Where the data of the approved Redis comes from; `None` until Redis has had the lane.
    pub origin: Option<Origin>,
    /// Whether a recovery believes Redis about buyers that Postgres doesn't know.
    pub harvests: bool,
}

/// Values of a lane, for the book of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneValues {
    /// Number of the lane.
    pub lane: i32,
    /// Number of its approved state.
    pub epoch: i64,
    /// `open` or `recovering`.
    pub state: String,
    /// Time of the last closure, if there was one.
    pub closed_at: Option<DateTime<Utc>>,
    /// Reason of the last closure.
    pub reason: Option<String>,
    /// Whether a recovery believes Redis about buyers that Postgres doesn't know.
    pub harvests: bool,
}

/// The last noted beat of a lane.
#[derive(Clone, Copy, Debug)]
pub struct NotedBeat {
    /// The lane.
    pub lane: Lane,
    /// The beat.
    pub beat: i64,
    /// Orders that the lane had ever promised.
    pub promised: i64,
    /// The last state of the lane in which all promised orders were written; `None` before the first.
    pub settled: Option<Settled>,
    /// Time of the note, by Postgres's clock.
    pub at: DateTime<Utc>,
}

/// The noted beat of a lane, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct LaneBeat {
    /// The beat.
    pub noted: NotedBeat,
    /// True if a look has noted the beat, and the lane has not been closed or opened since.
    pub by_look: bool,
    /// True if Redis holds a sale of the lane.
    pub holds_sale: bool,
}

/// State of a lane in which all promised orders were rows or dead letters.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// Orders that the lane had ever promised.
    pub promised: i64,
    /// Time of Redis: orders that were claimed from then on came later.
    pub at: DateTime<Utc>,
}

/// A lane whose claims wait: closed, or open and not confirmed by Redis.
#[derive(Clone, Debug)]
pub struct WaitingLane {
    /// The lane.
    pub lane: Lane,
    /// Number of its approved state.
    pub epoch: i64,
    /// Reason of the closure; none for an open lane.
    pub closed: Option<String>,
    /// Time of the closure, or of the last beat that Redis has confirmed.
    pub since: DateTime<Utc>,
}

impl NotedBeat {
    /// Whether a Redis with this beat has all that it had at the note. The beat that follows the noted one was raised
    /// by a process that died before its note.
    pub fn allows(&self, beat: i64) -> bool {
        beat == self.beat || beat == self.beat + 1
    }
}

/// Adds the lanes that aren't there yet.
pub async fn add(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!(
        "WITH new AS (
             INSERT INTO lanes (lane, epoch)
             SELECT lane, epoch FROM settings, generate_series(0, settings.lanes - 1) AS lane
             ON CONFLICT DO NOTHING RETURNING lane)
         INSERT INTO lane_beats (lane) SELECT lane FROM new ON CONFLICT DO NOTHING"
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// All lanes, by number.
pub async fn all(pool: &PgPool) -> sqlx::Result<Vec<StoredLane>> {
    let rows = sqlx::query!(
        "SELECT lane, epoch, state, run_id, replication_id, harvests FROM lanes ORDER BY lane"
    );
    let rows = rows.fetch_all(pool).await?;
    let lanes = rows.into_iter().map(|row| StoredLane {
        lane: Lane::numbered(row.lane),
        epoch: row.epoch,
        is_open: row.state == "open",
        // A version that doesn't know replication IDs has opened the lane: none is approved.
        origin: row.run_id.map(|run_id| Origin {
            run_id,
            replication_id: row.replication_id.unwrap_or_default(),
        }),
        harvests: row.harvests,
    });
    Ok(lanes.collect())
}

/// The noted beats of lanes that hold a sale in Redis, or of `all` lanes. Those without a sale guard nothing, and cost
/// commands.
pub async fn beats(pool: &PgPool, all: bool) -> sqlx::Result<Vec<LaneBeat>> {
    let rows = sqlx::query!(
        r#"WITH held AS (
               SELECT DISTINCT (coupon_id & 1023)::integer AS lane FROM flash_sales
               WHERE loaded_at IS NOT NULL AND archived_at IS NULL)
           SELECT lane, beat, promised, beat_at, settled_promised, settled_at, beat_at > updated_at AS "by_look!",
                  lane IN (SELECT lane FROM held) AS "holds_sale!"
           FROM lane_beats JOIN lanes USING (lane) WHERE $1 OR lane IN (SELECT lane FROM held)"#,
        all,
    );
    let rows = rows.fetch_all(pool).await?;
    let beats = rows.into_iter().map(|row| {
        let noted = NotedBeat {
            lane: Lane::numbered(row.lane),
            beat: row.beat,
            promised: row.promised,
            settled: settled(row.settled_promised, row.settled_at),
            at: row.beat_at,
        };
        LaneBeat { noted, by_look: row.by_look, holds_sale: row.holds_sale }
    });
    Ok(beats.collect())
}

/// Lanes that have waited for longer than this, from below the given number on, the largest number first. An open lane is
/// one if it holds a sale in Redis and was confirmed before: Redis is away, or has a newer epoch.
pub async fn waiting(
    pool: &PgPool,
    patience: Duration,
    below: Option<i64>,
    limit: u32,
) -> sqlx::Result<Vec<WaitingLane>> {
    let rows = sqlx::query!(
        r#"SELECT lane, epoch, CASE state WHEN 'open' THEN NULL ELSE reason END AS closed,
                  CASE state WHEN 'open' THEN beat_at ELSE closed_at END AS "since!"
           FROM lanes JOIN lane_beats USING (lane)
           WHERE lane < coalesce($2::bigint, 1024)
             AND CASE state WHEN 'open' THEN beat_at ELSE closed_at END < now() - make_interval(secs => $1)
             AND (state <> 'open' OR beat > 0 AND lane IN (
                 SELECT (coupon_id & 1023)::integer FROM flash_sales
                 WHERE loaded_at IS NOT NULL AND archived_at IS NULL))
           ORDER BY lane DESC LIMIT $3"#,
        patience.as_secs_f64(),
        below,
        i64::from(limit),
    );
    let rows = rows.fetch_all(pool).await?;
    let waiting = rows.into_iter().map(|row| WaitingLane {
        lane: Lane::numbered(row.lane),
        epoch: row.epoch,
        closed: row.closed,
        since: row.since,
    });
    Ok(waiting.collect())
}

/// The noted beat of one lane.
pub async fn beat(pool: &PgPool, lane: Lane) -> sqlx::Result<NotedBeat> {
    let row = sqlx::query!(
        "SELECT beat, promised, beat_at, settled_promised, settled_at FROM lane_beats
         WHERE lane = $1",
        lane.get()
    );
    let row = row.fetch_one(pool).await?;
    let settled = settled(row.settled_promised, row.settled_at);
    Ok(NotedBeat { lane, beat: row.beat, promised: row.promised, settled, at: row.beat_at })
}

fn settled(promised: Option<i64>, at: Option<DateTime<Utc>>) -> Option<Settled> {
    Some(Settled { promised: promised?, at: at? })
}

/// Notes beats that Redis has confirmed, each one higher than before.
pub async fn note_beats(pool: &PgPool, confirmed: &[NotedBeat]) -> sqlx::Result<()> {
    let lanes: Vec<i32> = confirmed.iter().map(|noted| noted.lane.get()).collect();
    let beats: Vec<i64> = confirmed.iter().map(|noted| noted.beat).collect();
    let promised: Vec<i64> = confirmed.iter().map(|noted| noted.promised).collect();
    let (settled, settled_at): (Vec<Option<i64>>, Vec<Option<DateTime<Utc>>>) = confirmed
        .iter()
        .map(|noted| (noted.settled.map(|of| of.promised), noted.settled.map(|of| of.at)))
        .unzip();
    sqlx::query!(
        "UPDATE lane_beats SET beat = confirmed.beat, promised = confirmed.promised, beat_at = now(),
             settled_promised = confirmed.settled_promised, settled_at = confirmed.settled_at
         FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::timestamptz[])
              AS confirmed (lane, beat, promised, settled_promised, settled_at)
         WHERE lane_beats.lane = confirmed.lane AND lane_beats.beat < confirmed.beat",
        &lanes,
        &beats,
        &promised,
        &settled as _,
        &settled_at as _,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Notes for these lanes a beat that Redis can't have: their notes are older than the moment to which Redis went back, so
/// that Redis may be as noted and has lost what came later. From then on each look, and each recovery, finds Redis behind.
pub async fn doubt(pool: &PgPool, lanes: impl IntoIterator<Item = Lane>) -> sqlx::Result<()> {
    let lanes: Vec<i32> = lanes.into_iter().map(Lane::get).collect();
    sqlx::query!(
        // No longer as of a look: these lanes prove nothing of others.
        "UPDATE lane_beats SET beat = beat + 2, beat_at = least(beat_at, updated_at)
         FROM lanes WHERE lanes.lane = lane_beats.lane AND lane_beats.lane = ANY($1)",
        &lanes,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Notes that the sales of a lane are taken over without a comparison, and have to be read once the lane is open.
pub async fn note_unchecked(pool: &PgPool, lane: Lane) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE lane_beats SET unchecked_since = clock_timestamp() WHERE lane = $1",
        lane.get()
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// The open lanes whose sales have to be read, each with the time of its note. None while a lane is recovering, so that
/// one comparison reads the sales of all lanes; but a lane waits no longer than `wait_max` for the others.
pub async fn unchecked(
    pool: &PgPool,
    wait_max: Duration,
) -> sqlx::Result<Vec<(Lane, DateTime<Utc>)>> {
    let rows = sqlx::query!(
        r#"SELECT lane, unchecked_since AS "since!" FROM lane_beats JOIN lanes USING (lane)
           WHERE unchecked_since IS NOT NULL AND state = 'open'
             AND (unchecked_since < clock_timestamp() - make_interval(secs => $1)
                  OR NOT EXISTS (SELECT FROM lanes AS other WHERE other.state = 'recovering'))"#,
        wait_max.as_secs_f64(),
    );
    let rows = rows.fetch_all(pool).await?;
    Ok(rows.into_iter().map(|row| (Lane::numbered(row.lane), row.since)).collect())
}

/// Notes that the sales of these lanes have been read, unless a lane has been recovered again since the time of its note.
pub async fn note_checked(pool: &PgPool, checked: &[(Lane, DateTime<Utc>)]) -> sqlx::Result<()> {
    let (lanes, since): (Vec<i32>, Vec<DateTime<Utc>>) =
        checked.iter().map(|(lane, since)| (lane.get(), *since)).unzip();
    sqlx::query!(
        "UPDATE lane_beats SET unchecked_since = NULL
         FROM unnest($1::integer[], $2::timestamptz[]) AS checked (lane, since)
         WHERE lane_beats.lane = checked.lane AND unchecked_since = checked.since",
        &lanes,
        &since,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Approves the Redis that a lane has been begun in. False if another one was approved before.
pub async fn approve_first(pool: &PgPool, lane: Lane, origin: &Origin) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE lanes SET run_id = $2, replication_id = $3, updated_at = now()
         WHERE lane = $1 AND run_id IS NULL",
        lane.get(),
        origin.run_id,
        origin.replication_id,
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Raises the epoch of a lane and closes it. Waits for the transactions that write orders under the old epoch. Returns
/// the new epoch; `None` if another process has raised it meanwhile.
pub async fn raise(
    pool: &PgPool,
    lane: Lane,
    epoch: i64,
    reason: &str,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "UPDATE lanes SET epoch = epoch + 1, state = 'recovering', updated_at = now(),
             closed_at = CASE state WHEN 'open' THEN now() ELSE closed_at END,
             reason = CASE state WHEN 'open' THEN $3 ELSE reason END
         WHERE lane = $1 AND epoch = $2 RETURNING epoch",
        lane.get(),
        epoch,
        reason,
    )
    .fetch_optional(pool)
    .await
}

/// Closes a lane on an operator's word, under an epoch that is at least this one: the recovery that follows raises it
/// above all epochs of both stores. Returns the lane before and after; `None` for a lane that has never been begun.
pub async fn close_by_hand(
    tx: &mut PgConnection,
    lane: Lane,
    epoch: i64,
    harvests: bool,
    reason: &str,
) -> sqlx::Result<Option<(LaneValues, LaneValues)>> {
    let closed = sqlx::query!(
        "WITH was AS (SELECT lane, epoch, state, closed_at, reason, harvests FROM lanes WHERE lane = $1 FOR UPDATE)
         UPDATE lanes SET epoch = greatest(lanes.epoch, $2) + 1, state = 'recovering', harvests = $3,
             closed_at = now(), reason = $4, updated_at = now()
         FROM was WHERE lanes.lane = was.lane
         RETURNING was.epoch AS epoch_before, was.state AS state_before, was.closed_at AS closed_before,
                   was.reason AS reason_before, was.harvests AS harvested_before, lanes.epoch, lanes.closed_at",
        lane.get(),
        epoch,
        harvests,
        reason,
    )
    .fetch_optional(tx)
    .await?;
    Ok(closed.map(|row| {
        let before = LaneValues {
            lane: lane.get(),
            epoch: row.epoch_before,
            state: row.state_before,
            closed_at: row.closed_before,
            reason: row.reason_before,
            harvests: row.harvested_before,
        };
        let after = LaneValues {
            lane: lane.get(),
            epoch: row.epoch,
            state: "recovering".to_owned(),
            closed_at: row.closed_at,
            reason: Some(reason.to_owned()),
            harvests,
        };
        (before, after)
    }))
}

/// Closes all lanes, those that are named under epochs above these. No recovery believes the beats that are noted: they
/// are of another time than those of Redis.
pub async fn close_all(
    tx: &mut PgConnection,
    epochs: &[(Lane, i64)],
    reason: &str,
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
        reason,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!("UPDATE lane_beats SET beat = beat + 2").execute(tx).await?;
    Ok(())
}

/// Notes how many acknowledged orders no store knows, after a decision of an operator that has been carried out.
pub async fn accept_unwritten(pool: &PgPool, lane: Lane, orders: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE lanes SET unwritten_accepted = $2, updated_at = now() WHERE lane = $1 AND reason = $3",
        lane.get(),
        orders,
        BY_HAND,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// The numbers that [`accept_unwritten`] has noted, by lane.
pub async fn unwritten_accepted(pool: &PgPool) -> sqlx::Result<HashMap<i32, i64>> {
    let rows =
        sqlx::query!("SELECT lane, unwritten_accepted FROM lanes WHERE unwritten_accepted > 0");
    let rows = rows.fetch_all(pool).await?;
    Ok(rows.into_iter().map(|row| (row.lane, row.unwritten_accepted)).collect())
}

/// Opens a lane under the epoch of its recovery, and approves this Redis. False if another recovery has begun.
pub async fn open(pool: &PgPool, lane: Lane, epoch: i64, origin: &Origin) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE lanes SET state = 'open', run_id = $3, replication_id = $4, harvests = true,
             updated_at = now()
         WHERE lane = $1 AND epoch = $2 AND state = 'recovering'",
        lane.get(),
        epoch,
        origin.run_id,
        origin.replication_id,
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Locks the epoch of a lane until the transaction ends, beside other holders. Returns it; `None` for a lane that has
/// never been begun.
pub async fn hold_epoch(tx: &mut PgConnection, lane: Lane) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!("SELECT epoch FROM lanes WHERE lane = $1 FOR SHARE", lane.get())
        .fetch_optional(tx)
        .await
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

/// The epoch of a lane; `None` for one that has never been begun.
pub async fn epoch(pool: &PgPool, lane: Lane) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!("SELECT epoch FROM lanes WHERE lane = $1", lane.get())
        .fetch_optional(pool)
        .await
}

/// Keeps the lanes for `time`, if no other process does. Saves work only: two keepers do no harm.
pub async fn keep(pool: &PgPool, process: &str, time: Duration) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE lane_keeper SET process = $1, until = now() + $2 * interval '1 second'
         WHERE process = $1 OR until < now()",
        process,
        time.as_secs_f64(),
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Lets another process keep the lanes.
pub async fn give_up(pool: &PgPool, process: &str) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE lane_keeper SET until = '1970-01-01T00:00:00Z' WHERE process = $1",
        process
    )
    .execute(pool)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_is_allowed_if_it_is_the_noted_one_or_the_next() {
        let at = DateTime::UNIX_EPOCH;
        let noted = NotedBeat { lane: Lane::numbered(0), beat: 7, promised: 0, settled: None, at };
        let allowed = [5, 6, 7, 8, 9].map(|beat| noted.allows(beat));
        assert_eq!(allowed, [false, false, true, true, false]);
    }

    #[test]
    fn a_settled_state_has_its_number_and_its_time() {
        let at = DateTime::UNIX_EPOCH;
        let found = |promised, at| settled(promised, at).map(|of| (of.promised, of.at));
        assert_eq!(found(Some(7), Some(at)), Some((7, at)));
        assert_eq!([found(None, Some(at)), found(Some(7), None), found(None, None)], [None; 3]);
    }
}
