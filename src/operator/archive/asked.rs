//! Archiving by an operator: at once if the sale is settled. If it isn't, what is open is given up, provided that the
//! operator accepts that.
//!
//! # What is given up
//!
//! * An open dead letter is discarded. Its claim becomes a cancelled order, and its buyer is told so. A claim whose
//!   order id belongs to another order becomes nothing.
//! * Units on their way back no longer return to Redis: the next run of the job `stock_returns` closes them.
//! * The sale and its buyers leave Redis, whatever is wrong with them. A buyer without an order is told that they never
//!   claimed.
//!
//! Live orders stay as they are. Unpaid ones expire as usual.
//!
//! # What is never given up
//!
//! A claim that is still in the order log: its buyer has been answered 202 a moment ago, and a worker will write it. So
//! a sale with entries in flight is refused, and so is a sale that hasn't ended.
//!
//! # What each failure does
//!
//! Postgres decides in one transaction, which also notes `archived_at`. A process that dies before its commit has
//! changed nothing. After it, Postgres answers for the sale, and a repeat, or the job `archive`, removes the keys.

use serde_json::json;
use sqlx::PgConnection;

use super::Archive;
use super::answer::{ArchiveOutcome, ArchiveRefusal, Archived};
use crate::base::limits;
use crate::coupon::model::CouponState;
use crate::coupon::stock;
use crate::coupon::stock::{Stage, StoredCoupon, StoredSale};
use crate::order::{dead_letter, discard};
use crate::recovery::reconcile::{self, Standing};
use crate::store::Failure;
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::ids::CouponId;
use crate::store::postgres;

impl Archive {
    /// Archives an ended sale now, if it is settled; with `accept_loss`, whatever is open. Safe to repeat. Goes on to
    /// its end even if the request is dropped: comparing a large sale may take longer than a request may.
    ///
    /// # Errors
    ///
    /// When a store doesn't answer. A repeat goes on from what Postgres has noted.
    pub async fn ask(
        &self,
        coupon: CouponId,
        accept_loss: bool,
        by: &Actor,
    ) -> Result<ArchiveOutcome, Failure> {
        let (archive, by) = (self.clone(), by.clone());
        let asked = async move { archive.ask_now(coupon, accept_loss, &by).await };
        self.shutdown.spawn(asked).await.map_err(|_| sqlx::Error::WorkerCrashed)?
    }

    async fn ask_now(
        &self,
        coupon: CouponId,
        accept_loss: bool,
        by: &Actor,
    ) -> Result<ArchiveOutcome, Failure> {
        let sale = match self.may_be_archived(coupon).await? {
            Ok(sale) => sale,
            Err(refusal) => return Ok(ArchiveOutcome::Refused(refusal)),
        };
        let mut archived = Archived {
            coupon_id: coupon,
            dead_letters_closed: 0,
            stock_returns_closed: 0,
            buyers_dropped: None,
            live_orders: None,
        };
        if !sale.is_archived() {
            let (standing, obstacles) = match self.check(coupon).await? {
                Ok(seen) => seen,
                Err(refusal) => return Ok(ArchiveOutcome::Refused(refusal)),
            };
            let settled = obstacles.is_empty() && self.note_settled(coupon, by).await?;
            if !settled {
                if accept_loss {
                    self.give_up(coupon, &mut archived, by).await?;
                } else if !self.is_archived(coupon).await? {
                    return Ok(ArchiveOutcome::Refused(ArchiveRefusal::NotSettled(obstacles)));
                }
            }
            let counted = standing.and_then(|standing| standing.sale);
            archived.buyers_dropped = counted.as_ref().map(|sale| sale.buyers);
            archived.live_orders = counted.and_then(|sale| i64::try_from(sale.live_orders).ok());
        }
        self.remove(coupon, sale.terms.total).await?;
        Ok(ArchiveOutcome::Archived(archived))
    }

    /// Notes that a settled sale is archived. False if it isn't settled, or is archived already.
    async fn note_settled(&self, coupon: CouponId, by: &Actor) -> sqlx::Result<bool> {
        let mut tx = postgres::begin_planning(&self.stores.pool).await?;
        let settled = stock::archive(&mut *tx, coupon).await?;
        if settled {
            let event = Event::of(Action::ArchiveCoupon, coupon.get())
                .before(json!({"archived": false}))
                .after(json!({"archived": true, "accept_loss": false}));
            audit::note(&mut tx, by, event).await?;
        }
        tx.commit().await?;
        Ok(settled)
    }

