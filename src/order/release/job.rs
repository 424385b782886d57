//! Returns the units of closed orders to Redis, and frees places on users' lists of unpaid orders.
//!
//! # Model
//!
//! The transaction that closes an order inserts a row into `stock_returns`. The job reads the open rows, runs
//! `lua/release_units.lua`, and closes the rows. If the job dies anywhere in between, the next run repeats the step:
//! the script returns a unit only if Redis still has the closed order as the buyer's order. So a unit comes back once,
//! and a user who has claimed again keeps the new order.
//!
//! While `--unpaid-orders-max` is set, the claim script keeps a list of each user's unpaid orders. `lua/free_place.lua`
//! takes an order off the list when its unit is released and when it is paid. A payment inserts a row for the *place*
//! alone. Orders are removed by id, so a repeat frees nothing twice.
//!
//! # Turns
//!
//! Every coupon with open rows gets a turn of up to [`limits::STOCK_RETURNS_BATCH`] rows before any coupon gets its
//! next one, so a backlog of one sale doesn't delay the others. The job steps through an index from coupon to coupon,
//! so a turn costs the same however many rows the other coupons have.
//!
//! Discarding a dead letter makes a cancelled order, which has a row here, too. Its unit is released if the user is a
//! buyer by that order in Redis.
//!
//! # What each failure does
//!
//! * Redis or Postgres is away: the rows wait.
//! * The sale is missing in Redis (data loss, an alarm), or can't take units back: the coupon is postponed
//!   (`store/postponed.rs`) with its rows, and the job goes on with the others. The same happens if Postgres refuses to
//!   close a row. Its unit has been released then, and a repeat changes nothing.
//! * Two processes run the job at the same time: the second finds nothing left to release.
//!
//! # What is not promised
//!
//! A unit comes back soon while both stores answer, but not at once. Until then its user is still a buyer, and a new
//! claim is answered with the closed order.

use std::sync::Arc;

use sqlx::PgPool;

use crate::base::limits;
use crate::coupon::buyers;
use crate::coupon::buyers::shards::Shards;
use crate::coupon::load::Loader;
use crate::fence::{self, LaneStates};
use crate::order::release::places::pairs;
use crate::store::fleet::Fleet;
use crate::store::ids::{CouponId, Lane, OrderId, UserId};
use crate::store::job::{Job, Ran};
use crate::store::keys::Keys;
use crate::store::postgres;
use crate::store::postponed::{Postponed, Tries};
use crate::store::script::{Script, VariadicScript};
use crate::store::{Failure, Stores};

pub struct StockReturns {
    pool: PgPool,
    fleet: Fleet,
    keys: Keys,
    release: VariadicScript,
    free_place: Script<1>,
    /// Raises the alarm for a sale that Redis has lost.
    loader: Arc<Loader>,
    lanes: Arc<LaneStates>,
    postponed: Postponed,
}

/// A coupon with open rows.
struct Waiting {
    coupon_id: CouponId,
    /// Whether the sale is archived: then no unit has to come back to Redis.
    archived: bool,
    postponed: bool,
}

/// An open row.
struct Open {
    order_id: OrderId,
    user_id: UserId,
    /// `unit` or `place`.
    what: String,
}

struct Turn {
    /// Rows closed.
    closed: usize,
    /// Whether the coupon may have more open rows.
    is_full: bool,
    /// The failure that ended the turn early, if any.
    tried: Result<(), Failure>,
}

impl StockReturns {
    pub fn new(
        stores: &Stores,
        loader: Arc<Loader>,
        lanes: Arc<LaneStates>,
        postponed: Postponed,
    ) -> Self {
        let Stores { pool, fleet, keys } = stores.clone();
        let release = VariadicScript::new(include_str!("../../../lua/release_units.lua"));
        let free_place = Script::new(include_str!("../../../lua/free_place.lua"));
        Self { pool, fleet, keys, release, free_place, loader, lanes, postponed }
    }

