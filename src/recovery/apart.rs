//! Finds stores that don't belong together: one of them went back in time, or is another one.
//!
//! # Model
//!
//! Postgres notes the Redis that it has approved ([`crate::fence`]). In return, the hash of each lane in Redis has
//! marks of its Postgres: the id of the installation, the incarnation of Postgres (`run`: cluster, timeline and
//! database), the order that was acknowledged last, and the sale that was opened last. The leader compares the marks
//! once a second, and each process compares them when it starts. A worker checks the order acknowledged last before it
//! writes.
//!
//! # Authority
//!
//! An operator's. Postgres had each order before it was acknowledged, and each load before its sale was opened. If
//! Postgres lacks one, or has an older epoch, it went back (a restored backup, a standby that lagged) or is a copy. All
//! lanes are then closed, in Postgres alone, under epochs above those of Redis: Redis may be selling for the right
//! Postgres. With `flash-sale recover --trust` an operator says which store is right.
//!
//! # What each failure does
//!
//! * Postgres has another incarnation and lacks nothing: the lanes are closed and compared, as after a restart of
//!   Redis.
//! * Postgres doesn't tell its incarnation: only what it lacks is noticed.
//! * Redis is emptied: there are no marks, and nothing to compare. The recovery makes new ones.
//!
//! # What is not promised
//!
//! If Postgres went back behind payments or cancellations only, and lacks no order and no sale, this isn't noticed,
//! unless its incarnation differs.

use sqlx::PgPool;

use super::by_hand;
use crate::coupon::orphans;
use crate::fence::ClosureReason;
use crate::fence::in_redis::{self, Seen};
use crate::fence::table::{self, Trust};
use crate::store::audit::Actor;
use crate::store::ids::Lane;
use crate::store::postgres;
use crate::store::{Failure, Stores, installation};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Together,
    /// Postgres has another incarnation than the one that this lane was opened for, and lacks nothing.
    OtherLife(Lane),
    /// Redis belongs to another installation.
    OtherInstallation(Lane),
    /// What Postgres lacks and Redis has, in words.
    Behind(String),
}

/// Lanes as Redis has them.
type Lanes = [(Lane, Seen)];

/// Compares the marks in Redis with Postgres. Changes nothing.
///
/// # Errors
///
/// When a store doesn't answer.
pub async fn check(stores: &Stores) -> Result<Standing, Failure> {
    judge(stores, &read(stores).await?).await
}

/// Compares the stores. If Postgres is behind, closes all lanes until an operator decides. Returns the incarnation of
/// Postgres, if it is known.
///
/// # Errors
///
/// [`Failure::Apart`] until an operator has decided; [`Failure::OtherInstallation`]; and when a store doesn't answer.
pub async fn examine(stores: &Stores, seen: &Lanes) -> Result<Option<String>, Failure> {
    if let Some(why) = installation::apart(&stores.pool).await? {
        return Err(Failure::Apart(why));
    }
    match judge(stores, seen).await? {
        Standing::Together | Standing::OtherLife(_) => {
            Ok(installation::identity(&stores.pool).await?.postgres_run)
        }
        Standing::OtherInstallation(lane) => Err(Failure::OtherInstallation(lane)),
        Standing::Behind(why) => {
            close_all(stores, &why).await?;
            Err(Failure::Apart(why))
        }
    }
}

