//! Invariants about the order log.

use super::verdict::Broken;
use crate::facts::Evidence;
use crate::plan::Fault;

/// I9 and I10.
pub fn check(evidence: &Evidence, broken: &mut Vec<Broken>) {
    for lane in &evidence.lanes {
        let number = lane.lane;
        let is_empty = lane.pending == 0 && lane.unread == 0;
        if lane.promised != lane.written || !is_empty {
            let detail = format!(
                "lane {number}: promised {}, acknowledged {}, {} entries pending, {} unread",
                lane.promised, lane.written, lane.pending, lane.unread
            );
            broken.push(Broken { invariant: "I9", detail });
        }
        if !lane.pending_deleted.is_empty() {
            let detail = format!("lane {number}: pending and deleted: {:?}", lane.pending_deleted);
            broken.push(Broken { invariant: "I10", detail });
        }
    }
    let deletes = evidence.plan.acts.iter().any(|act| act.fault == Fault::LogDeleted);
    let deleted = evidence.letters.iter().filter(|letter| letter.reason == "deleted_from_log");
    let deleted = deleted.count();
    if deleted > 0 && !deletes && evidence.losses.is_empty() {
        let detail = format!("{deleted} pending entries were deleted from the log");
        broken.push(Broken { invariant: "I10", detail });
    }
}