    /// Returns units and places that are due, in up to [`limits::JOB_BATCHES_MAX`] batches of each coupon.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer; a later run repeats units that have been released by then.
    pub async fn run_once(&self) -> Result<Ran, Failure> {
        let mut tries = self.postponed.begin(Job::StockReturns).await?;
        let mut ran = Ran { items: 0, goes_on: true };
        for _ in 0..limits::JOB_BATCHES_MAX {
            let (closed, goes_on) = self.round(&mut tries).await?;
            ran.items += closed;
            ran.goes_on = goes_on;
            if !goes_on {
                break;
            }
        }
        tries.end().await?;
        Ok(ran)
    }

    /// One turn for each coupon. Returns the number of rows closed, and whether there may be more.
    async fn round(&self, tries: &mut Tries<'_>) -> Result<(usize, bool), Failure> {
        let mut closed = 0;
        let mut goes_on = false;
        let mut after = None;
        loop {
            let page = self.waiting(after).await?;
            let Some(last) = page.last().map(|waiting| waiting.coupon_id) else {
                return Ok((closed, goes_on));
            };
            for waiting in page.into_iter().filter(|waiting| !waiting.postponed) {
                let turn = self.turn(&waiting).await.unwrap_or_else(|failure| Turn {
                    closed: 0,
                    is_full: false,
                    tried: Err(failure),
                });
                closed += turn.closed;
                let failed = tries.settle(waiting.coupon_id.get(), turn.tried).await?.is_none();
                goes_on |= turn.is_full && turn.closed > 0 && !failed;
            }
            after = Some(last);
        }
    }

    /// Coupons with open rows and with ids above `after`, ascending.
    async fn waiting(&self, after: Option<CouponId>) -> sqlx::Result<Vec<Waiting>> {
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let waiting = sqlx::query_as!(
            Waiting,
            // Each step through the index reads only the first row of the next coupon.
            r#"WITH RECURSIVE step (number, coupon_id) AS (
                   (SELECT 1, coupon_id FROM stock_returns
                    WHERE done_at IS NULL AND coupon_id > coalesce($1::bigint, 0)
                    ORDER BY coupon_id LIMIT 1)
                   UNION ALL
                   SELECT number + 1,
                          (SELECT stock_returns.coupon_id FROM stock_returns
                           WHERE done_at IS NULL AND stock_returns.coupon_id > step.coupon_id
                           ORDER BY stock_returns.coupon_id LIMIT 1)
                   FROM step WHERE step.coupon_id IS NOT NULL AND number < $2::bigint)
               SELECT step.coupon_id AS "coupon_id!: CouponId",
                      coalesce(archived_at IS NOT NULL, false) AS "archived!",
                      EXISTS (SELECT FROM postponed WHERE job = 'stock_returns' AND item = step.coupon_id
                                                      AND next_try_at > now()) AS "postponed!"
               FROM step LEFT JOIN flash_sales USING (coupon_id)
               WHERE step.coupon_id IS NOT NULL ORDER BY step.coupon_id"#,
            after.map(CouponId::get),
            limits::JOB_COUPONS_MAX,
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(waiting)
    }

    /// One batch of a coupon. If the item itself fails, the turn holds the failure and the rows closed before it.
    async fn turn(&self, waiting: &Waiting) -> Result<Turn, Failure> {
        let coupon = waiting.coupon_id;
        let held = (coupon.lane(), self.lanes.epoch(coupon.lane()));
        let open = self.open(coupon).await?;
        let is_full = open.len() >= limits::STOCK_RETURNS_BATCH as usize;
        let (mut given, mut tried) = (0, Ok(()));
        for part in open.chunks(limits::RELEASE_UNITS_MAX) {
            match self.give_part_back(coupon, part, waiting.archived).await {
                Ok(true) => given += part.len(),
                Ok(false) => break,
                Err(failure) => {
                    tried = Err(failure);
                    break;
                }
            }
        }
        // If Postgres refuses, the next try closes these rows.
        let closed = close(&self.pool, held, &open[..given]).await?;
        Ok(Turn { closed, is_full, tried })
    }

