//! For each invariant made-up facts that break it; and facts beside them that don't.

use super::*;
use crate::facts::*;
use crate::plan::{Act, Fault, Plan, generate};

const COUPON: i64 = 2_048;
const ORDER: i64 = POISON_ORDERS_MAX + 1;

fn plan(acts: Vec<Act>) -> Plan {
    Plan { acts, is_replicated: false, ..generate(1, &[Fault::ApiKill]) }
}

fn claim(user: i64, at: Ms, outcome: Outcome) -> Event {
    Event {
        client: 0,
        user,
        coupon: COUPON,
        op: Op::Claim,
        door: (0, 0),
        invoked: at,
        completed: at + 10,
        outcome,
    }
}

fn row(user: i64, order: i64) -> Row {
    Row { order, coupon: COUPON, user, is_live: true, created: 200 }
}

fn letter(user: i64, order: i64) -> Letter {
    let claim = Some((COUPON, user, order));
    Letter { reason: "oversold".to_owned(), claim, is_open: true }
}

fn loss() -> Loss {
    Loss {
        fault: Fault::FlushAll,
        kept_until: 50,
        lost_at: 500,
        back_at: 510,
        sells_on: true,
        is_of_replica: false,
    }
}

fn life(place: usize, ended: Option<Ms>) -> Life {
    Life { place, number: 0, started: 0, ended }
}

fn opened(at: Ms) -> RecoveryRow {
    RecoveryRow { lane: 0, closed: at - 100, opened: Some(at), absent: 0, lost: Vec::new() }
}

/// A sale of two units: user 1 has an order, the other unit is left.
fn sound() -> Evidence {
    let redis = RedisSale { total: 2, stock: 1, shards_missing: 0, buyers: [(1, ORDER)].into() };
    let sale = SaleFacts { coupon: COUPON, first_total: 2, total: 2, sold: 1, redis: Some(redis) };
    Evidence {
        history: vec![claim(1, 100, Outcome::Ok(ORDER))],
        told_last: vec![(1, COUPON, Some(ORDER))],
        lives: vec![life(0, None), life(1, None)],
        sales: vec![sale],
        rows: vec![row(1, ORDER)],
        lanes: vec![LaneFacts { promised: 1, written: 1, ..LaneFacts::default() }],
        ..Evidence::empty(plan(Vec::new()))
    }
}

fn redis(evidence: &mut Evidence) -> &mut RedisSale {
    evidence.sales[0].redis.as_mut().expect("it is there")
}

/// Names of the invariants that these facts break.
#[track_caller]
fn assert_breaks(evidence: &Evidence, names: &[&str]) {
    let verdict = check(evidence);
    assert_eq!(verdict.names(), names, "{:#?}", verdict.broken);
}

/// The order of user 1 is nowhere.
fn lost() -> Evidence {
    let mut evidence = sound();
    evidence.rows.clear();
    evidence.told_last = vec![(1, COUPON, None)];
    evidence.sales[0].sold = 0;
    *redis(&mut evidence) = RedisSale { total: 2, stock: 2, ..RedisSale::default() };
    evidence
}

#[test]
fn sound_facts_break_nothing() {
    assert_eq!(check(&sound()), Verdict::default());
}

#[test]
fn i1_total_is_stock_and_buyers() {
    let mut evidence = sound();
    redis(&mut evidence).stock = 2;
    assert_breaks(&evidence, &["I1"]);
    evidence = sound();
    redis(&mut evidence).shards_missing = 1;
    assert_breaks(&evidence, &["I1"]);
    evidence = sound();
    evidence.sales[0].redis = None;
    assert_breaks(&evidence, &["I1"]);
    evidence = sound();
    evidence.seen_on_the_way.push("in the middle".to_owned());
    assert_breaks(&evidence, &["I1"]);
}

#[test]
fn i2_buyers_are_orders_by_id() {
    let mut evidence = sound();
    redis(&mut evidence).buyers.insert(1, ORDER + 1);
    assert_breaks(&evidence, &["I2"]);
}

#[test]
fn i2_a_unit_on_its_way_back_has_a_buyer_and_so_has_a_letter_that_holds_one() {
    let mut evidence = sound();
    evidence.rows[0].is_live = false;
    evidence.sales[0].sold = 0;
    assert_breaks(&evidence, &["I2", "I4"]);
    let coming = Return { order: ORDER, coupon: COUPON, user: 1, done: None };
    evidence.returns.push(coming);
    assert_breaks(&evidence, &["I4"]);

    evidence = sound();
    evidence.losses.push(loss());
    evidence.history.push(claim(2, 100, Outcome::Ok(ORDER + 1)));
    evidence.letters.push(letter(2, ORDER + 1));
    assert_breaks(&evidence, &[]);
    redis(&mut evidence).buyers.insert(2, ORDER + 1);
    redis(&mut evidence).stock = 0;
    assert_breaks(&evidence, &[]);
}

