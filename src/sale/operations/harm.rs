//! The harm of each kind of matter, in one sentence, and the steps that settle it.

use super::matter::{Matter, MatterKind, Position, Step};
use crate::sale::fence::table::WaitingLane;
use crate::sale::order::dead_letter::Letter;
use crate::sale::order::moves::jobs::OverdueJob;
use crate::sale::pass::{ItemKind, Pass};
use crate::sale::payment::model::PaymentReason;
use crate::sale::payment::owed::OwedPayment;
use crate::sale::postponed::PostponedItem;
use crate::sale::reconcile::repair;
use crate::sale::reconcile::runs::{Finding, Run};
use crate::sale::recovery::closures::ClosureReason;
use crate::sale::recovery::records::Recovery;

fn step(effect: &'static str, command: String, request: String) -> Step {
    Step { effect, command: format!("flash-sale {command}"), request: Some(request) }
}

/// A step that has no request.
fn command(effect: &'static str, command: String) -> Step {
    Step { effect, command: format!("flash-sale {command}"), request: None }
}

impl Matter {
    fn new(position: Position, since: chrono::DateTime<chrono::Utc>, detail: String) -> Self {
        Self {
            kind: position.kind,
            id: position.id_in_words(),
            since,
            age_s: 0,
            detail,
            harm: "",
            advice: None,
            steps: Vec::new(),
            position,
        }
    }
}

/// A lane whose claims wait.
pub(super) fn of_lane(waiting: &WaitingLane) -> Matter {
    let WaitingLane { lane, epoch, closed, since } = waiting;
    let position = Position { kind: MatterKind::Lane, id: i64::from(lane.get()), part: 0 };
    let (state, advice) = match closed {
        Some(reason) => (
            format!("closed: {reason}"),
            "A recovery takes seconds: look at `flash-sale recoveries`, and at the log of the worker that keeps the lanes, for what it waits for.",
        ),
        None => (
            "open, and Redis does not confirm it".to_owned(),
            "If Redis answers and a worker runs, Redis has a newer epoch than Postgres, which went back in time: look at what each store has that the other one lacks, then say which of them is right.",
        ),
    };
    let is_of_all = closed.as_deref() == Some(ClosureReason::PostgresBehind.sentence());
    let of_lane = if is_of_all { String::new() } else { format!("--lane {lane} ") };
    let steps = vec![
        command(
            "shows what each store has that the other one lacks, and changes nothing",
            format!("recover {of_lane}--dry-run"),
        ),
        command(
            "the lane is recovered, and buyers that only Redis has become orders",
            format!("recover {of_lane}--trust redis"),
        ),
        command(
            "the lane is recovered, and units of buyers that only Redis has are on sale again",
            format!("recover {of_lane}--trust postgres"),
        ),
    ];
    Matter {
        harm: "Users can't claim the coupons of this lane.",
        advice: Some(advice.to_owned()),
        steps,
        ..Matter::new(position, *since, format!("lane {lane}, epoch {epoch}: {state}"))
    }
}

/// An open dead letter.
pub(super) fn of_letter(letter: &Letter) -> Matter {
    let id = letter.id;
    let position = Position { kind: MatterKind::DeadLetter, id: id.get(), part: 0 };
    let of = match (letter.order_id, letter.user_id, letter.coupon_id) {
        (Some(order), Some(user), Some(coupon)) => {
            format!("order {order} of user {user}, coupon {coupon}")
        }
        _ => "an entry that can't be read".to_owned(),
    };
    let detail = format!("{of}: {}: {}", letter.reason, letter.detail);
    let harm = match letter.order_id {
        Some(_) => "A buyer was promised an order that isn't there, and a unit may wait with it.",
        None => "A claim of an unknown buyer may have been lost.",
    };
    let steps = vec![
        step(
            "the claim becomes the order that was promised",
            format!("dead-letters retry {id}"),
            format!("POST /v1/dead-letters/{id}/retry"),
        ),
        step(
            "a cancelled order ends the promise, and its unit comes back if it exists",
            format!("dead-letters discard {id}"),
            format!("POST /v1/dead-letters/{id}/discard"),
        ),
    ];
    Matter { harm, steps, ..Matter::new(position, letter.created_at, detail) }
}

