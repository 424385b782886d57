//! Changes of a coupon: edit, pause, resume, end, restock.
//!
//! # Model
//!
//! Postgres decides: one transaction changes the coupon and raises its `revision` by one. Then `apply_coupon.lua` gives
//! Redis the values of the newest revision if Redis has an older one. It gives all of them (window, total, state), as
//! absolute values. Postgres notes the revision that Redis has (`applied_revision`).
//!
//! # Authority
//!
//! The revision decides. A process that applies a change reads the newest revision first, and an older one never
//! replaces a newer one. So any process may apply revisions, any number of times, in any order. Redis sells within a
//! total that Postgres has had before it, because the total only grows.
//!
//! # What each failure does
//!
//! * A process dies between the two stores: the `applied_revision` of the coupon is behind, and
//!   [`CouponChanges::run_once`] finds and applies the change.
//! * Redis goes back in time, and has an older revision than Postgres has noted: its lanes are closed, and the recovery
//!   builds such a sale anew (`recovery`).
//! * Redis is away, or slow: the change has been decided and isn't in force yet. The caller is told so.
//! * The sale is missing in Redis: that is a loss of data, and no change puts it back.
//! * The sale can't be changed in Redis (a field is no number): it is postponed (`store/postponed.rs`), and the same
//!   run applies the changes of other coupons.
//! * A change comes between the steps of loading the sale: the loaded values are one whole revision. Loading notes
//!   nothing as applied, so the job checks every sale once after it has been opened.
//!
//! # What is not promised
//!
//! A change may be answered before it is in force everywhere: a process that remembers a sale as sold out goes on
//! refusing for as long as it would have anyway.

use std::sync::Arc;

use sqlx::{PgConnection, PgPool};

use crate::base::shutdown::Shutdown;
use crate::coupon::create::Coupons;
use crate::coupon::load::{Loader, Resolution};
use crate::coupon::model::{Coupon, CouponKind, CouponRow, CouponState, SaleTerms, Values};
use crate::coupon::restocks;
use crate::coupon::rules::{Change, Refusal, edited, ended_if_closed, moved, restocked};
use crate::coupon::stock::{self, Stage, StoredCoupon, StoredSale};
use crate::fence::LaneStates;
use crate::store::audit::{self, Actor, Event};
use crate::store::fleet::Fleet;
use crate::store::ids::CouponId;
use crate::store::job::Job;
use crate::store::keys::Keys;
use crate::store::postgres;
use crate::store::postponed::Postponed;
use crate::store::script::Script;
use crate::store::{Failure, Stores};

#[derive(Debug)]
pub enum ChangeOutcome {
    /// The change is in force, from now or from before.
    Changed(Coupon),
    /// The change is decided, and Redis hasn't been told yet; it will be.
    Decided(Coupon),
    /// Nothing has changed.
    Refused(Refusal),
}

pub struct CouponChanges {
    pool: PgPool,
    fleet: Fleet,
    keys: Keys,
    coupons: Arc<Coupons>,
    loader: Arc<Loader>,
    postponed: Postponed,
    apply: Script<2>,
    lanes: Arc<LaneStates>,
    /// Owner of transactions that a request must not break off half-way.
    shutdown: Shutdown,
}

impl CouponChanges {
    pub fn new(
        stores: &Stores,
        coupons: Arc<Coupons>,
        loader: Arc<Loader>,
        lanes: Arc<LaneStates>,
        postponed: Postponed,
        shutdown: Shutdown,
    ) -> Self {
        let Stores { pool, fleet, keys } = stores.clone();
        let apply = Script::new(include_str!("../../lua/apply_coupon.lua"));
        Self { pool, fleet, keys, coupons, loader, lanes, postponed, apply, shutdown }
    }