    async fn may_be_archived(
        &self,
        coupon: CouponId,
    ) -> Result<Result<StoredSale, ArchiveRefusal>, Failure> {
        Ok(match stock::find(&self.stores.pool, coupon).await? {
            None => Err(ArchiveRefusal::NotFound),
            Some(StoredCoupon::Regular(_)) => Err(ArchiveRefusal::NoSale),
            Some(StoredCoupon::Flash(sale)) if sale.state != CouponState::Ended => {
                Err(ArchiveRefusal::NotEnded)
            }
            Some(StoredCoupon::Flash(sale)) if sale.stage == Stage::Unloaded => {
                Err(ArchiveRefusal::NotLoaded)
            }
            Some(StoredCoupon::Flash(sale)) => Ok(sale),
        })
    }

    /// Whether the sale has been archived meanwhile, by the job or by another operator.
    async fn is_archived(&self, coupon: CouponId) -> sqlx::Result<bool> {
        let found = stock::find(&self.stores.pool, coupon).await?;
        Ok(matches!(found, Some(StoredCoupon::Flash(sale)) if sale.is_archived()))
    }

    /// The state of the sale, as far as it can be read, and what is open, in words.
    async fn check(
        &self,
        coupon: CouponId,
    ) -> Result<Result<(Option<Standing>, Vec<String>), ArchiveRefusal>, Failure> {
        let pool = &self.stores.pool;
        let mut obstacles = Vec::new();
        // Redis is told of the end first: after that, no further claim can be in flight.
        match self.changes.apply(coupon).await {
            Ok(true) => {}
            Ok(false) => obstacles.push("Redis is loading it".to_owned()),
            Err(failure) if failure.is_of_item() => obstacles.push(failure.to_string()),
            Err(failure) => return Err(failure),
        }
        match reconcile::in_flight(&self.stores, coupon).await {
            Ok(0) => {}
            Ok(entries) => return Ok(Err(ArchiveRefusal::InFlight(entries))),
            Err(failure) if failure.is_of_item() => obstacles.push(failure.to_string()),
            Err(failure) => return Err(failure),
        }
        let standing = match reconcile::standing(&self.stores, coupon).await {
            Ok(standing) => Some(standing),
            Err(failure) if failure.is_of_item() => {
                obstacles.push(failure.to_string());
                None
            }
            Err(failure) => return Err(failure),
        };
        obstacles.extend(standing.iter().flat_map(Standing::obstacles));
        obstacles.extend(stock::open_of(pool, coupon).await?.in_words());
        obstacles.dedup();
        obstacles.truncate(limits::LOGGED_DISAGREEMENTS_MAX);
        Ok(Ok((standing, obstacles)))
    }

    /// Closes what is open, and notes that the sale is archived.
    async fn give_up(
        &self,
        coupon: CouponId,
        archived: &mut Archived,
        by: &Actor,
    ) -> Result<(), Failure> {
        let mut tx = postgres::begin(&self.stores.pool).await?;
        let given_up = give_up_in(&mut tx, coupon, by).await;
        match given_up {
            Ok(_) => tx.commit().await?,
            Err(_) => tx.rollback().await?,
        }
        (archived.dead_letters_closed, archived.stock_returns_closed) = given_up?;
        tracing::warn!(%coupon, dead_letters = archived.dead_letters_closed, stock_returns = archived.stock_returns_closed, "a sale is archived although it isn't settled; an operator has accepted the loss");
        Ok(())
    }
}

/// Returns the dead letters closed, and the units that won't come back.
async fn give_up_in(
    tx: &mut PgConnection,
    coupon: CouponId,
    by: &Actor,
) -> sqlx::Result<(i64, i64)> {
    stock::allow_long_statements(tx).await?;
    let returns = stock::open_of(&mut *tx, coupon).await?.stock_returns;
    let letters = dead_letter::open_letters_of(tx, coupon).await?;
    for letter in &letters {
        discard::discard_in(tx, *letter, by).await?;
    }
    let letters = i64::try_from(letters.len()).unwrap_or(i64::MAX);
    stock::archive_unsettled(tx, coupon).await?;
    let lost = json!({"archived": true, "accept_loss": true, "dead_letters_closed": letters,
                      "stock_returns_closed": returns});
    let event = Event::of(Action::ArchiveCoupon, coupon.get());
    audit::note(tx, by, event.before(json!({"archived": false})).after(lost)).await?;
    Ok((letters, returns))
}
