//! Changes of a coupon: edit, pause, resume, end, restock. Owner of the table `restocks`.
//!
//! # Model
//!
//! Postgres decides: one transaction changes the coupon and raises its `revision` by one. Then `apply_coupon.lua`
//! gives Redis the values of the newest revision (window, total, state; all of them, and absolute) if what is
//! there is older, and Postgres notes how far Redis has heard (`applied_revision`).
//!
//! # Authority
//!
//! The revision. Whoever applies reads the newest one first, and an older one never replaces a newer one, so it
//! doesn't matter who applies what, how often, or in which order. What Redis sells is bounded by a total that
//! Postgres has had before it, because the total only grows.
//!
//! # What each failure does
//!
//! * Whoever dies between the two stores leaves a coupon whose `applied_revision` is behind; [`CouponChanges::pass`]
//!   finds it and applies it.
//! * Redis away, or slow: the change has been decided and isn't in force yet. The caller is told so.
//! * The sale is missing in Redis: that is a loss of data, and no change puts it back.
//! * A change between the steps of loading the sale: what is loaded is one whole revision. Nothing is noted as
//!   applied by loading, so the pass looks at every sale once after it has been opened.
//!
//! # What is not promised
//!
//! That a change is in force everywhere when it is answered: a process that remembers a sale as sold out goes
//! on refusing for as long as it would have anyway.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

use super::coupon::{self, Coupon, CouponKind, CouponRow, CouponState, Coupons};
use super::coupon_input::{CouponEdit, Restock};
use super::ids::CouponId;
use super::keys::Keys;
use super::stock::{self, SaleTerms, StoredSale};
use super::warm_up::{Resolution, WarmUp};
use super::{Failure, Stores};
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::redis::Redis;
use crate::kit::script::Script;

/// What somebody wants to be different.
#[derive(Clone, Debug)]
pub enum Change {
    /// Other words, prices, window or stock.
    Edit(CouponEdit),
    /// Pause, resume or end.
    Move(CouponState),
    /// More units.
    Restock(Restock),
}

/// What became of a change.
#[derive(Debug)]
pub enum ChangeOutcome {
    /// It holds, and the coupon is this now. Also when it held before.
    Changed(Coupon),
    /// It is decided, and Redis hasn't heard of it yet; it will be told.
    Decided(Coupon),
    /// It was refused, and nothing has changed.
    Refused(Refusal),
}

/// Why a change is not made, in words for whoever asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such coupon.
    #[error("there is no coupon with this id")]
    NotFound,
    /// From this state nothing leads to that one.
    #[error("the coupon is {}, and from there it can't become {}", from.as_str(), to.as_str())]
    InvalidTransition {
        /// Where it stands.
        from: CouponState,
        /// Where it was to go.
        to: CouponState,
    },
    /// It has ended, which is final.
    #[error("the coupon has ended, and nothing about it can be changed any more")]
    Ended,
    /// It has another revision than the edit was made for.
    #[error(
        "the coupon has been changed and has revision {revision} by now: read it, and edit that"
    )]
    RevisionConflict {
        /// The one that it has.
        revision: i64,
    },
    /// A regular coupon has no sale.
    #[error("a regular coupon has no `sale`")]
    NoSale,
    /// Fewer units than there are on offer.
    #[error("{total} units are on offer, and there can only be more; end the coupon to sell fewer")]
    StockOnlyGrows {
        /// How many there are.
        total: i64,
    },
    /// More units than a sale can have.
    #[error("a sale has at most {} units", limits::STOCK_MAX)]
    StockTooLarge,
    /// The window would end before it opens.
    #[error("the window has to end after it opens")]
    EmptyWindow,
    /// The key belongs to a restock with another number of units.
    #[error("this key has added {units} units before; give another restock a key of its own")]
    RestockKeyUsed {
        /// As many as it added.
        units: i64,
    },
}

/// Changes coupons.
pub struct CouponChanges {
    pool: PgPool,
    redis: Redis,
    keys: Keys,
    coupons: Arc<Coupons>,
    warm_up: Arc<WarmUp>,
    apply: Script<1>,
    /// Runs transactions that a request must not break off half-way.
    shutdown: Shutdown,
}