    /// Makes a change in both stores. Safe to repeat: a change that has been made already makes no new revision.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer: the outcome is unknown. [`Failure::DataLost`] when the change is decided, but
    /// Redis has lost the sale.
    pub async fn change(
        &self,
        coupon: CouponId,
        change: Change,
        by: &Actor,
    ) -> Result<ChangeOutcome, Failure> {
        if let Err(refusal) = self.decide(coupon, change, Some(by)).await? {
            return Ok(ChangeOutcome::Refused(refusal));
        }
        let applied = match self.apply(coupon).await {
            Ok(applied) => applied,
            Err(lost @ Failure::DataLost(_)) => return Err(lost),
            Err(error) => {
                tracing::warn!(%coupon, %error, "a change is decided, and Redis could not be told yet");
                false
            }
        };
        // The number of units left may have changed.
        self.coupons.cache.forget(coupon).await;
        let coupon = self.coupons.get(coupon).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(match applied {
            true => ChangeOutcome::Changed(coupon),
            false => ChangeOutcome::Decided(coupon),
        })
    }

    /// The first half: Postgres decides. A change by the staff goes into the audit log.
    pub async fn decide(
        &self,
        coupon: CouponId,
        change: Change,
        by: Option<&Actor>,
    ) -> Result<Result<(), Refusal>, Failure> {
        let pool = self.pool.clone();
        let (by, cache) = (by.cloned(), self.coupons.cache.clone());
        // A task of its own: what follows the commit is done even if the request is dropped.
        let decided = self.shutdown.spawn(async move {
            let mut tx = postgres::begin(&pool).await?;
            let decided = decide_in(&mut tx, coupon, &change, by.as_ref()).await;
            match decided {
                Ok(Ok(())) => {
                    let committed = tx.commit().await;
                    // Also if the answer was lost: the change may hold.
                    cache.forget(coupon).await;
                    committed?;
                }
                _ => tx.rollback().await?,
            }
            decided
        });
        Ok(decided.await.map_err(|_| sqlx::Error::WorkerCrashed)??)
    }

    /// The second half: brings Redis up to the newest revision. False if Redis can't be told yet.
    ///
    /// # Errors
    ///
    /// [`Failure::DataLost`] when the sale has been in Redis and isn't there any more; otherwise when a store doesn't
    /// answer.
    pub async fn apply(&self, coupon: CouponId) -> Result<bool, Failure> {
        let sale = match stock::find(&self.pool, coupon).await? {
            Some(StoredCoupon::Flash(sale)) if !sale.is_archived() => sale,
            // Postgres alone answers for these.
            Some(_) | None => return Ok(true),
        };
        if sale.stage != Stage::Unloaded && self.apply_values(coupon, &sale).await? {
            return Ok(true);
        }
        // Perhaps the sale isn't open yet: the rest of its load is done first.
        match self.loader.resolve_now(coupon).await? {
            Resolution::Loaded => {}
            // Postgres alone answers for these coupons.
            Resolution::Regular | Resolution::Archived | Resolution::Unknown => return Ok(true),
        }
        // Read again after the load, which another process may have done with older values.
        match stock::find(&self.pool, coupon).await? {
            Some(StoredCoupon::Flash(newest)) => self.apply_values(coupon, &newest).await,
            Some(StoredCoupon::Regular(_)) | None => Ok(true),
        }
    }

    /// Gives Redis these values, if its own are older.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    pub async fn apply_values(
        &self,
        coupon: CouponId,
        values: &StoredSale,
    ) -> Result<bool, Failure> {
        let (Stage::Loaded { load_id } | Stage::Archived { load_id }) = &values.stage else {
            return Ok(false);
        };
        let SaleTerms { total, opens_at, closes_at } = values.terms;
        let numbers = [
            self.lanes.epoch(coupon.lane()),
            values.revision,
            opens_at.timestamp_millis(),
            closes_at.timestamp_millis(),
            total,
        ];
        let channel = self.keys.restocks_channel();
        let arguments = (coupon.get(), load_id, &numbers[..], values.state.as_str(), channel);
        let names = [self.keys.coupon(coupon), self.keys.lane(coupon.lane())];
        let names = names.each_ref().map(String::as_str);
        let link = self.fleet.of(coupon.lane()).link().await?;
        let reply: String = self.apply.run(&link, names, arguments).await?;
        match reply.as_str() {
            "APPLIED" | "PRESENT" => {
                stock::note_applied(&self.pool, coupon, values.revision).await?;
                Ok(true)
            }
            "LOADING" => Ok(false),
            "MISSING" => self.loader.missing(coupon).await.map(|_| true),
            "STALE" => Err(Failure::Stale(coupon)),
            "RECOVERING" => Err(Failure::Recovering(coupon.lane())),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }

    /// Applies decided changes that Redis doesn't have, and returns the number of coupons. A coupon whose change can't
    /// be applied is postponed.
    pub async fn run_once(&self) -> Result<usize, Failure> {
        let mut tries = self.postponed.begin(Job::Changes).await?;
        let mut applied = 0;
        for coupon in stock::unapplied(&self.pool).await? {
            let tried = self.apply(coupon).await;
            applied += usize::from(tries.settle(coupon.get(), tried).await? == Some(true));
        }
        tries.end().await?;
        Ok(applied)
    }
}

