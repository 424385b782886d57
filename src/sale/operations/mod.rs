//! All that waits for an operator, in one list: each matter with its age, its harm, and the commands that settle it.
//!
//! The list owns no table. It reads the lists of other rooms one behind the other, by kind, and within a kind newest
//! first. So a page reads no more rows than it shows of each kind. A matter that is settled leaves the list, and stays in
//! the list of its kind: recoveries of lanes, closed dead letters, settled payments and postponed items, older comparisons, settled recoveries.

// Harm of each kind of matter, and the steps that settle it.
mod harm;

// A matter, and its place in the list.
pub mod matter;

use sqlx::PgPool;

use crate::base::limits;
use crate::kit::postgres;
use crate::sale::fence::table;
use crate::sale::ids::{DeadLetterId, JobId, PaymentId, PostponedId, RecoveryId};
use crate::sale::order::dead_letter::LetterFilter;
use crate::sale::order::discard::DeadLetters;
use crate::sale::order::moves::{OrderMoves, jobs};
use crate::sale::payment::owed::{OwedFilter, OwedPayments, PaymentPart};
use crate::sale::postponed::{Postponed, PostponedPart};
use crate::sale::reconcile::repair::Repair;
use crate::sale::reconcile::runs::{self, Run};
use crate::sale::recovery::records::{self, RecoveryPart};
use matter::{Matter, MatterKind, Position};

/// Lists all that waits for an operator.
pub struct Operations {
    pool: PgPool,
    dead_letters: DeadLetters,
    payments: OwedPayments,
    postponed: Postponed,
}

impl Operations {
    /// Open matters in this database.
    pub fn new(pool: PgPool, moves: &OrderMoves, postponed: &Postponed) -> Self {
        Self {
            dead_letters: DeadLetters::new(pool.clone(), moves.clone()),
            payments: OwedPayments::new(pool.clone(), moves.clone()),
            postponed: postponed.clone(),
            pool,
        }
    }

    /// Open matters of one kind, or of all, from behind the given one on.
    pub async fn list(
        &self,
        only: Option<MatterKind>,
        behind: Option<Position>,
        limit: u32,
    ) -> sqlx::Result<Vec<Matter>> {
        let first = behind.map_or(MatterKind::ALL[0], |position| position.kind);
        let kinds = MatterKind::ALL.into_iter().filter(|kind| *kind >= first);
        let mut found = Vec::new();
        for kind in kinds.filter(|kind| only.is_none_or(|only| only == *kind)) {
            let room = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            if room == 0 {
                break;
            }
            let behind = behind.filter(|position| position.kind == kind);
            found.extend(self.of_kind(kind, behind, room).await?);
        }
        let now = postgres::time(&self.pool).await?;
        for matter in &mut found {
            matter.age_s = (now - matter.since).num_seconds().max(0);
        }
        Ok(found)
    }

    async fn of_kind(
        &self,
        kind: MatterKind,
        behind: Option<Position>,
        limit: u32,
    ) -> sqlx::Result<Vec<Matter>> {
        let id = behind.map(|position| position.id);
        Ok(match kind {
            MatterKind::Lane => {
                let found = table::waiting(&self.pool, limits::LANE_PATIENCE, id, limit).await?;
                found.iter().map(harm::of_lane).collect()
            }
            MatterKind::DeadLetter => {
                let before = id.and_then(|id| DeadLetterId::new(id).ok());
                let found = self.dead_letters.list(&LetterFilter::default(), before, limit).await?;
                found.iter().map(harm::of_letter).collect()
            }
            MatterKind::HeldPayment | MatterKind::Refund => {
                let part = match kind {
                    MatterKind::Refund => PaymentPart::Refunding,
                    _ => PaymentPart::Held,
                };
                let before = id.and_then(|id| PaymentId::new(id).ok());
                let filter = OwedFilter { part, ..OwedFilter::default() };
                let found = self.payments.list(&filter, before, limit).await?;
                found.iter().map(|payment| harm::of_payment(kind, payment)).collect()
            }
            MatterKind::Recovery => {
                let before = id.and_then(|id| RecoveryId::new(id).ok());
                let unsettled = RecoveryPart::Unsettled;
                let found = records::list(&self.pool, unsettled, before, limit).await?;
                found.iter().map(harm::of_recovery).collect()
            }
            MatterKind::Job => {
                let before = id.and_then(|id| JobId::new(id).ok());
                let found = jobs::overdue(&self.pool, limits::JOB_PATIENCE, before, limit).await?;
                found.iter().map(harm::of_job).collect()
            }
            MatterKind::Finding => self.findings(behind, limit).await?,
            MatterKind::Postponed => {
                let before = id.and_then(|id| PostponedId::new(id).ok());
                let found =
                    self.postponed.list(PostponedPart::Waiting, None, before, limit).await?;
                found.iter().map(harm::of_postponed).collect()
            }
        })
    }

