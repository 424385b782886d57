//! Redis and Postgres that don't belong together: one of them went back in time, or is another one.
//!
//! # Model
//!
//! Postgres notes the Redis that it has approved ([`crate::fence`]). In return the hash of each lane in Redis has
//! marks of the Postgres that it belongs to: the installation's id, the life of Postgres, the order that was acknowledged
//! last, and the sale that was opened last. The leader compares them once a second, each process before it begins, and a worker
//! asks for that order before it writes.
//!
//! # Authority
//!
//! An operator's. Postgres had an order before it was acknowledged, and a load before its sale was opened; if it lacks
//! one, or has an older epoch, it went back (a restored backup, a standby that lagged) or is a copy. All lanes are closed
//! then, in Postgres alone, under epochs above those of Redis: Redis may be selling for the Postgres that it belongs to.
//! `flash-sale recover --trust` says which store is right.
//!
//! # What each failure does
//!
//! * Another life of Postgres, and it lacks nothing: the lanes are closed and compared as after a start of Redis.
//! * Postgres doesn't tell its life: only what it lacks is noticed.
//! * Redis is emptied: no marks, nothing to compare. The recovery makes new ones.
//!
//! # What is not promised
//!
//! A Postgres that went back behind payments or cancellations only, and lacks no order and no sale, is not noticed; its
//! other life may be.

use sqlx::PgPool;

use super::by_hand;
use crate::coupon::orphans;
use crate::fence::ClosureReason;
use crate::fence::look::{self, Seen};
use crate::fence::table::{self, Trust};
use crate::store::audit::Actor;
use crate::store::ids::Lane;
use crate::store::postgres;
use crate::store::{Failure, Stores, installation};

/// Result of a comparison of the marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The stores belong together.
    Together,
    /// Postgres has another life than the one that this lane has been opened for, and lacks nothing.
    OtherLife(Lane),
    /// Redis belongs to another installation.
    OtherInstallation(Lane),
    /// Postgres lacks what Redis has, in words.
    Behind(String),
}

/// Lanes as Redis has them.
type Lanes = [(Lane, Seen)];

/// Compares the marks in Redis with Postgres. Changes nothing.
///
/// # Errors
///
/// When a store doesn't answer.
pub async fn look(stores: &Stores) -> Result<Standing, Failure> {
    judge(stores, &read(stores).await?).await
}

/// Compares the stores. If Postgres is behind, all lanes are closed until an operator decides. Returns the life of
/// Postgres, if that is known.
///
/// # Errors
///
/// [`Failure::Apart`] as long as the decision is open; [`Failure::OtherInstallation`]; and when a store doesn't answer.
pub async fn examine(stores: &Stores, seen: &Lanes) -> Result<Option<String>, Failure> {
    if let Some(why) = installation::apart(&stores.pool).await? {
        return Err(Failure::Apart(why));
    }
    match judge(stores, seen).await? {
        Standing::Together | Standing::OtherLife(_) => {
            Ok(installation::identity(&stores.pool).await?.life)
        }
        Standing::OtherInstallation(lane) => Err(Failure::OtherInstallation(lane)),
        Standing::Behind(why) => {
            close_all(stores, &why).await?;
            Err(Failure::Apart(why))
        }
    }
}

/// The same for a process that begins: it goes on without a store that doesn't answer, and with closed lanes.
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

/// Closes lanes on an operator's word, all of them if that is asked for; the keeper of a running service recovers them.
/// Where all are closed, a decision that was open is made, and the coupon sequence is above every sale in Redis.
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
    // Last: from here on the keeper recovers.
    installation::note_together(&stores.pool).await?;
    Ok(removed)
}

/// The lanes of all servers that answer.
async fn read(stores: &Stores) -> Result<Vec<(Lane, Seen)>, Failure> {
    let lanes = installation::read(&stores.pool).await?.lanes;
    let (mut found, mut failed) = (Vec::new(), Ok(()));
    for (server, redis) in stores.fleet.each().enumerate() {
        let of_server = Lane::all(lanes).filter(|lane| stores.fleet.number(*lane) == server);
        match look::look(redis, &stores.keys, &of_server.collect::<Vec<_>>()).await {
            Ok((_, seen)) => found.extend(seen),
            Err(error) => failed = Err(error),
        }
    }
    if found.is_empty() { Ok(failed.map(|()| found)?) } else { Ok(found) }
}

/// Closes all lanes because Redis has had this epoch of a lane before Postgres had. Returns the failure to answer with.
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

/// Postgres is asked after Redis: it had everything that Redis tells of before Redis had.
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
    let Some(life) = &identity.life else {
        return Ok(Standing::Together);
    };
    let other = seen.iter().find(|(_, seen)| is_other(&seen.life, life));
    Ok(other.map_or(Standing::Together, |(lane, _)| Standing::OtherLife(*lane)))
}

/// Names something that Postgres has to have, and lacks. Of a lane about which an operator has decided, nothing is asked until
/// its recovery. An order may be gone if its sale is archived.
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
        // Another process was faster.
        return Ok(tx.rollback().await?);
    }
    table::close_all(&mut tx, &epochs, ClosureReason::PostgresBehind).await?;
    // A coupon that is created now must not get the id of a sale that only Redis has.
    orphans::raise_sequence(&mut tx, highest).await?;
    Ok(tx.commit().await?)
}