/// A payment that waits.
pub(super) fn of_payment(kind: MatterKind, payment: &OwedPayment) -> Matter {
    let id = payment.payment_id;
    let position = Position { kind, id: id.get(), part: 0 };
    let (status, reason) = (payment.status.as_str(), payment.reason.as_str());
    let (amount, order) = (payment.amount(), payment.order_id);
    let detail = format!("{amount} for order {order}: {status}, {reason}");
    let harm = match (kind, payment.reason) {
        (MatterKind::Refund, _) => "A payer waits for money that the shop owes.",
        (_, PaymentReason::ChargedBack) => {
            "The shop has lost the money of an order that was redeemed, or whose unit is not on sale."
        }
        _ => "The shop has money of a payer for whom there is no order.",
    };
    let close = step(
        "the matter ends with your note; the money has been dealt with by other means",
        format!("payments close {id} --note NOTE"),
        format!("POST /v1/payments/{id}/close {{\"note\": \"NOTE\"}}"),
    );
    let effect = match payment.may_be_back {
        true => "the gateway is asked to refund it, perhaps a second time: ask it first",
        false => "the gateway is asked to refund it",
    };
    let hand_back = step(
        effect,
        format!("payments hand-back {id}"),
        format!("POST /v1/payments/{id}/hand-back"),
    );
    let only_closed = [PaymentReason::IdUsedTwice, PaymentReason::ChargedBack];
    let steps = match kind {
        MatterKind::HeldPayment if payment.may_be_back => vec![close, hand_back],
        MatterKind::HeldPayment if !only_closed.contains(&payment.reason) => vec![hand_back, close],
        _ => vec![close],
    };
    let advice = Some(payment.what_to_do.to_owned());
    Matter { harm, advice, steps, ..Matter::new(position, payment.since, detail) }
}

/// An item that a pass has put aside.
pub(super) fn of_postponed(item: &PostponedItem) -> Matter {
    let PostponedItem { id, pass, item: of, tries, error, .. } = item;
    let position = Position { kind: MatterKind::Postponed, id: id.get(), part: 0 };
    let kind = item.item_kind.map_or("item", ItemKind::as_str);
    let detail = format!("{pass}: {kind} {of} has failed {tries} times: {error}");
    let harm = Pass::of_name(pass).map_or(UNKNOWN_PASS, harm_of_pass);
    let again = step(
        "it is tried at once, which succeeds if the cause has gone",
        format!("postponed retry {id}"),
        format!("POST /v1/postponed/{id}/retry"),
    );
    let advice = Some(item.what_to_do.clone());
    Matter { harm, advice, steps: vec![again], ..Matter::new(position, item.since, detail) }
}

/// A job that goes on and on.
pub(super) fn of_job(job: &OverdueJob) -> Matter {
    let OverdueJob { id, coupon, requested_at, cancelled } = job;
    let position = Position { kind: MatterKind::Job, id: id.get(), part: 0 };
    let detail =
        format!("unpaid orders of coupon {coupon}: {cancelled} are cancelled, and some are left");
    let advice = "If the number grows, wait. If it doesn't: is a worker running? Orders that the job could not cancel are postponed, each with its error.";
    let steps = vec![
        command("shows how many are left", format!("orders jobs --coupon {coupon}")),
        command(
            "lists the orders that it could not cancel, each with the command that tries it again",
            "postponed --pass cancellations".to_owned(),
        ),
    ];
    Matter {
        harm: "Buyers can still pay for orders that an administrator has had cancelled.",
        advice: Some(advice.to_owned()),
        steps,
        ..Matter::new(position, *requested_at, detail)
    }
}

const UNKNOWN_PASS: &str = "A pass of a newer version can't go on with this item.";

