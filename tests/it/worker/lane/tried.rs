//! Claims of batches that failed: a row that is found later may be the worker's own, and is timed, as long as the worker
//! remembers the claim.

use flash_sale::base::limits;
use flash_sale::sale::ids::CouponId;
use flash_sale::worker::LaneWorker;
use flash_sale::worker::write::WriteReport;

use super::{append, worker_of, worker_with};
use crate::support::lines::number;
use crate::support::played::Still;
use crate::support::{Bounded, TestApp, lane, later, tries, user, write_all};

struct Tried {
    app: TestApp,
    coupon: CouponId,
    worker: LaneWorker,
}

impl Tried {
    /// A worker whose batch with the claim of this user has failed. The row is there all the same.
    async fn claim(number: i64) -> Self {
        let app = TestApp::start().await;
        app.expect_disagreements();
        let coupon = app.create_flash(100).await;
        let mut worker = worker_with(&app, |_| {}).await;
        append(&app, coupon, number..=number).await;
        app.refuse("INSERT", "orders", "true", "57014").await;
        assert!(worker.write_pass().bounded().await.is_err());
        app.accept("orders").await;
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
                 VALUES ({number}, {coupon}, 'flash', {number}, now());
             UPDATE flash_sales SET sold = sold + 1"
        ))
        .await;
        Self { app, coupon, worker }
    }

    /// Rows that have been timed.
    fn timed(&self) -> f64 {
        number(&self.app.app, "flash_sale_claim_to_row_seconds_count")
    }

    /// Number of positions that are found to be rows.
    async fn repeats(&mut self) -> usize {
        write_all(&mut self.worker).await.repeated
    }

    /// Raises the epoch of the lane in Redis by this.
    async fn raise_in_redis(&self, by: &str) {
        let of_lane = self.app.keys().lane(lane());
        let _: i64 = self.app.redis(&["HINCRBY", &of_lane, "epoch", by]).await;
    }
}

#[tokio::test]
async fn a_claim_that_was_tried_is_remembered_while_its_lock_is_held_elsewhere() {
    let mut tried = Tried::claim(5).await;
    let key = tried.app.keys().order_lock(lane(), user(5));
    let held = tried.app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
    // However slow the machine is, the claim isn't tried again between these.
    let clock = Still::begin();
    assert_eq!(tried.worker.write_pass().bounded().await.expect("both stores answer").contended, 1);
    let nothing = tried.worker.write_pass().bounded().await.expect("both stores answer");
    assert_eq!(nothing, WriteReport::default());
    drop(clock);
    held.release().await;
    later(limits::CONTENTION_PAUSE).await;
    assert_eq!((tried.repeats().await, tried.timed()), (1, 1.0));
}

#[tokio::test]
async fn a_claim_that_was_tried_is_forgotten_once_the_worker_has_no_entry() {
    let mut tried = Tried::claim(5).await;
    // Redis has another epoch for a moment, and the worker forgets the entries that it holds.
    tried.raise_in_redis("1").await;
    assert!(tried.worker.write_pass().bounded().await.is_err());
    tried.raise_in_redis("-1").await;
    let key = tried.app.log(lane());
    let _: i64 = tried.app.redis(&["XTRIM", &key, "MAXLEN", "0"]).await;
    let _: i64 = tried.app.redis(&["XGROUP", "DESTROY", &key, "order-writers"]).await;
    tried.worker.ensure_group().bounded().await.expect("Redis answers");
    assert_eq!(tried.worker.write_pass().bounded().await.expect("both stores answer").positions, 0);
    append(&tried.app, tried.coupon, 5..=5).await;
    assert_eq!((tried.repeats().await, tried.timed()), (1, 0.0));
}

#[tokio::test]
async fn a_claim_that_was_tried_is_forgotten_in_a_new_epoch() {
    let mut tried = Tried::claim(5).await;
    tried.raise_in_redis("1").await;
    tried.app.execute("UPDATE lanes SET epoch = epoch + 1").await;
    tried.app.app.lanes.read_now().await.expect("Postgres answers");
    assert_eq!((tried.repeats().await, tried.timed()), (1, 0.0));
}