#[test]
fn i3_no_more_live_orders_than_units() {
    let mut evidence = sound();
    evidence.sales[0].sold = 2;
    assert_breaks(&evidence, &["I3"]);
    evidence = sound();
    evidence.sales[0].total = 0;
    assert_breaks(&evidence, &["I3"]);
}

#[test]
fn i4_the_users_of_both_stores_are_the_same() {
    let mut evidence = sound();
    redis(&mut evidence).buyers = [(2, ORDER)].into();
    assert_breaks(&evidence, &["I2", "I4"]);
}

#[test]
fn i5_a_promise_that_is_nowhere_is_broken() {
    assert_breaks(&lost(), &["I5"]);
    // A repeat is a promise, too.
    let mut evidence = lost();
    let repeat = Outcome::Refused("already_claimed".to_owned(), Some(ORDER));
    evidence.history = vec![claim(1, 100, repeat)];
    assert_breaks(&evidence, &["I5"]);
    evidence.history = vec![claim(1, 100, Outcome::Unknown)];
    assert_breaks(&evidence, &[]);
}

#[test]
fn i5_the_row_has_to_be_of_the_same_claim() {
    let mut evidence = sound();
    evidence.history[0].user = 3;
    assert_breaks(&evidence, &["I5", "I6", "I7"]);
}

#[test]
fn i5_a_promise_is_not_a_row_and_a_letter() {
    let mut evidence = sound();
    evidence.losses.push(loss());
    evidence.letters.push(letter(1, ORDER));
    assert_breaks(&evidence, &["I5"]);
}

#[test]
fn i5_a_letter_needs_a_loss_after_which_its_unit_can_have_been_sold() {
    let mut evidence = lost();
    evidence.letters.push(letter(1, ORDER));
    assert_breaks(&evidence, &["I5"]);
    evidence.losses.push(Loss { sells_on: false, ..loss() });
    assert_breaks(&evidence, &["I5"]);
    evidence.silences.push(Silence { place: 0, from: 300, to: 1_500 });
    assert_breaks(&evidence, &[]);
    evidence.silences.clear();
    evidence.recoveries.push(RecoveryRow { absent: 1, ..opened(900) });
    assert_breaks(&evidence, &[]);
    evidence.recoveries.clear();
    // The log of before the loss comes back, with claims of users who have others by now.
    let later = Loss { sells_on: false, kept_until: 480, lost_at: 900, back_at: 910, ..loss() };
    evidence.losses.push(later.clone());
    assert_breaks(&evidence, &[]);
    evidence.losses[1] = Loss { kept_until: 520, ..later };
    assert_breaks(&evidence, &["I5"]);
    evidence.losses[1] = loss();
    assert_breaks(&evidence, &[]);
    assert_eq!(check(&evidence).letters, 1);
    // A letter that an operator has closed keeps no promise.
    evidence.letters[0].is_open = false;
    assert_breaks(&evidence, &["I5"]);
}

#[test]
fn i5_a_letter_that_an_operator_made_an_order_of_needs_a_cause_as_well() {
    let mut evidence = sound();
    evidence.letters.push(Letter { is_open: false, ..letter(1, ORDER) });
    assert_breaks(&evidence, &["I5"]);
    evidence.losses.push(loss());
    assert_breaks(&evidence, &[]);
}

#[test]
fn i5_a_loss_excuses_nothing_that_the_durability_of_the_service_keeps() {
    let broken = |is_replicated: bool, is_of_replica: bool| {
        let mut evidence = lost();
        evidence.losses.push(Loss { is_of_replica, ..loss() });
        evidence.recoveries.push(opened(900));
        evidence.lives[0] = life(0, Some(400));
        evidence.plan.is_replicated = is_replicated;
        !check(&evidence).holds()
    };
    assert!(broken(true, true));
    assert!(!broken(true, false), "the replica was not promoted");
    assert!(!broken(false, true));
}

