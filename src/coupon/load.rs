//! The load of a sale into Redis. It begins when the claim script replies NOT_LOADED.
//!
//! # Why no sale is loaded twice
//!
//! A sale that is loaded a second time would sell its sold units again. So Postgres notes (`loaded_at`) that Redis has
//! had the sale, and a sale with that note is never loaded:
//!
//! 1. `load_sale.lua` writes the sale in state `loading`, with an id of its own for this load; claims are still told
//!    NOT_LOADED. Then `make_shards.lua` makes the shards of its buyers, a thousand in a call: all of them, even if
//!    another caller has made some for the same load.
//! 2. Postgres notes the load and its id; of several, the first.
//! 3. `open_sale.lua` gives the sale its real state, which was loaded with it, if the sale is the noted load's. From
//!    then on claims are decided. Changes since the read in step 1 are applied like any others (`changes.rs`).
//!
//! If a process dies between steps, the next caller resumes: a step that has been done does nothing. No claim is
//! possible before the note, so "noted and missing" always means that Redis has lost data. A sale of another load means
//! the same: it was written by a process that slept while the noted load was sold and lost. Then claims are answered
//! 503, and the sale is not loaded anew, because accepted claims may still be on their way to Postgres.
//!
//! # Load
//!
//! Claims on a loaded sale never ask Postgres. NOT_LOADED does, once for each coupon at a time, and the answer is
//! remembered for [`limits::LOADER_MEMORY`], even for a coupon that doesn't exist.

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use sqlx::PgPool;
use uuid::Uuid;

use crate::base::limits;
use crate::coupon::buyers::shards::Shards;
use crate::coupon::model::SaleTerms;
use crate::coupon::stock::{self, Stage, StoredCoupon, StoredSale};
use crate::fence::loss::LossAlarm;
use crate::fence::{self, LaneStates};
use crate::store::fleet::Fleet;
use crate::store::ids::CouponId;
use crate::store::job::Job;
use crate::store::keys::Keys;
use crate::store::postgres;
use crate::store::postponed::Postponed;
use crate::store::script::{Script, VariadicScript};
use crate::store::{Failure, Stores};

/// Kind of a coupon that wasn't loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// A sale, which is loaded now: ask the script again.
    Loaded,
    /// A regular coupon; it has no sale.
    Regular,
    /// A sale that is over and settled; Postgres answers for it.
    Archived,
    Unknown,
}

pub struct Loader {
    pool: PgPool,
    fleet: Fleet,
    keys: Keys,
    load: Script<2>,
    make_shards: VariadicScript,
    open: Script<2>,
    lanes: Arc<LaneStates>,
    /// Merges callers that ask about the same coupon, and remembers the answer for a moment.
    resolved: Cache<CouponId, Resolution>,
    loss: Arc<LossAlarm>,
    postponed: Postponed,
}

impl Loader {
    pub fn new(
        stores: &Stores,
        lanes: Arc<LaneStates>,
        loss: Arc<LossAlarm>,
        postponed: Postponed,
    ) -> Self {
        let Stores { pool, fleet, keys } = stores.clone();
        Self {
            pool,
            fleet,
            keys,
            load: Script::new(include_str!("../../lua/load_sale.lua")),
            make_shards: VariadicScript::new(include_str!("../../lua/make_shards.lua")),
            open: Script::new(include_str!("../../lua/open_sale.lua")),
            lanes,
            resolved: Cache::builder()
                .max_capacity(limits::LOADER_MEMORY_COUPONS_MAX)
                .time_to_live(limits::LOADER_MEMORY)
                .build(),
            loss,
            postponed,
        }
    }

    /// Looks up a coupon that the script doesn't know, and loads its sale if that is allowed.
    ///
    /// # Errors
    ///
    /// [`Failure::DataLost`] when the sale has been loaded before, and is missing; otherwise when a store doesn't
    /// answer.
    pub async fn resolve(&self, coupon: CouponId) -> Result<Resolution, Failure> {
        Ok(self.resolved.try_get_with(coupon, self.resolve_now(coupon)).await?)
    }