    /// The coupon's open rows that have waited longest.
    async fn open(&self, coupon: CouponId) -> sqlx::Result<Vec<Open>> {
        sqlx::query_as!(
            Open,
            r#"SELECT order_id AS "order_id: OrderId", user_id AS "user_id: UserId", what FROM stock_returns
               WHERE coupon_id = $1 AND done_at IS NULL ORDER BY updated_at LIMIT $2"#,
            coupon.get(),
            i64::from(limits::STOCK_RETURNS_BATCH),
        )
        .fetch_all(&self.pool)
        .await
    }

    /// False if the sale can't take units back now.
    async fn give_part_back(
        &self,
        coupon: CouponId,
        part: &[Open],
        archived: bool,
    ) -> Result<bool, Failure> {
        let link = self.fleet.of(coupon.lane()).link().await?;
        let of_all = pairs(part.iter().map(|one| (one.user_id, one.order_id)));
        let unpaid = self.keys.unpaid(coupon.lane());
        let _freed: i64 = self.free_place.run(&link, [&unpaid], &of_all[..]).await?;
        let units = part.iter().filter(|one| one.what == "unit");
        let units: Vec<_> = units.map(|one| (one.user_id, one.order_id)).collect();
        // Nobody can claim units of an archived sale.
        if units.is_empty() || archived { Ok(true) } else { self.release(coupon, &units).await }
    }

    /// False if the sale can't take units back now.
    async fn release(
        &self,
        coupon: CouponId,
        units: &[(UserId, OrderId)],
    ) -> Result<bool, Failure> {
        let shards = buyers::shards(self.fleet.of(coupon.lane()), &self.keys, coupon)
            .await?
            .unwrap_or(Shards::ONE);
        let of_users =
            units.iter().map(|(user, _)| shards.key(&self.keys, coupon, shards.of(*user)));
        let of_sale = [self.keys.coupon(coupon), self.keys.lane(coupon.lane())];
        let names: Vec<String> = of_sale.into_iter().chain(of_users).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let epoch = self.lanes.epoch(coupon.lane());
        let channel = self.keys.restocks_channel();
        let of_units = pairs(units.iter().copied());
        let arguments = (coupon.get(), epoch, shards.to_string(), channel, &of_units[..]);
        let link = self.fleet.of(coupon.lane()).link().await?;
        let replies: Vec<String> = self.release.run(&link, &names, arguments).await?;
        let answers = |code: &String| code == "RELEASED" || code == "NOT_HELD";
        match &replies[..] {
            // The sale was archived after these rows were read: the next run closes them.
            [code] if code == "NOT_LOADED" => self.loader.missing(coupon).await.map(|_| false),
            [code] if code == "STALE" => {
                self.lanes.refresh().await?;
                match self.lanes.epoch(coupon.lane()) {
                    now if now == epoch => Err(Failure::Stale(coupon)),
                    _ => Ok(false),
                }
            }
            [code] if code == "RECOVERING" => Err(self.lanes.suspect(coupon.lane())),
            codes if codes.len() == units.len() && codes.iter().all(answers) => Ok(true),
            _ => Err(Failure::UnknownReply(replies.join(" "))),
        }
    }
}

/// Closes rows, if the lane is still open under this epoch. After a recovery in between, Redis may not have what was
/// done there, and it has to be done again. Returns the number of rows that were open.
async fn close(pool: &PgPool, (lane, epoch): (Lane, i64), rows: &[Open]) -> Result<usize, Failure> {
    if rows.is_empty() {
        return Ok(0);
    }
    let orders: Vec<i64> = rows.iter().map(|row| row.order_id.get()).collect();
    let whats: Vec<String> = rows.iter().map(|row| row.what.clone()).collect();
    let mut tx = postgres::begin_planning(pool).await?;
    if !fence::table::hold_open(&mut tx, lane, epoch).await? {
        tx.rollback().await?;
        return Err(Failure::Recovering(lane));
    }
    let done = sqlx::query!(
        // By the key. With IS NULL, a stale plan would scan all open rows by another index.
        "UPDATE stock_returns SET done_at = now(), updated_at = now()
         FROM UNNEST($1::bigint[], $2::text[]) AS done (id, thing)
         WHERE order_id = done.id AND what = done.thing AND coalesce(done_at, 'infinity') = 'infinity'",
        &orders,
        &whats,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
}