/// The same for a process that starts: it starts even if a store doesn't answer, or the lanes are closed.
///
/// # Errors
///
/// [`Failure::OtherInstallation`] alone.
pub async fn examine_at_start(stores: &Stores) -> Result<(), Failure> {
    let examined = async { examine(stores, &read(stores).await?).await };
    match examined.await {
        Err(failure @ Failure::OtherInstallation(_)) => Err(failure),
        Err(failure @ Failure::Apart(_)) => {
            tracing::error!("{failure}");
            Ok(())
        }
        Err(failure) => {
            tracing::debug!(%failure, "the stores can't be compared yet");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

/// Closes lanes for an operator; the leader of a running service recovers them. If these are all lanes (`is_all`), this
/// settles an open decision, and raises the coupon sequence above every sale in Redis. Returns how many sales were
/// removed from Redis because only Redis had them.
///
/// # Errors
///
/// When a store doesn't answer.
pub async fn decide(
    stores: &Stores,
    lanes: &[Lane],
    is_all: bool,
    trust: Trust,
    by: &Actor,
) -> Result<usize, Failure> {
    for lane in lanes {
        by_hand::close(stores, *lane, trust, by).await?;
    }
    if !is_all {
        return Ok(0);
    }
    let highest = orphans::highest_sale(stores).await?;
    orphans::raise_sequence(&mut *stores.pool.acquire().await?, highest).await?;
    let removed = match trust {
        Trust::Redis => 0,
        Trust::Postgres => orphans::remove_all(stores).await?,
    };
    // Last, because the leader starts to recover now.
    installation::note_together(&stores.pool).await?;
    Ok(removed)
}

/// The lanes of all servers that answer.
async fn read(stores: &Stores) -> Result<Vec<(Lane, Seen)>, Failure> {
    let lanes = installation::read(&stores.pool).await?.lanes;
    let (mut found, mut failed) = (Vec::new(), Ok(()));
    for (server, redis) in stores.fleet.each().enumerate() {
        let of_server = Lane::all(lanes).filter(|lane| stores.fleet.number(*lane) == server);
        match in_redis::read_lanes(redis, &stores.keys, &of_server.collect::<Vec<_>>()).await {
            Ok((_, seen)) => found.extend(seen),
            Err(error) => failed = Err(error),
        }
    }
    if found.is_empty() { Ok(failed.map(|()| found)?) } else { Ok(found) }
}

/// Closes all lanes because Redis had this epoch of a lane before Postgres. Returns the failure to answer with.
///
/// # Errors
///
/// When a store doesn't answer.
pub(super) async fn close(stores: &Stores, seen: &Lanes, epoch: i64) -> Result<Failure, Failure> {
    let of = seen.first().map(|(lane, _)| lane.get()).unwrap_or_default();
    let why = format!("lane {of} had epoch {epoch} in Redis before Postgres had it");
    close_all(stores, &why).await?;
    Ok(Failure::Apart(why))
}

/// Reads Postgres after Redis: everything that Redis knows of was in Postgres first.
async fn judge(stores: &Stores, seen: &Lanes) -> Result<Standing, Failure> {
    let pool = &stores.pool;
    let identity = installation::identity(pool).await?;
    let is_other =
        |found: &Option<String>, ours: &str| found.as_deref().is_some_and(|found| found != ours);
    if let Some((lane, _)) =
        seen.iter().find(|(_, seen)| is_other(&seen.installation, &identity.installation))
    {
        return Ok(Standing::OtherInstallation(*lane));
    }
    if let Some(why) = lacking(pool, seen).await? {
        return Ok(Standing::Behind(why));
    }
    let Some(postgres_run) = &identity.postgres_run else {
        return Ok(Standing::Together);
    };
    let other = seen.iter().find(|(_, seen)| is_other(&seen.postgres_run, postgres_run));
    Ok(other.map_or(Standing::Together, |(lane, _)| Standing::OtherLife(*lane)))
}

/// Names something that Postgres must have and lacks. Skips lanes that an operator has decided about, until their
/// recovery. An order may be missing if its sale is archived.
async fn lacking(pool: &PgPool, seen: &Lanes) -> sqlx::Result<Option<String>> {
    let lanes: Vec<i32> = seen.iter().map(|(lane, _)| lane.get()).collect();
    let epochs: Vec<i64> = seen.iter().map(|(_, seen)| seen.epoch).collect();
    let (orders, orders_of): (Vec<i64>, Vec<i64>) = seen.iter().map(|(_, seen)| seen.last).unzip();
    let (sales, loads): (Vec<i64>, Vec<String>) =
        seen.iter().map(|(_, seen)| seen.sale.clone()).unzip();
    let found = sqlx::query!(
        r#"SELECT lane AS "lane!", mark.epoch AS "epoch!", held AS "held!", order_id AS "order_id!", sale AS "sale!",
                  order_is_missing AS "order_is_missing!"
           FROM (SELECT mark.*, coalesce(lanes.epoch, 0) AS held, trusts,
                     order_id > 0 AND NOT EXISTS (SELECT FROM orders WHERE id = order_id) AND NOT EXISTS (
                         SELECT FROM flash_sales WHERE coupon_id = order_of AND archived_at IS NOT NULL)
                         AS order_is_missing,
                     sale > 0 AND NOT EXISTS (
                         SELECT FROM flash_sales WHERE coupon_id = sale AND load_id = sale_load) AS sale_is_missing
                 FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
                      AS mark (lane, epoch, order_id, order_of, sale, sale_load)
                 LEFT JOIN lanes USING (lane)) AS mark
           WHERE mark.epoch > held OR trusts IS NULL AND (order_is_missing OR sale_is_missing)
           ORDER BY lane LIMIT 1"#,
        &lanes,
        &epochs,
        &orders,
        &orders_of,
        &sales,
        &loads,
    )
    .fetch_optional(pool)
    .await?;
    Ok(found.map(|row| {
        let lane = row.lane;
        if row.epoch > row.held {
            let (epoch, held) = (row.epoch, row.held);
            format!("lane {lane} has epoch {epoch} in Redis, and only {held} in Postgres")
        } else if row.order_is_missing {
            format!("Postgres lacks order {}, which Redis has seen written", row.order_id)
        } else {
            format!("Postgres lacks the load of coupon {}, which Redis has seen noted", row.sale)
        }
    }))
}

/// Closes all lanes in Postgres, under epochs above those of Redis.
async fn close_all(stores: &Stores, why: &str) -> Result<(), Failure> {
    let seen = read(stores).await?;
    let epochs: Vec<(Lane, i64)> = seen.iter().map(|(lane, seen)| (*lane, seen.epoch)).collect();
    let highest = orphans::highest_sale(stores).await?;
    let mut tx = postgres::begin(&stores.pool).await?;
    if !installation::note_apart(&mut tx, why).await? {
        // Another process has noted it first.
        return Ok(tx.rollback().await?);
    }
    table::close_all(&mut tx, &epochs, ClosureReason::PostgresBehind).await?;
    // A new coupon must not get the id of a sale that only Redis has.
    orphans::raise_sequence(&mut tx, highest).await?;
    Ok(tx.commit().await?)
}
