//! Orders and units against a model: random sequences of claims, payments, cancellations, more stock, and jobs that
//! die half-way. After any sequence, both stores hold the model's state, and a comparison in the middle of it finds
//! no fault.

use std::collections::BTreeMap;
use std::time::Duration;

use flash_sale::claim::outcome::ClaimOutcome;
use flash_sale::coupon::input::Restock;
use flash_sale::coupon::rules::Change;
use flash_sale::log::{LoggedClaim, OrderLog};
use flash_sale::order::write::Origin;
use flash_sale::store::ids::CouponId;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tokio_util::sync::CancellationToken;

use crate::support::plans::for_cases;
use crate::support::{Bounded, TestApp, claims_in, lane, user};

const CASES: u32 = 24;
const CASES_LONG: u32 = 1_000;

/// A step. Users are few, so that they come again.
#[derive(Clone, Debug)]
enum Step {
    Claim(i64),
    /// A user's action on their last order.
    Act(i64, Action),
    /// More units, under one of a few keys.
    Restock(i64),
    /// The same in a process that dies between Postgres and Redis.
    RestockAndDie(i64),
    Job(Job),
    /// The stores are compared: no finding is allowed.
    Compare,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Pay,
    Cancel,
}

/// The jobs of the worker, and what each leaves when its process dies.
#[derive(Clone, Copy, Debug)]
enum Job {
    Write,
    /// The job has read the entries.
    WriteDiesBeforeCommit,
    /// The job has written the entries and not acknowledged them.
    WriteDiesAfterCommit,
    Release,
    /// Redis has the units, and the outbox doesn't know.
    ReleaseDiesBeforeNote,
    ApplyChanges,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// In the log, unread.
    Logged,
    /// In the log, pending for a worker that died.
    Held,
    Unpaid,
    Paid,
    Cancelled,
}

#[derive(Debug)]
struct Model {
    /// Units on offer, by Postgres and by Redis.
    total: i64,
    total_in_redis: i64,
    /// Keys of restocks that have been decided.
    keys: Vec<i64>,
    /// Order -> user and state.
    orders: BTreeMap<i64, (i64, State)>,
    /// User -> order, as Redis has them.
    buyers: BTreeMap<i64, i64>,
}

fn steps() -> impl Strategy<Value = (i64, Vec<Step>)> {
    let user = || 1..=5_i64;
    let action = prop_oneof![
        3 => Just(Action::Pay),
        3 => Just(Action::Cancel),
    ];
    let job = prop_oneof![
        6 => Just(Job::Write),
        1 => Just(Job::WriteDiesBeforeCommit),
        1 => Just(Job::WriteDiesAfterCommit),
        4 => Just(Job::Release),
        2 => Just(Job::ReleaseDiesBeforeNote),
        1 => Just(Job::ApplyChanges),
    ];
    let step = prop_oneof![
        8 => user().prop_map(Step::Claim),
        8 => (user(), action).prop_map(|(user, action)| Step::Act(user, action)),
        1 => (1..=3_i64).prop_map(Step::Restock),
        1 => (1..=3_i64).prop_map(Step::RestockAndDie),
        8 => job.prop_map(Step::Job),
        2 => Just(Step::Compare),
    ];
    (1..=3_i64, prop::collection::vec(step, 1..=60))
}

impl State {
    /// The row in Postgres, if there is one.
    fn status(self) -> Option<&'static str> {
        match self {
            Self::Logged | Self::Held => None,
            Self::Unpaid => Some("unpaid"),
            Self::Paid => Some("paid"),
            Self::Cancelled => Some("cancelled"),
        }
    }

    fn is_live(self) -> bool {
        matches!(self, Self::Unpaid | Self::Paid)
    }

    fn is_closed(self) -> bool {
        self == Self::Cancelled
    }

    /// The answer to an action, and the next status.
    fn after(self, action: Action) -> (u16, Self) {
        match (self, action) {
            (Self::Logged | Self::Held, _) => (404, self),
            (Self::Unpaid, Action::Pay) => (200, Self::Paid),
            (Self::Unpaid, Action::Cancel) => (200, Self::Cancelled),
            // The move has happened before.
            (Self::Paid, Action::Pay) | (Self::Cancelled, Action::Cancel) => (200, self),
            _ => (409, self),
        }
    }
}

impl Model {
    fn new(total: i64) -> Self {
        let keys = Vec::new();
        let orders = BTreeMap::new();
        let buyers = BTreeMap::new();
        Self { total, total_in_redis: total, keys, orders, buyers }
    }

    fn stock(&self) -> i64 {
        self.total_in_redis - i64::try_from(self.buyers.len()).expect("a few")
    }

    fn last_order(&self, of: i64) -> Option<i64> {
        self.orders.iter().rev().find(|(_, (user, _))| *user == of).map(|(order, _)| *order)
    }

    /// Moves all orders in one of these states to `to`.
    fn all(&mut self, from: &[State], to: State) {
        let orders = self.orders.values_mut().filter(|(_, state)| from.contains(state));
        orders.for_each(|(_, state)| *state = to);
    }

    fn release(&mut self) {
        let orders = &self.orders;
        self.buyers.retain(|_, order| !orders[order].1.is_closed());
    }

    fn restock(&mut self, key: i64) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
            self.total += key;
        }
    }

    /// Rows in Postgres: order, user, status.
    fn rows(&self) -> Vec<(i64, i64, String)> {
        let row = |(order, (user, state)): (&i64, &(i64, State))| {
            Some((*order, *user, state.status()?.to_owned()))
        };
        self.orders.iter().filter_map(row).collect()
    }
}