#[test]
fn i5_superseded_needs_a_newer_order_of_the_same_user() {
    let mut evidence = sound();
    evidence.history.insert(0, claim(1, 50, Outcome::Ok(ORDER - 1)));
    evidence.rows[0].created = 300;
    assert_breaks(&evidence, &["I5"]);
    let lost = Lost { coupon: COUPON, user: 1, order: ORDER - 1, reason: "superseded".to_owned() };
    evidence.recoveries.push(RecoveryRow { lost: vec![lost], ..opened(700) });
    assert_breaks(&evidence, &[]);
    assert_eq!(check(&evidence).superseded, 1);
    evidence.rows[0].order = ORDER - 2;
    evidence.history[1] = claim(1, 100, Outcome::Ok(ORDER - 2));
    redis(&mut evidence).buyers.insert(1, ORDER - 2);
    evidence.told_last[0].2 = Some(ORDER - 2);
    assert_breaks(&evidence, &["I5"]);
}

#[test]
fn i5_a_promise_is_lost_only_with_redis_and_its_process() {
    let excused = |ended: Option<Ms>, loss: Loss| {
        let mut evidence = lost();
        evidence.losses.push(loss);
        evidence.recoveries.push(opened(900));
        evidence.lives[0] = life(0, ended);
        let verdict = check(&evidence);
        assert_eq!(verdict.holds(), verdict.lost_with_process.len() == 1);
        verdict.holds()
    };
    assert!(excused(Some(400), loss()));
    assert!(excused(Some(899), loss()), "before the opening");
    assert!(!excused(None, loss()), "its process lives");
    assert!(!excused(Some(1_000), loss()), "its process could hand in");
    assert!(!excused(Some(400), Loss { kept_until: 200, ..loss() }), "Redis had it");
    assert!(!excused(Some(400), Loss { lost_at: 90, ..loss() }), "lost before it was asked");
}

#[test]
fn i5_each_process_that_told_a_promise_has_to_be_gone() {
    let mut evidence = lost();
    evidence.losses.push(loss());
    evidence.recoveries.push(opened(900));
    evidence.lives[0] = life(0, Some(400));
    let repeat = Outcome::Refused("already_claimed".to_owned(), Some(ORDER));
    evidence.history.push(Event { door: (1, 0), ..claim(1, 150, repeat) });
    assert_breaks(&evidence, &["I5"]);
    evidence.lives[1] = life(1, Some(450));
    assert_breaks(&evidence, &[]);
}

#[test]
fn i5_a_process_that_was_silent_in_the_recovery_and_ended_soon_after_is_gone() {
    let mut evidence = lost();
    evidence.losses.push(loss());
    evidence.recoveries.push(opened(900));
    evidence.silences.push(Silence { place: 0, from: 300, to: 1_500 });
    evidence.lives[0] = life(0, Some(2_000));
    assert_breaks(&evidence, &[]);
    evidence.lives[0] = life(0, Some(60_000));
    assert_breaks(&evidence, &["I5"]);
}

#[test]
fn i5_users_are_told_their_orders_at_the_end() {
    let mut evidence = sound();
    evidence.told_last[0].2 = None;
    assert_breaks(&evidence, &["I5"]);
    evidence.told_last[0].2 = Some(ORDER + 1);
    assert_breaks(&evidence, &["I5"]);
}

#[test]
fn i6_each_row_was_claimed() {
    let mut evidence = sound();
    let other = Row { is_live: false, ..row(2, ORDER + 1) };
    evidence.rows.push(other.clone());
    assert_breaks(&evidence, &["I6"]);
    evidence.history.push(claim(2, 100, Outcome::Unknown));
    assert_breaks(&evidence, &[]);
    evidence.rows[1].created = 99;
    assert_breaks(&evidence, &["I6"]);
    evidence.rows[1] = other;
    evidence.history[1].outcome = Outcome::Refused("sale_paused".to_owned(), None);
    assert_breaks(&evidence, &["I6"]);
}

#[test]
fn i7_an_order_id_is_given_out_once() {
    let mut evidence = sound();
    evidence.history.push(claim(2, 100, Outcome::Ok(ORDER)));
    let names = check(&evidence).names();
    assert!(names.contains(&"I7"), "{names:?}");
}

#[test]
fn i8_stock_is_never_negative() {
    let mut evidence = sound();
    redis(&mut evidence).total = 0;
    redis(&mut evidence).stock = -1;
    assert_breaks(&evidence, &["I8"]);
}

#[test]
fn i9_the_log_is_accounted() {
    let changes: [fn(&mut LaneFacts); 3] =
        [|lane| lane.promised = 2, |lane| lane.pending = 1, |lane| lane.unread = 1];
    for change in changes {
        let mut evidence = sound();
        change(&mut evidence.lanes[0]);
        assert_breaks(&evidence, &["I9"]);
    }
}