/// A new epoch has the worker forget what it holds.
#[tokio::test]
async fn a_contended_claim_is_read_again_in_a_new_epoch() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    let key = app.keys().order_lock(lane(), user(1));
    let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
    append(&app, coupon, 1..=1).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").contended, 1);
    held.release().await;
    app.execute("UPDATE lanes SET epoch = epoch + 1").await;
    app.app.lanes.read_now().await.expect("Postgres answers");
    let _: i64 = app.redis(&["HINCRBY", &app.keys().lane(lane()), "epoch", "1"]).await;
    assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").inserted, 1);
}

/// Postgres has the new epoch first. A process that doesn't know it yet learns it by the refusal.
#[tokio::test]
async fn a_worker_whose_epoch_is_refused_learns_the_new_one() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    append(&app, coupon, 1..=1).await;
    app.execute("UPDATE lanes SET epoch = epoch + 1").await;
    assert_eq!(app.app.lanes.epoch(lane()), 1);
    let refused = worker.write_pass().bounded().await;
    assert!(matches!(refused, Err(flash_sale::worker::PassError::Stale)), "{refused:?}");
    assert_eq!(app.app.lanes.epoch(lane()), 2);
    let _: i64 = app.redis(&["HINCRBY", &app.keys().lane(lane()), "epoch", "1"]).await;
    assert_eq!(write_all(&mut worker).await.inserted, 1);
}

/// Traffic beside it doesn't put off a contended claim for ever.
#[tokio::test]
async fn batches_of_others_do_not_put_off_a_contended_claim() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10_000).await;
    let mut worker = worker_with(&app, |_| {}).await;
    for n in tries() {
        let key = app.keys().order_lock(lane(), user(2 * n));
        let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
        append(&app, coupon, 2 * n..=2 * n).await;
        assert_eq!(worker.write_pass().bounded().await.expect("both stores answer").contended, 1);
        later(limits::CONTENTION_PAUSE / 2).await;
        append(&app, coupon, 2 * n + 1..=2 * n + 1).await;
        let beside = worker.write_pass().bounded().await.expect("both stores answer");
        held.release().await;
        later(limits::CONTENTION_PAUSE / 2).await;
        let inserted = worker.write_pass().bounded().await.expect("both stores answer").inserted;
        // On a machine this slow the claim was tried in between.
        if beside.contended == 0 {
            assert_eq!((beside.inserted, inserted), (1, 1));
            break;
        }
        later(limits::CONTENTION_PAUSE).await;
        write_all(&mut worker).await;
    }
}

/// The clock moves by half a pause between the passes.
#[tokio::test]
async fn write_pass_has_contended_claims_wait_for_one_pause_whatever_else_is_contended_or_written()
{
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    let mut worker = worker_with(&app, |_| {}).await;
    let keys = [1, 2].map(|id| app.keys().order_lock(lane(), user(id)));
    for key in &keys {
        let _: i64 = app.redis(&["HSET", key, "another", "1"]).await;
    }
    let half = u64::try_from(limits::CONTENTION_PAUSE.as_millis() / 2).expect("a small number");
    let clock = Still::begin();
    for (number, (user, inserted, contended)) in
        [(Some(3), 1, 0), (Some(1), 0, 1), (Some(2), 0, 1), (None, 2, 0)].into_iter().enumerate()
    {
        if let Some(user) = user {
            append(&app, coupon, user..=user).await;
        }
        let report = worker.write_pass().bounded().await.expect("both stores answer");
        assert_eq!((report.inserted, report.contended), (inserted, contended), "{number}");
        // From here on, only the pause holds the claim up.
        if let Some(key) = number.checked_sub(1).and_then(|n| keys.get(n)) {
            assert_eq!(app.redis::<i64>(&["DEL", key]).await, 1);
        }
        clock.advance(half).await;
    }
}

/// Nothing of it is to be written.
#[tokio::test]
async fn a_batch_of_contended_claims_does_without_postgres() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(10).await;
    worker_with(&app, |_| {}).await;
    let another = app.another_instance().await;
    let mut worker = worker_of(another.clone(), (&app.config).into());
    let key = app.keys().order_lock(lane(), user(1));
    let held = app.app.locks.try_acquire_batch(vec![key]).await.expect("Redis answers");
    append(&app, coupon, 1..=1).await;
    another.stores.pool.close().await;
    let report = worker.write_pass().bounded().await.expect("Redis answers");
    assert_eq!((report.positions, report.contended), (1, 1));
    held.release().await;
}
