//! Erasing a user: one transaction, or nothing.

use serde::Serialize;

use super::in_redis::{self, Place};
use super::obstacles;
use crate::kit::postgres;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::coupon::stock;
use crate::sale::ids::UserId;
use crate::sale::order::history;
use crate::sale::order::past::erase;
use crate::sale::order::past::export::unwritten;
use crate::sale::payment::past;
use crate::sale::reconcile::runs;
use crate::sale::recovery::records;
use crate::sale::{Failure, Stores};

/// Obstacle of a moment: between the looks at the orders and at the history.
const CAME_BACK: &str = "An order of the user has just come back from the history, because a gateway names it: try again.";

/// Outcome of a request to erase a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erasure {
    /// The user is erased.
    Done(Erased),
    /// The stores have nothing of this user.
    Nothing,
    /// Something is under way; each in a sentence. Nothing is erased.
    Refused(Vec<String>),
}

/// Numbers of changed or deleted rows: all that the book of changes tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Erased {
    /// Orders that stay without their user.
    pub orders: u64,
    /// Dead letters that were deleted.
    pub dead_letters: usize,
    /// Payments whose note was deleted.
    pub notes: usize,
    /// Comparisons whose findings named the user.
    pub comparisons: u64,
    /// Recoveries that named the user.
    pub recoveries: usize,
}

/// Erases a user. A repeat finds nothing.
pub async fn erase(stores: &Stores, user: UserId, by: &Actor) -> Result<Erasure, Failure> {
    let places = in_redis::places(stores, user).await?;
    let mut tx = postgres::begin_planning(&stores.pool).await?;
    // Comparisons, recoveries and dead letters of all users are read.
    stock::allow_long_statements(&mut tx).await?;
    let orders = erase::lock(&mut tx, user).await?;
    let mut refusals = obstacles::of(&mut tx, user, &orders).await?;
    let promised = places.iter().filter(|place| !orders.contains(&place.order_id.get()));
    refusals.extend(promised.map(|Place { coupon_id, order_id }| {
        format!("Redis has a claim of the user on coupon {coupon_id}, which is to become order {order_id}.")
    }));
    if !refusals.is_empty() {
        tx.rollback().await?;
        return Ok(Erasure::Refused(refusals));
    }
    // Rows are locked in the order of `order/moves/mod.rs`.
    let mut stripped = erase::orders(&mut tx, &orders).await?;
    let moved = history::erase(&mut tx, user).await?;
    stripped += moved.len() as u64;
    if !erase::lock(&mut tx, user).await?.is_empty() {
        tx.rollback().await?;
        return Ok(Erasure::Refused(vec![CAME_BACK.to_owned()]));
    }
    let letters = erase::letters(&mut tx, user).await?;
    let claims = [orders, moved, unwritten(&mut tx, &letters).await?].concat();
    let noted = past::erase(&mut tx, &claims).await?;
    let for_the_buyer = [Action::CancelOrder, Action::RefundOrder];
    audit::erase_notes(&mut tx, &for_the_buyer, &claims).await?;
    audit::erase_notes(&mut tx, &[Action::ClosePayment], &noted).await?;
    let recoveries = records::erase(&mut tx, user).await?;
    audit::erase_notes(&mut tx, &[Action::SettleRecovery], &recoveries).await?;
    let erased = Erased {
        orders: stripped,
        dead_letters: letters.len(),
        notes: noted.len(),
        comparisons: runs::erase(&mut tx, user).await?,
        recoveries: recoveries.len(),
    };
    if erased == Erased::default() {
        tx.rollback().await?;
        return Ok(Erasure::Nothing);
    }
    audit::note(&mut tx, by, Event::without_subject(Action::EraseUser).after(erased)).await?;
    tx.commit().await?;
    Ok(Erasure::Done(erased))
}