impl CouponChanges {
    /// Puts the parts together.
    pub fn new(
        stores: &Stores,
        coupons: Arc<Coupons>,
        warm_up: Arc<WarmUp>,
        shutdown: Shutdown,
    ) -> Self {
        let Stores { pool, redis, keys } = stores.clone();
        let apply = Script::new(include_str!("../../lua/apply_coupon.lua"));
        Self { pool, redis, keys, coupons, warm_up, apply, shutdown }
    }

    /// Makes a change in both stores. Safe to repeat: a change that has been made already makes no new revision.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, the outcome is unknown. With [`Failure::DataLost`] it is decided, but Redis
    /// has lost the sale.
    pub async fn change(&self, coupon: CouponId, change: Change) -> Result<ChangeOutcome, Failure> {
        if let Err(refusal) = self.decide(coupon, change).await? {
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
        let coupon = self.coupons.get(coupon).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(match applied {
            true => ChangeOutcome::Changed(coupon),
            false => ChangeOutcome::Decided(coupon),
        })
    }

    /// The first half: Postgres decides.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub async fn decide(
        &self,
        coupon: CouponId,
        change: Change,
    ) -> Result<Result<(), Refusal>, Failure> {
        let pool = self.pool.clone();
        // A task of its own: dropping a `begin` half-way can poison the connection (sqlx#4393).
        let decided = self.shutdown.spawn(async move {
            let mut tx = pool.begin().await?;
            let decided = decide_in(&mut tx, coupon, &change).await;
            match decided {
                Ok(Ok(())) => tx.commit().await?,
                _ => tx.rollback().await?,
            }
            decided
        });
        Ok(decided.await.map_err(|_| sqlx::Error::WorkerCrashed)??)
    }

    /// The second half: brings Redis up to the newest revision. False if it can't be told yet.
    ///
    /// # Errors
    ///
    /// [`Failure::DataLost`] when the sale has been in Redis and isn't any more; otherwise when a store doesn't
    /// answer.
    pub async fn apply(&self, coupon: CouponId) -> Result<bool, Failure> {
        match self.warm_up.resolve_now(coupon).await? {
            Resolution::Loaded => {}
            // Postgres alone answers for these.
            Resolution::Regular | Resolution::Archived | Resolution::Unknown => return Ok(true),
        }
        // Read after the sale was loaded, perhaps with older values by somebody else.
        match stock::find(&self.pool, coupon).await? {
            Some(newest) => self.apply_values(coupon, &newest).await,
            None => Ok(true),
        }
    }