    /// Findings of the newest comparison that has ended, without those that it has repaired.
    async fn findings(&self, behind: Option<Position>, limit: u32) -> sqlx::Result<Vec<Matter>> {
        let Some(run) = runs::last_finished(&self.pool).await? else {
            return Ok(Vec::new());
        };
        // Behind a finding of an older comparison, all of the newest one stand.
        let seen = behind.filter(|position| position.id == run.run_id.get());
        let seen = seen.map_or(0, |position| position.part);
        let open = open_findings(&run);
        let rest = open.filter(|(part, _)| *part > seen);
        Ok(rest.take(limit as usize).map(|(_, matter)| matter).collect())
    }
}

/// The findings of a comparison that no repair has settled, numbered from 1.
fn open_findings(run: &Run) -> impl Iterator<Item = (u32, Matter)> {
    let is_repaired = |code: &str, coupon| {
        let of_it = |repair: &&Repair| repair.code == code && Some(repair.coupon_id) == coupon;
        let mut repairs = run.repairs.iter().filter(of_it).peekable();
        repairs.peek().is_some() && repairs.all(|repair| repair.done)
    };
    (1..).zip(run.findings.iter()).filter_map(move |(part, finding)| {
        let open = !is_repaired(&finding.code, finding.coupon_id);
        open.then(|| (part, harm::of_finding(run, part, finding)))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chrono::{DateTime, Utc};
    use sqlx::types::Json;

    use super::*;
    use crate::sale::ids::{CouponId, RunId};
    use crate::sale::reconcile::Kind;
    use crate::sale::reconcile::runs::{AskedBy, Finding};

    fn finding(code: &str, coupon: Option<i64>) -> Finding {
        let coupon_id = coupon.map(|coupon| CouponId::compose(coupon, 1));
        Finding { code: code.into(), coupon_id, detail: "x".into() }
    }

    fn run(findings: &[(&str, Option<i64>)], repairs: &[(&str, i64, bool)]) -> Run {
        let repairs = repairs.iter().map(|(code, coupon, done)| Repair {
            code: (*code).into(),
            coupon_id: CouponId::compose(*coupon, 1),
            done: *done,
            detail: String::new(),
        });
        Run {
            run_id: RunId::new(3).expect("an id"),
            asked_by: AskedBy::Api,
            kind: Kind::Full,
            started_at: DateTime::<Utc>::UNIX_EPOCH,
            finished_at: None,
            failure: None,
            at_rest: None,
            sales: None,
            unchanged: 0,
            waiting: 0,
            oldest_reading_at: None,
            in_flight: None,
            orders: Some(Json(BTreeMap::new())),
            disagreements: None,
            findings: Json(findings.iter().map(|(code, coupon)| finding(code, *coupon)).collect()),
            repairs: Json(repairs.collect()),
        }
    }

    /// A finding is settled by repairs of its kind and its coupon, if all of them were done.
    #[test]
    fn open_findings_are_those_that_no_repair_has_settled() {
        let two = [("order_lost", Some(1)), ("order_lost", Some(2))];
        for (findings, repairs, expected) in [
            (&two[..], &[][..], &[1, 2][..]),
            (&two, &[("order_lost", 1, true)], &[2]),
            (&two, &[("order_lost", 2, true)], &[1]),
            (&two, &[("order_lost", 1, false)], &[1, 2]),
            (&two, &[("order_lost", 1, true), ("order_lost", 1, false)], &[1, 2]),
            (&two, &[("order_lost", 1, true), ("order_lost", 1, true)], &[2]),
            (&two, &[("sold_miscounted", 1, true), ("sold_miscounted", 2, true)], &[1, 2]),
            (&two, &[("order_lost", 3, true)], &[1, 2]),
            (&[("log_unreadable", None)], &[("log_unreadable", 1, true)], &[1]),
            (&[], &[], &[]),
        ] {
            let run = run(findings, repairs);
            let open: Vec<(u32, Matter)> = open_findings(&run).collect();
            let parts: Vec<u32> = open.iter().map(|(part, _)| *part).collect();
            assert_eq!(parts, expected, "{findings:?} {repairs:?}");
            for (part, matter) in &open {
                assert_eq!(matter.id, format!("3.{part}"));
                let verbs = matter.steps.iter().map(|step| &*step.command);
                let expected = match findings[0].0 {
                    "order_lost" => &["flash-sale reconcile --repair", "flash-sale reconcile"][..],
                    _ => &["flash-sale reconcile"],
                };
                assert!(verbs.eq(expected.iter().copied()), "{matter:?}");
            }
        }
    }
}