async fn decide_in(
    tx: &mut PgConnection,
    coupon: CouponId,
    change: &Change,
    by: Option<&Actor>,
) -> sqlx::Result<Result<(), Refusal>> {
    let Some(row) = lock(tx, coupon).await? else {
        return Ok(Err(Refusal::NotFound));
    };
    // A statement of its own, so that it sees the values of the last holder of the lock.
    let terms = stock::terms(tx, coupon).await?;
    let decided = match change {
        Change::Edit(edit) => edited(&row, terms.as_ref(), edit, postgres::time(&mut *tx).await?),
        Change::Move(to, revision) => moved(&row, *to, *revision).map(|row| (row, terms.clone())),
        Change::EndClosed(at) => Ok((ended_if_closed(&row, terms.as_ref(), *at), terms.clone())),
        Change::Restock(restock) => match restocks::before(tx, coupon, restock).await? {
            Some(units) if units == restock.units => return Ok(Ok(())),
            Some(units) => Err(Refusal::RestockKeyUsed { units }),
            None => restocked(&row, terms.as_ref(), restock),
        },
    };
    let (new_row, new_terms) = match decided {
        Ok(values) => values,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if new_row == row && new_terms == terms {
        return Ok(Ok(()));
    }
    update(tx, coupon, &new_row).await?;
    if let Some(new_terms) = new_terms.as_ref().filter(|new| Some(*new) != terms.as_ref()) {
        stock::update_terms(tx, coupon, new_terms).await?;
    }
    if let Some(by) = by {
        let new_row = CouponRow { revision: row.revision + 1, ..new_row };
        let event = Event::of(change.action(), coupon.get())
            .before(Values::new(&row, terms.as_ref()))
            .after(Values::new(&new_row, new_terms.as_ref()));
        audit::note(tx, by, event).await?;
    }
    if let Change::Restock(restock) = change {
        restocks::note(tx, coupon, restock).await?;
    }
    Ok(Ok(()))
}

/// Locks the coupon against other changes until the transaction ends. Its orders can still be written: they only refer
/// to its id, which this lock leaves free.
async fn lock(tx: &mut PgConnection, coupon: CouponId) -> sqlx::Result<Option<CouponRow>> {
    sqlx::query_as!(
        CouponRow,
        r#"SELECT kind AS "kind: CouponKind", title, sub_title, rules, pay_cents, currency, value_cents,
                  state AS "state: CouponState", revision
           FROM coupons WHERE id = $1 FOR NO KEY UPDATE"#,
        coupon.get(),
    )
    .fetch_optional(tx)
    .await
}

/// Writes a locked coupon as its next revision.
async fn update(tx: &mut PgConnection, coupon: CouponId, row: &CouponRow) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE coupons SET title = $2, sub_title = $3, rules = $4, pay_cents = $5, value_cents = $6,
                state = $7, ended_at = CASE WHEN $7 = 'ended' THEN coalesce(ended_at, now()) END,
                revision = revision + 1, updated_at = now()
         WHERE id = $1",
        coupon.get(),
        row.title,
        row.sub_title,
        row.rules,
        row.pay_cents,
        row.value_cents,
        row.state.as_str(),
    )
    .execute(tx)
    .await?;
    Ok(())
}