    /// Gives Redis these values, if what it has is older.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    pub async fn apply_values(
        &self,
        coupon: CouponId,
        values: &StoredSale,
    ) -> Result<bool, Failure> {
        let ms = |time: Option<DateTime<Utc>>| time.map_or(0, |time| time.timestamp_millis());
        let (opens_ms, closes_ms) = (ms(values.opens_at), ms(values.closes_at));
        let total = values.total.unwrap_or(0);
        let numbers = [values.epoch, values.revision, opens_ms, closes_ms, total];
        let load_id = values.load_id.as_deref().unwrap_or_default();
        let channel = self.keys.returns_channel();
        let arguments = (coupon.get(), load_id, &numbers[..], values.state.as_str(), channel);
        let key = self.keys.coupon(coupon);
        let link = self.redis.link().await?;
        let reply: String = self.apply.run(&link, [&key], arguments).await?;
        match reply.as_str() {
            "APPLIED" | "PRESENT" => {
                stock::note_applied(&self.pool, coupon, values.revision).await?;
                Ok(true)
            }
            "LOADING" => Ok(false),
            "MISSING" => self.warm_up.missing(coupon).await.map(|_| true),
            "STALE" => Err(Failure::Stale(coupon)),
            _ => Err(Failure::UnknownReply(reply)),
        }
    }

    /// Applies what has been decided and not applied. Returns how many coupons that was.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer. A sale that Redis has lost raises the alarm, and holds up no other.
    pub async fn pass(&self) -> Result<usize, Failure> {
        let (mut applied, mut after) = (0, None);
        loop {
            let page = stock::unapplied(&self.pool, after, limits::PASS_COUPONS_MAX).await?;
            let Some(last) = page.last().copied() else {
                return Ok(applied);
            };
            for coupon in page {
                match self.apply(coupon).await {
                    Ok(done) => applied += usize::from(done),
                    Err(Failure::DataLost(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            after = Some(last);
        }
    }
}

async fn decide_in(
    tx: &mut PgConnection,
    coupon: CouponId,
    change: &Change,
) -> sqlx::Result<Result<(), Refusal>> {
    let Some(row) = coupon::lock(tx, coupon).await? else {
        return Ok(Err(Refusal::NotFound));
    };
    // A statement of its own, so that it sees what whoever had the lock before us has written.
    let terms = stock::terms(tx, coupon).await?;
    let decided = match change {
        Change::Edit(edit) => edited(&row, terms.as_ref(), edit),
        Change::Move(to) => moved(&row, *to).map(|row| (row, terms.clone())),
        Change::Restock(restock) => match restocked_before(tx, coupon, restock).await? {
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
    coupon::update(tx, coupon, &new_row).await?;
    if let Some(new_terms) = new_terms.filter(|new_terms| Some(new_terms) != terms.as_ref()) {
        stock::update_terms(tx, coupon, &new_terms).await?;
    }
    if let Change::Restock(restock) = change {
        note_restock(tx, coupon, restock).await?;
    }
    Ok(Ok(()))
}

type Values = (CouponRow, Option<SaleTerms>);

fn moved(row: &CouponRow, to: CouponState) -> Result<CouponRow, Refusal> {
    if row.state == CouponState::Ended && to != CouponState::Ended {
        return Err(Refusal::InvalidTransition { from: row.state, to });
    }
    Ok(CouponRow { state: to, ..row.clone() })
}

/// A repeat, which changes nothing, is none of the refusals that come after its first time.
fn edited(
    row: &CouponRow,
    terms: Option<&SaleTerms>,
    edit: &CouponEdit,
) -> Result<Values, Refusal> {
    let new_terms = match (&edit.sale, terms) {
        (Some(_), None) => return Err(Refusal::NoSale),
        (Some(sale), Some(terms)) => Some(sale.of(terms)),
        (None, terms) => terms.cloned(),
    };
    let new_row = edit.of(row);
    if new_row == *row && new_terms.as_ref() == terms {
        return Ok((new_row, new_terms));
    }
    if row.state == CouponState::Ended {
        return Err(Refusal::Ended);
    }
    if edit.revision.is_some_and(|revision| revision != row.revision) {
        return Err(Refusal::RevisionConflict { revision: row.revision });
    }
    if let (Some(new), Some(old)) = (&new_terms, terms) {
        if new.total < old.total {
            return Err(Refusal::StockOnlyGrows { total: old.total });
        }
        // Redis counts milliseconds.
        if new.closes_at.timestamp_millis() <= new.opens_at.timestamp_millis() {
            return Err(Refusal::EmptyWindow);
        }
    }
    Ok((new_row, new_terms))
}

fn restocked(
    row: &CouponRow,
    terms: Option<&SaleTerms>,
    restock: &Restock,
) -> Result<Values, Refusal> {
    let Some(terms) = terms.filter(|_| row.kind == CouponKind::Flash) else {
        return Err(Refusal::NoSale);
    };
    if row.state == CouponState::Ended {
        return Err(Refusal::Ended);
    }
    let total = terms.total + restock.units;
    if total > limits::STOCK_MAX {
        return Err(Refusal::StockTooLarge);
    }
    Ok((row.clone(), Some(SaleTerms { total, ..terms.clone() })))
}

/// How many units this key has added to this coupon, if it was used.
async fn restocked_before(
    tx: &mut PgConnection,
    coupon: CouponId,
    restock: &Restock,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "SELECT units FROM restocks WHERE coupon_id = $1 AND key = $2",
        coupon.get(),
        restock.key,
    )
    .fetch_optional(tx)
    .await
}

async fn note_restock(
    tx: &mut PgConnection,
    coupon: CouponId,
    restock: &Restock,
) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO restocks (coupon_id, key, units) VALUES ($1, $2, $3)",
        coupon.get(),
        restock.key,
        restock.units,
    )
    .execute(tx)
    .await?;
    Ok(())
}
