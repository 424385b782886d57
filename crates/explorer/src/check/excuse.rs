//! Promises that a loss of data may have cost.
//!
//! # The rule
//!
//! A promise that is neither row nor letter is excused if all of this holds for one loss of data:
//!
//! * The claim may have been carried out after the moment up to which Redis kept its data, and before the loss: it was
//!   answered after the former, and asked before the latter.
//! * Each life of a process that told this order had ended before it could hand the claim in: before the
//!   first opening of the lane after the loss. A life that was paused or cut off at that time could hand in only
//!   afterwards; it counts as ended in time if it ended within five seconds of the end of that silence.
//!
//! * The durability of the service does not keep it: at `replica`, the replica has each claim before the answer, so the
//!   data of a replica are no excuse.
//!
//! Each process that told the order counts, because an `already_claimed` is a promise, too.
//!
//! A memory that goes back with its replication ID goes unnoticed until the next comparison. The log looks acknowledged
//! past the entries that were lost, so unwritten claims are dropped: the second part of the rule doesn't hold there.

use crate::facts::{Event, Evidence, Loss, Ms};
use crate::plan::Fault;

/// Time that a living process may take to hand in what it has promised, once it can.
const HAND_IN_MS: Ms = 5_000;

/// The result for a promise that is neither row nor letter.
pub enum Excuse {
    /// Lost with Redis and each process that promised it; in words.
    LostWithProcess(String),
    /// Not excused; why.
    None(String),
}

/// Looks for a loss that explains the loss of this promise.
pub fn excuse(evidence: &Evidence, order: i64) -> Excuse {
    let told: Vec<&Event> =
        evidence.history.iter().filter(|event| event.promised() == Some(order)).collect();
    let mut why = "no loss of data explains it".to_owned();
    let excusing = evidence.losses.iter().filter(|loss| !is_kept(evidence, loss));
    for loss in excusing {
        let in_time =
            |event: &&Event| event.completed >= loss.kept_until && event.invoked <= loss.lost_at;
        if !told.iter().any(in_time) {
            continue;
        }
        if loss.fault == Fault::MemorySnapshot {
            return Excuse::LostWithProcess(format!("{} at {} ms", loss.fault, loss.lost_at));
        }
        let opened = first_opening(evidence, loss);
        match told.iter().find_map(|event| survivor(evidence, event, opened)) {
            None => {
                let text = format!("{} at {} ms", loss.fault, loss.lost_at);
                return Excuse::LostWithProcess(text);
            }
            Some(survivor) => {
                why = format!("{} at {} ms, but {survivor}", loss.fault, loss.lost_at);
            }
        }
    }
    Excuse::None(why)
}

/// True if promises outlast this loss, by the durability that was asked for.
fn is_kept(evidence: &Evidence, loss: &Loss) -> bool {
    evidence.plan.is_replicated && loss.is_of_replica
}

/// The first opening of any lane after a loss; the end of time if there is none.
fn first_opening(evidence: &Evidence, loss: &Loss) -> Ms {
    let opened = evidence.recoveries.iter().filter_map(|recovery| recovery.opened);
    opened.filter(|opened| *opened > loss.back_at).min().unwrap_or(Ms::MAX)
}

/// Says that the life which told the order could have handed it in; `None` if it had ended.
fn survivor(evidence: &Evidence, event: &Event, opened: Ms) -> Option<String> {
    let (place, number) = event.door;
    let life = evidence.lives.iter().find(|life| (life.place, life.number) == (place, number))?;
    let lived = format!("api-{place} in its life {number} lived");
    let Some(ended) = life.ended else { return Some(lived) };
    let silences = evidence.silences.iter().filter(|silence| silence.place == place);
    let over = silences
        .filter(|silence| silence.from <= opened && silence.to >= event.completed)
        .map(|silence| silence.to.saturating_add(HAND_IN_MS));
    let until = over.max().unwrap_or(opened).max(opened);
    (ended > until).then_some(lived)
}