fn harm_of_pass(pass: Pass) -> &'static str {
    match pass {
        Pass::Load => "Claims on a sale that opens soon will fail.",
        Pass::Archive => "Redis keeps the memory of a sale that is over.",
        Pass::Changes => "Claims go by older values of a coupon than those that were decided.",
        Pass::StockReturns | Pass::Withdrawals => "Units that could be sold are not on sale.",
        Pass::Places => "Users who have paid may be refused as holding too many unpaid orders.",
        Pass::Expiry => "An order that was not paid in time keeps a unit that could be sold.",
        Pass::Cancellations => "An order at a wrong price can still be paid, and keeps its unit.",
        Pass::Refunds => "A payer waits for money that the shop owes.",
        Pass::Openings => "A payer has perhaps paid, and the order doesn't have the money.",
        Pass::Rebuild => "A sale is closed, and all claims on it are refused.",
        Pass::History => "Nothing for buyers: the row of an order that is over stays where it is.",
        Pass::OrderCounts => "A comparison may have left a sale out that had changed.",
        // These postpone nothing.
        Pass::Write | Pass::Recover | Pass::TidyUp | Pass::Numbers => UNKNOWN_PASS,
        Pass::Reconcile | Pass::Revisions | Pass::Audit => UNKNOWN_PASS,
        Pass::Retention => UNKNOWN_PASS,
    }
}

/// A disagreement of the stores.
pub(super) fn of_finding(run: &Run, part: u32, finding: &Finding) -> Matter {
    let Finding { code, detail, .. } = finding;
    let position = Position { kind: MatterKind::Finding, id: run.run_id.get(), part };
    let harm = harm_of_finding(code).unwrap_or("Redis and Postgres disagree.");
    let look = step(
        "the stores are compared anew: what is settled is not found again",
        "reconcile".to_owned(),
        "POST /v1/reconcile {\"repair\": false}".to_owned(),
    );
    let repairs = step(
        "Postgres is corrected where that is safe",
        "reconcile --repair".to_owned(),
        "POST /v1/reconcile {\"repair\": true}".to_owned(),
    );
    let steps = match repair::can_repair(code) {
        true => vec![repairs, look],
        false => vec![look],
    };
    let advice = Some(format!("docs/reconcile.md#{code} says what it means and what to do."));
    let since = run.finished_at.unwrap_or(run.started_at);
    Matter { harm, advice, steps, ..Matter::new(position, since, format!("{code}: {detail}")) }
}

fn harm_of_finding(code: &str) -> Option<&'static str> {
    Some(match code {
        "sale_missing" | "sale_orphaned" | "shards_missing" | "sale_unreadable" => {
            "Claims on the sale are refused, or its buyers are not known."
        }
        "not_conserved" | "negative_stock" | "total_differs" | "oversold" => {
            "The sale may sell more units than there are, or keep some back."
        }
        "terms_differ" | "revision_differs" | "epoch_differs" => {
            "Claims go by other values than those that were decided."
        }
        "sold_miscounted" => "Orders of the sale may be refused, or can't be closed.",
        "order_lost" | "acknowledged_unwritten" | "pending_deleted" | "numbers_missing" => {
            "A buyer was promised an order that isn't there."
        }
        "not_given_back" => "A unit of a closed order is not on sale again.",
        "buyer_missing" => "A buyer could claim a second unit of the same coupon.",
        "numbers_repeated" | "log_unreadable" => {
            "It can't be told whether all claims have become orders."
        }
        "place_not_freed" | "place_missing" | "places_unreadable" => {
            "A user may hold more unpaid orders than allowed, or fewer."
        }
        _ => return None,
    })
}

/// A recovery with claims that could not be kept.
pub(super) fn of_recovery(recovery: &Recovery) -> Matter {
    let id = recovery.id;
    let position = Position { kind: MatterKind::Recovery, id: id.get(), part: 0 };
    let lost = recovery.lost.iter().map(|lost| {
        let (order, user, coupon) = (lost.order_id, lost.user_id, lost.coupon_id);
        format!("order {order} of user {user}, coupon {coupon}: {}", lost.reason)
    });
    let lost: Vec<String> = lost.take(SHOWN_CLAIMS).collect();
    let count = recovery.lost.len();
    let lane = recovery.lane;
    let mut detail = format!("lane {lane}: {count} claims not kept: {}", lost.join("; "));
    if let Some(unknown @ 1..) = recovery.unknown {
        detail.push_str(&format!("; at least {unknown} more that nothing names"));
    }
    let settle = step(
        "the matter ends with your note; the buyers have been told",
        format!("recoveries settle {id} --note NOTE"),
        format!("POST /v1/recoveries/{id}/settle {{\"note\": \"NOTE\"}}"),
    );
    let advice = "Tell each buyer that the order isn't there. A claim `promised_without_unit` is a dead letter, too: restock the sale and try that one again, or discard it.";
    Matter {
        harm: "Buyers were told of orders that they don't have.",
        advice: Some(advice.to_owned()),
        steps: vec![settle],
        ..Matter::new(position, recovery.closed_at, detail)
    }
}