    /// [`resolve`](Self::resolve) without the memory: for a coupon that has just been created or changed, and for jobs.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn resolve_now(&self, coupon: CouponId) -> Result<Resolution, Failure> {
        let sale = match stock::find(&self.pool, coupon).await? {
            None => return Ok(Resolution::Unknown),
            Some(StoredCoupon::Regular(_)) => return Ok(Resolution::Regular),
            Some(StoredCoupon::Flash(sale)) => sale,
        };
        let load_id = match &sale.stage {
            Stage::Archived { .. } => return Ok(Resolution::Archived),
            Stage::Loaded { load_id } => load_id.clone(),
            Stage::Unloaded => {
                let epoch = self.lanes.epoch(coupon.lane());
                let load_id = self.load(coupon, &sale, epoch).await?;
                self.note_load(coupon, &load_id, epoch).await?
            }
        };
        self.open(coupon, &load_id).await
    }

    /// Loads the sales that open within `ahead` and have never been loaded. Returns their number. A sale that can't be
    /// loaded is postponed.
    pub async fn run_once(&self, ahead: Duration) -> Result<usize, Failure> {
        let mut tries = self.postponed.begin(Job::Load).await?;
        let mut loaded = 0;
        for coupon in stock::to_load(&self.pool, ahead).await? {
            let tried = self.resolve_now(coupon).await;
            loaded += usize::from(tries.settle(coupon.get(), tried).await?.is_some());
        }
        tries.end().await?;
        Ok(loaded)
    }

    /// Tells why Redis lacks a sale that Postgres has noted as loaded: the sale has been archived since Postgres was
    /// asked, or it is lost.
    ///
    /// # Errors
    ///
    /// [`Failure::DataLost`] when the sale is lost; otherwise when Postgres doesn't answer.
    pub async fn missing(&self, coupon: CouponId) -> Result<Resolution, Failure> {
        match stock::find(&self.pool, coupon).await? {
            Some(StoredCoupon::Flash(sale)) if sale.is_archived() => Ok(Resolution::Archived),
            _ => Err(self.loss.raise(coupon)),
        }
    }

    /// Notes the load, and returns the one that holds. Only if the lane still has the epoch that the load began in: a
    /// load that was lost in between is begun anew.
    async fn note_load(
        &self,
        coupon: CouponId,
        load_id: &str,
        epoch: i64,
    ) -> Result<String, Failure> {
        let mut tx = postgres::begin(&self.pool).await?;
        if fence::table::hold_epoch(&mut tx, coupon.lane()).await? != Some(epoch) {
            tx.rollback().await?;
            return Err(self.lanes.suspect(coupon.lane()));
        }
        let load_id = stock::note_load(&mut tx, coupon, load_id).await?;
        tx.commit().await?;
        Ok(load_id)
    }

    /// Writes the sale with all of its shards, unless it is there. Returns the id of the load that wrote it.
    async fn load(
        &self,
        coupon: CouponId,
        sale: &StoredSale,
        epoch: i64,
    ) -> Result<String, Failure> {
        let SaleTerms { total, opens_at, closes_at } = sale.terms;
        let values = [
            opens_at.timestamp_millis(),
            closes_at.timestamp_millis(),
            total,
            sale.revision,
            epoch,
        ];
        let load_id = Uuid::new_v4().simple().to_string();
        let names = self.names(coupon);
        let link = self.fleet.of(coupon.lane()).link().await?;
        let shards = Shards::for_units(total);
        let arguments = (load_id, &values[..], shards.count(), sale.state.as_str());
        let (code, load_id, shards): (String, String, String) =
            self.load.run(&link, names.each_ref().map(String::as_str), arguments).await?;
        match code.as_str() {
            "LOADING" => {}
            "OPEN" => return self.opened_meanwhile(coupon).await,
            "CLOSED" => {
                self.lanes.refresh().await?;
                return Err(self.lanes.suspect(coupon.lane()));
            }
            _ => return Err(Failure::UnknownReply(code)),
        }
        let shards = shards.parse().map_err(|_| Failure::UnknownReply(shards))?;
        self.make_shards(coupon, &load_id, shards).await?;
        Ok(load_id)
    }

    /// The load that another caller has noted since Postgres was asked. If there is none, the sale in Redis isn't ours.
    async fn opened_meanwhile(&self, coupon: CouponId) -> Result<String, Failure> {
        match stock::find(&self.pool, coupon).await? {
            Some(StoredCoupon::Flash(StoredSale {
                stage: Stage::Loaded { load_id } | Stage::Archived { load_id },
                ..
            })) => Ok(load_id),
            _ => Err(Failure::OtherSale(coupon)),
        }
    }

    /// Each call checks again that the sale is still this load's, and not open yet.
    async fn make_shards(
        &self,
        coupon: CouponId,
        load_id: &str,
        shards: Shards,
    ) -> Result<(), Failure> {
        let shards: Vec<String> =
            shards.all().map(|shard| shards.key(&self.keys, coupon, shard)).collect();
        let of_sale = self.names(coupon);
        for part in shards.chunks(limits::SHARDS_AT_A_TIME) {
            let names: Vec<&str> = of_sale.iter().chain(part).map(String::as_str).collect();
            let link = self.fleet.of(coupon.lane()).link().await?;
            let reply: String = self.make_shards.run(&link, &names, load_id).await?;
            match reply.as_str() {
                "MADE" => {}
                "PRESENT" => break,
                // The load has not been noted yet, so the next caller loads the sale anew.
                "MISSING" => return Err(self.loss.raise(coupon)),
                "RECOVERING" => return Err(self.lanes.suspect(coupon.lane())),
                _ => return Err(Failure::UnknownReply(reply)),
            }
        }
        Ok(())
    }

    /// Keys of the sale and of its lane.
    fn names(&self, coupon: CouponId) -> [String; 2] {
        [self.keys.coupon(coupon), self.keys.lane(coupon.lane())]
    }

    async fn open(&self, coupon: CouponId, load_id: &str) -> Result<Resolution, Failure> {
        let names = self.names(coupon);
        let link = self.fleet.of(coupon.lane()).link().await?;
        let arguments = (load_id, coupon.get());
        let reply: String =
            self.open.run(&link, names.each_ref().map(String::as_str), arguments).await?;
        match reply.as_str() {
            "OPENED" | "PRESENT" => Ok(Resolution::Loaded),
            "MISSING" => self.missing(coupon).await,
            "BEHIND" => Err(self.loss.raise(coupon)),
            "RECOVERING" => Err(self.lanes.suspect(coupon.lane())),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }
}