async fn carry_out(
    step: Step,
    model: &mut Model,
    app: &TestApp,
    coupon: CouponId,
) -> TestCaseResult {
    match step {
        Step::Claim(who) => claim(who, model, app, coupon).await?,
        Step::Act(who, action) => {
            let Some(order) = model.last_order(who) else { return Ok(()) };
            let (status, next) = model.orders[&order].1.after(action);
            let reply = match action {
                Action::Pay => app.pay(who, order).await,
                Action::Cancel => app.cancel(who, order).await,
            };
            prop_assert_eq!(reply.status, status, "{:?}", reply);
            model.orders.insert(order, (who, next));
        }
        Step::Restock(key) => {
            let reply = app.restock(coupon, key, &key.to_string()).await;
            prop_assert_eq!(reply.status, 200, "{:?}", reply);
            model.restock(key);
            model.total_in_redis = model.total;
        }
        Step::RestockAndDie(key) => {
            let restock = Restock { units: key, key: key.to_string() };
            app.decide(coupon, Change::Restock(restock)).await.expect("it may");
            model.restock(key);
        }
        Step::Job(job) => run(job, model, app, coupon).await,
        Step::Compare => compare(model, app, coupon).await?,
    }
    Ok(())
}

async fn claim(who: i64, model: &mut Model, app: &TestApp, coupon: CouponId) -> TestCaseResult {
    let outcome = app.app.claims.claim(coupon, user(who)).await.expect("Redis answers");
    match (outcome, model.buyers.get(&who)) {
        (ClaimOutcome::AlreadyClaimed(order), Some(first)) => prop_assert_eq!(order.get(), *first),
        (ClaimOutcome::SoldOut, None) => prop_assert_eq!(model.stock(), 0),
        (ClaimOutcome::Accepted(order), None) => {
            prop_assert!(model.stock() > 0, "one too many");
            let before = model.orders.insert(order.get(), (who, State::Logged));
            prop_assert!(before.is_none(), "order {} twice", order);
            model.buyers.insert(who, order.get());
        }
        (outcome, first) => prop_assert!(false, "{:?} for a buyer by {:?}", outcome, first),
    }
    Ok(())
}

async fn run(job: Job, model: &mut Model, app: &TestApp, coupon: CouponId) {
    match job {
        Job::Write => {
            app.write_orders().await;
            model.all(&[State::Logged, State::Held], State::Unpaid);
        }
        Job::WriteDiesBeforeCommit => {
            deliver(app).await;
            model.all(&[State::Logged], State::Held);
        }
        Job::WriteDiesAfterCommit => {
            let entries = deliver(app).await;
            let never = CancellationToken::new();
            app.app
                .orders
                .write((lane(), 1), Origin::Lane(None), &entries, &never)
                .await
                .expect("Postgres answers");
            model.all(&[State::Logged], State::Unpaid);
        }
        Job::Release => {
            app.release().await;
            model.release();
        }
        Job::ReleaseDiesBeforeNote => {
            app.release().await;
            let forget =
                format!("UPDATE stock_returns SET done_at = NULL WHERE coupon_id = {coupon}");
            app.execute(&forget).await;
            model.release();
        }
        Job::ApplyChanges => {
            app.changes_job().await;
            model.total_in_redis = model.total;
        }
    }
}

/// Reads the unread entries as a worker that dies then.
async fn deliver(app: &TestApp) -> Vec<LoggedClaim> {
    let stores = &app.app.stores;
    let log = OrderLog::new(stores.fleet.first().clone(), &stores.keys, lane());
    log.ensure_group().bounded().await.expect("Redis answers");
    claims_in(&log.read_new(1_000, Duration::ZERO).await.expect("Redis answers").entries)
}

/// Checks that both stores hold the model's state, and that a comparison finds no fault.
async fn compare(model: &Model, app: &TestApp, coupon: CouponId) -> TestCaseResult {
    let buyers = app.buyers(coupon).await;
    prop_assert_eq!(&buyers, &model.buyers, "buyers");
    prop_assert_eq!(app.stock(coupon).await, model.stock(), "stock");
    let rows = "SELECT id, user_id, status FROM orders WHERE coupon_id = $1 ORDER BY id";
    let rows: Vec<(i64, i64, String)> = sqlx::query_as(rows)
        .bind(coupon.get())
        .fetch_all(&app.app.stores.pool)
        .await
        .expect("rows");
    prop_assert_eq!(rows, model.rows(), "orders");
    let live = model.orders.values().filter(|(_, state)| state.is_live()).count();
    prop_assert_eq!(usize::try_from(app.sold(coupon).await), Ok(live), "sold");

    // A change that has waited for seconds is a finding, and a slow machine takes seconds for these steps.
    app.execute(&format!("UPDATE coupons SET updated_at = now() WHERE id = {coupon}")).await;
    let run = app.compared().await;
    prop_assert_eq!(run.disagreements, Some(0), "{:?}", run.findings);
    Ok(())
}

fn check(cases: u32) {
    // A process that remembers "sold out" hears of returned units a moment later.
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]);
    for_cases(cases, app, &steps(), async |app, _, (stock, steps)| {
        let coupon = app.create_flash(stock).await;
        let mut model = Model::new(stock);
        for step in steps {
            carry_out(step, &mut model, app, coupon).await?;
        }
        compare(&model, app, coupon).await?;
        for job in [Job::Write, Job::ApplyChanges, Job::Release] {
            run(job, &mut model, app, coupon).await;
        }
        compare(&model, app, coupon).await?;
        prop_assert_eq!(model.stock() + app.sold(coupon).await, model.total, "at rest");
        Ok(())
    });
}

#[test]
fn orders_and_units_do_what_the_model_does() {
    check(CASES);
}

#[test]
#[ignore = "long: make faults"]
fn orders_and_units_do_what_the_model_does_a_thousand_times() {
    check(CASES_LONG);
}