/// Claims of a recovery that its matter names; `flash-sale recoveries` names all.
const SHOWN_CLAIMS: usize = 10;

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;
    use crate::sale::ids::{CouponId, DeadLetterId, OrderId, UserId};
    use crate::sale::reconcile::Disagreement;

    #[test]
    fn a_matter_of_a_letter_names_the_order_user_and_coupon_if_all_can_be_read() {
        let (order, user) = (OrderId::new(7).ok(), UserId::new(9).ok());
        let coupon = Some(CouponId::compose(1, 1));
        let no_claim = "an entry that can't be read: conflict: x";
        let (promised, unknown) = ("A buyer was promised", "A claim of an unknown buyer");
        for (order_id, user_id, coupon_id, detail, harm) in [
            (order, user, coupon, "order 7 of user 9, coupon 1024: conflict: x", promised),
            (order, user, None, no_claim, promised),
            (order, None, coupon, no_claim, promised),
            (None, user, coupon, no_claim, unknown),
            (None, None, None, no_claim, unknown),
        ] {
            let matter = of_letter(&Letter {
                id: DeadLetterId::new(3).expect("an id"),
                lane: 0,
                entry_id: "1-1".into(),
                position: 0,
                entry: Vec::new(),
                reason: "conflict".into(),
                detail: "x".into(),
                coupon_id,
                user_id,
                order_id,
                created_at: DateTime::<Utc>::UNIX_EPOCH,
                closed_at: None,
            });
            assert_eq!(matter.detail, detail);
            assert!(matter.harm.starts_with(harm), "{matter:?}");
        }
    }

    #[test]
    fn every_finding_and_every_pass_that_postpones_has_its_harm() {
        for code in Disagreement::CODES {
            assert!(harm_of_finding(code).is_some(), "{code}");
        }
        for pass in Pass::ALL {
            let has_harm = harm_of_pass(pass) != UNKNOWN_PASS;
            assert_eq!(pass.postpones().is_some(), has_harm, "{}", pass.name());
        }
    }

    /// Each kind of finding has the harm of its like.
    #[test]
    fn harm_of_finding_is_told_by_its_kind() {
        let groups = [
            (
                &["sale_missing", "sale_orphaned", "shards_missing", "sale_unreadable"][..],
                "Claims on the sale are refused",
            ),
            (&["not_conserved", "negative_stock", "total_differs", "oversold"], ""),
            (&["terms_differ", "revision_differs", "epoch_differs"], ""),
            (&["sold_miscounted"], ""),
            (&["order_lost", "acknowledged_unwritten", "pending_deleted", "numbers_missing"], ""),
            (&["not_given_back"], ""),
            (&["buyer_missing"], ""),
            (&["numbers_repeated", "log_unreadable"], "It can't be told whether all claims"),
            (
                &["place_not_freed", "place_missing", "places_unreadable"],
                "A user may hold more unpaid orders",
            ),
        ];
        let mut harms = std::collections::BTreeSet::new();
        let mut codes = 0;
        for (group, begins) in groups {
            let of_group: std::collections::BTreeSet<_> =
                group.iter().map(|code| harm_of_finding(code)).collect();
            assert_eq!(of_group.len(), 1, "{group:?}");
            let harm = of_group.first().copied().flatten().expect("each has one");
            assert!(harm.starts_with(begins) && harm.ends_with('.'), "{harm}");
            assert!(harms.insert(harm), "{group:?} has the harm of others");
            codes += group.len();
        }
        assert_eq!(codes, Disagreement::CODES.len());
        assert_eq!(harm_of_finding("new"), None);
    }

    fn payment(reason: PaymentReason, may_be_back: bool) -> OwedPayment {
        use crate::sale::ids::{OrderId, PaymentId};
        use crate::sale::payment::gateway::Gateway;
        use crate::sale::payment::model::PaymentStatus;
        OwedPayment {
            payment_id: PaymentId::new(7).expect("an id"),
            gateway: Gateway::External,
            gateway_payment_id: "g".into(),
            order_id: OrderId::new(8).expect("an id"),
            amount_cents: 5,
            currency: Some("CNY".into()),
            status: PaymentStatus::Held,
            reason,
            since: chrono::DateTime::UNIX_EPOCH,
            asked_at: None,
            settled_at: None,
            note: None,
            what_to_do: "advice",
            may_be_back,
        }
    }

    #[test]
    fn of_payment_offers_the_steps_that_the_payment_may_take() {
        use MatterKind::{HeldPayment, Refund};
        use PaymentReason::{AskedFor, ChargedBack, IdUsedTwice, UnknownOrder};
        let (owes, has, lost) =
            ("A payer waits", "The shop has money", "The shop has lost the money");
        for (kind, reason, may_be_back, harm, steps) in [
            (Refund, AskedFor, false, owes, &["close"][..]),
            (Refund, ChargedBack, false, owes, &["close"]),
            (HeldPayment, UnknownOrder, false, has, &["hand-back", "close"]),
            (HeldPayment, UnknownOrder, true, has, &["close", "hand-back"]),
            (HeldPayment, IdUsedTwice, false, has, &["close"]),
            (HeldPayment, ChargedBack, false, lost, &["close"]),
        ] {
            let matter = of_payment(kind, &payment(reason, may_be_back));
            assert!(matter.harm.starts_with(harm), "{reason:?}: {}", matter.harm);
            let words =
                matter.steps.iter().map(|step| step.command.split(' ').nth(2).expect("a verb"));
            assert_eq!(words.collect::<Vec<_>>(), steps, "{reason:?} {may_be_back}");
            let again = matter.steps.iter().any(|step| step.effect.contains("a second time"));
            assert_eq!(again, may_be_back);
            assert_eq!(
                (matter.kind, &*matter.id, matter.advice.as_deref()),
                (kind, "7", Some("advice"))
            );
            assert!(
                matter.detail.starts_with("5 cents (CNY) for order 8: held, "),
                "{}",
                matter.detail
            );
        }
    }

    #[test]
    fn of_recovery_names_ten_claims_and_the_number_of_those_that_nothing_names() {
        use crate::sale::ids::{CouponId, OrderId, RecoveryId, UserId};
        use crate::sale::recovery::records::LostClaim;
        let claim = |order: i64| LostClaim {
            coupon_id: CouponId::compose(1, 1),
            user_id: UserId::new(1).expect("an id"),
            order_id: OrderId::new(order).expect("an id"),
            reason: "superseded".into(),
        };
        for (claims, unknown, shown, more) in [
            (1, None, 1, false),
            (10, Some(0), 10, false),
            (11, Some(2), 10, true),
            (0, Some(1), 0, true),
        ] {
            let recovery = Recovery {
                id: RecoveryId::new(4).expect("an id"),
                lane: 0,
                epoch: 1,
                reason: String::new(),
                closed_at: chrono::DateTime::UNIX_EPOCH,
                opened_at: None,
                sales_kept: None,
                sales_built: None,
                buyers: None,
                harvested: None,
                receipts: None,
                absent: None,
                absent_processes: Vec::new(),
                receipts_dropped: None,
                unknown,
                lost: sqlx::types::Json((1..=claims).map(claim).collect()),
                settled_at: None,
                note: None,
            };
            let detail = of_recovery(&recovery).detail;
            assert!(detail.starts_with(&format!("lane 0: {claims} claims not kept: ")), "{detail}");
            assert_eq!(detail.matches(" of user ").count(), shown, "{detail}");
            let words = format!("; at least {} more", unknown.unwrap_or_default());
            assert_eq!(detail.contains(&words), more, "{detail}");
        }
    }
}