#[test]
fn i10_nothing_pending_is_deleted() {
    let mut evidence = sound();
    evidence.lanes[0].pending_deleted.push("1-1".to_owned());
    assert_breaks(&evidence, &["I10"]);
    evidence = sound();
    let claim = None;
    let deleted = "deleted_from_log".to_owned();
    evidence.letters.push(Letter { reason: deleted, claim, is_open: true });
    assert_breaks(&evidence, &["I10"]);
    evidence.plan = plan(vec![Act { fault: Fault::LogDeleted, begin_ms: 0, end_ms: 1, place: 0 }]);
    assert_breaks(&evidence, &[]);
}

/// User 9 is told that the sale is sold out.
fn told_sold_out(at: Ms) -> Event {
    claim(9, at, Outcome::Refused("sold_out".to_owned(), None))
}

#[test]
fn i11_sold_out_is_told_only_when_all_units_may_be_held() {
    let mut evidence = sound();
    evidence.history.push(told_sold_out(400));
    assert_breaks(&evidence, &["I11"]);
    // The second unit was held until a moment ago.
    evidence.history.push(claim(2, 150, Outcome::Ok(ORDER + 1)));
    evidence.rows.push(Row { is_live: false, ..row(2, ORDER + 1) });
    let back = |done| Return { order: ORDER + 1, coupon: COUPON, user: 2, done: Some(done) };
    evidence.returns.push(back(390));
    assert_breaks(&evidence, &[]);
    // And longer ago than a process remembers.
    evidence.history[1] = told_sold_out(5_000);
    assert_breaks(&evidence, &["I11"]);
}

#[test]
fn i11_a_redis_that_went_back_tells_of_its_older_data_until_it_is_recovered() {
    let mut evidence = sound();
    evidence.history.push(claim(2, 150, Outcome::Ok(ORDER + 1)));
    evidence.rows.push(Row { is_live: false, ..row(2, ORDER + 1) });
    evidence.returns = vec![Return { order: ORDER + 1, coupon: COUPON, user: 2, done: Some(390) }];
    evidence.history.push(told_sold_out(5_000));
    assert_breaks(&evidence, &["I11"]);
    evidence.losses.push(Loss { kept_until: 350, lost_at: 4_950, back_at: 4_940, ..loss() });
    assert_breaks(&evidence, &[]);
    evidence.recoveries.push(opened(5_400));
    assert_breaks(&evidence, &[]);
    evidence.recoveries[0].opened = Some(4_980);
    assert_breaks(&evidence, &["I11"]);
    evidence.losses[0].sells_on = false;
    evidence.recoveries.clear();
    assert_breaks(&evidence, &["I11"]);
}

#[test]
fn i11_units_that_came_back_before_a_loss_of_the_memory_count_beside_later_ones() {
    let mut evidence = sound();
    evidence.sales[0].first_total = 3;
    for (user, claimed, back) in [(2, 150, 390), (3, 4_960, 6_000)] {
        let order = ORDER + user - 1;
        evidence.history.push(claim(user, claimed, Outcome::Ok(order)));
        evidence.rows.push(Row { is_live: false, created: claimed, ..row(user, order) });
        evidence.returns.push(Return { order, coupon: COUPON, user, done: Some(back) });
    }
    evidence.history.push(told_sold_out(5_000));
    assert_breaks(&evidence, &["I11"]);
    evidence.losses.push(Loss { kept_until: 350, lost_at: 4_950, back_at: 4_940, ..loss() });
    assert_breaks(&evidence, &[]);
}

#[test]
fn i11_units_that_were_added_count_once_redis_has_them() {
    let mut evidence = sound();
    evidence.sales[0].first_total = 1;
    evidence.history.push(told_sold_out(5_000));
    assert_breaks(&evidence, &[]);
    evidence.changes.push(Change { coupon: COUPON, total: 2, applied: 4_000 });
    assert_breaks(&evidence, &[]);
    evidence.changes[0].applied = 2_000;
    assert_breaks(&evidence, &["I11"]);
}

#[test]
fn what_must_not_happen_breaks_the_rest() {
    let mut evidence = sound();
    evidence.mishaps.push("a process panicked".to_owned());
    assert_breaks(&evidence, &["rest"]);
    evidence = sound();
    evidence.disagreements.push("DISAGREE".to_owned());
    assert_breaks(&evidence, &["rest"]);
}
