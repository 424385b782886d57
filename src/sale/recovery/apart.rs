//! Redis and Postgres that don't belong together: one of them went back in time, or is another one.
//!
//! # Model
//!
//! Postgres notes the Redis that it has approved ([`crate::sale::fence`]). In return the hash of each lane in Redis has
//! marks of the Postgres that it belongs to: the installation's id, the life of Postgres, the order that was acknowledged
//! last, and the sale that was opened last. The keeper compares them once a second, and each process before it begins.
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
use super::closures::ClosureReason;
use crate::kit::postgres;
use crate::kit::redis::is_data_error;
use crate::sale::audit::Actor;
use crate::sale::coupon::orphans;
use crate::sale::fence::table;
use crate::sale::ids::Lane;
use crate::sale::{Failure, Stores, installation};

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

/// The store that an operator believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Trust {
    /// Buyers that only Redis has become orders.
    Redis,
    /// Buyers and sales that only Redis has are forgotten.
    Postgres,
}

/// Marks of Postgres in the hash of a lane.
struct Marks {
    lane: Lane,
    epoch: i64,
    installation: Option<String>,
    life: Option<String>,
    /// The order that was acknowledged last, and its coupon; 0 for none.
    order: (i64, i64),
    /// The sale that was opened last, and its load; 0 for none.
    sale: (i64, String),
}

const FIELDS: [&str; 7] =
    ["epoch", "installation", "postgres", "last", "last_of", "sale", "sale_load"];

/// Compares the marks in Redis with Postgres. Changes nothing.
///
/// # Errors
///
/// When a store doesn't answer.
pub async fn look(stores: &Stores) -> Result<Standing, Failure> {
    look_at(stores, &read(stores).await?).await
}

/// Compares the stores. If Postgres is behind, all lanes are closed until an operator decides. Returns whether Postgres
/// has another life than the one that the lanes have been opened for.
///
/// # Errors
///
/// [`Failure::Apart`] as long as the decision is open; [`Failure::OtherInstallation`]; and when a store doesn't answer.
pub async fn examine(stores: &Stores) -> Result<bool, Failure> {
    if let Some(why) = installation::apart(&stores.pool).await? {
        return Err(Failure::Apart(why));
    }
    let marks = read(stores).await?;
    match look_at(stores, &marks).await? {
        Standing::Together => Ok(false),
        Standing::OtherLife(_) => Ok(true),
        Standing::OtherInstallation(lane) => Err(Failure::OtherInstallation(lane)),
        Standing::Behind(why) => {
            close_all(stores, &marks, &why).await?;
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
    match examine(stores).await {
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
        by_hand::close(stores, *lane, trust == Trust::Redis, by).await?;
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

async fn read(stores: &Stores) -> Result<Vec<Marks>, Failure> {
    let Stores { pool, redis, keys } = stores;
    let lanes: Vec<Lane> = Lane::all(installation::read(pool).await?.lanes).collect();
    let mut commands = redis::pipe();
    for lane in &lanes {
        commands.cmd("HMGET").arg(keys.lane(*lane)).arg(&FIELDS);
    }
    let replies = redis.query_each::<Vec<Option<String>>>(&mut commands).await?;
    let mut marks = Vec::with_capacity(lanes.len());
    for (lane, reply) in lanes.into_iter().zip(replies) {
        match reply {
            Ok(fields) => marks.push(Marks::of(lane, fields)),
            // What can't be read counts as lost.
            Err(error) if is_data_error(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(marks)
}

impl Marks {
    fn of(lane: Lane, fields: Vec<Option<String>>) -> Self {
        let [epoch, installation, life, order, order_of, sale, load] =
            fields.try_into().unwrap_or_default();
        let number =
            |field: Option<String>| field.and_then(|text| text.parse().ok()).unwrap_or_default();
        Self {
            lane,
            epoch: number(epoch),
            installation,
            life,
            order: (number(order), number(order_of)),
            sale: (number(sale), load.unwrap_or_default()),
        }
    }
}

/// Postgres is asked after Redis: it had everything that Redis tells of before Redis had.
async fn look_at(stores: &Stores, marks: &[Marks]) -> Result<Standing, Failure> {
    let pool = &stores.pool;
    let identity = installation::identity(pool).await?;
    let is_other =
        |found: &Option<String>, ours: &str| found.as_deref().is_some_and(|found| found != ours);
    if let Some(marks) =
        marks.iter().find(|marks| is_other(&marks.installation, &identity.installation))
    {
        return Ok(Standing::OtherInstallation(marks.lane));
    }
    if let Some(why) = lacking(pool, marks).await? {
        return Ok(Standing::Behind(why));
    }
    let Some(life) = &identity.life else {
        return Ok(Standing::Together);
    };
    let other = marks.iter().find(|marks| is_other(&marks.life, life));
    Ok(other.map_or(Standing::Together, |marks| Standing::OtherLife(marks.lane)))
}

/// Names something that Postgres has to have, and lacks. Marks of a lane that has an older epoch in Redis are about to be
/// replaced by its recovery. An order may be gone if its sale is archived.
async fn lacking(pool: &PgPool, marks: &[Marks]) -> sqlx::Result<Option<String>> {
    let lanes: Vec<i32> = marks.iter().map(|marks| marks.lane.get()).collect();
    let epochs: Vec<i64> = marks.iter().map(|marks| marks.epoch).collect();
    let (orders, orders_of): (Vec<i64>, Vec<i64>) = marks.iter().map(|marks| marks.order).unzip();
    let (sales, loads): (Vec<i64>, Vec<String>) =
        marks.iter().map(|marks| marks.sale.clone()).unzip();
    let found = sqlx::query!(
        r#"SELECT lane AS "lane!", mark.epoch AS "epoch!", held AS "held!", order_id AS "order_id!", sale AS "sale!",
                  order_is_missing AS "order_is_missing!"
           FROM (SELECT mark.*, coalesce(lanes.epoch, 0) AS held,
                     order_id > 0 AND NOT EXISTS (SELECT FROM orders WHERE id = order_id) AND NOT EXISTS (
                         SELECT FROM flash_sales WHERE coupon_id = order_of AND archived_at IS NOT NULL)
                         AS order_is_missing,
                     sale > 0 AND NOT EXISTS (
                         SELECT FROM flash_sales WHERE coupon_id = sale AND load_id = sale_load) AS sale_is_missing
                 FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
                      AS mark (lane, epoch, order_id, order_of, sale, sale_load)
                 LEFT JOIN lanes USING (lane)) AS mark
           WHERE mark.epoch > held OR mark.epoch = held AND (order_is_missing OR sale_is_missing)
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
async fn close_all(stores: &Stores, marks: &[Marks], why: &str) -> Result<(), Failure> {
    let epochs: Vec<(Lane, i64)> = marks.iter().map(|marks| (marks.lane, marks.epoch)).collect();
    let highest = orphans::highest_sale(stores).await?;
    let mut tx = postgres::begin(&stores.pool).await?;
    if !installation::note_apart(&mut tx, why).await? {
        // Another process was faster.
        return Ok(tx.rollback().await?);
    }
    table::close_all(&mut tx, &epochs, ClosureReason::PostgresBehind.sentence()).await?;
    // A coupon that is created now must not get the id of a sale that only Redis has.
    orphans::raise_sequence(&mut tx, highest).await?;
    Ok(tx.commit().await?)
}
