//! The life of orders against a model: random claims, moves, restocks, passes, and passes that die, on one sale at a
//! time. Both give the same answers and keep the same state, and after each case the stores agree.

use std::collections::{BTreeMap, BTreeSet};

use flash_sale::sale::audit::Actor;
use flash_sale::sale::claim::outcome::ClaimOutcome;
use flash_sale::sale::ids::{CouponId, OrderId};
use flash_sale::sale::order::model::OrderStatus::{
    self, Cancelled, Expired, Paid, Redeemed, Refunded, Refunding, Unpaid,
};
use flash_sale::sale::order::model::PayMethod;
use flash_sale::sale::order::moves::Moved;
use flash_sale::sale::order::moves::redeem::{Redeeming, Redemption};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::support::plans::for_all;
use crate::support::{TestApp, moved, user};

const STOCK: i64 = 3;

/// A step. Users move their latest order.
#[derive(Clone, Copy, Debug)]
enum Command {
    Claim(i64),
    Write,
    Pay(i64),
    Cancel(i64),
    Refund(i64),
    Redeem(i64),
    /// The time of every unpaid order is over, and the pass runs.
    Expire,
    /// The gateway is asked for all refunds.
    RefundPass,
    GiveBack,
    /// The pass dies before it can note the units that it has given back.
    GiveBackAndDie,
    /// The whole log is read once more.
    ReadAgain,
    /// Adds as many units as the key says; a repeat of a key adds nothing.
    Restock(i64),
}

/// Expected state of an order.
#[derive(Clone, Copy, Debug)]
struct Expected {
    user: i64,
    /// `None` until the order is written.
    status: Option<OrderStatus>,
    /// Whether the outbox has a unit of this order that is on its way back.
    coming_back: bool,
}

#[derive(Default)]
struct Model {
    orders: BTreeMap<OrderId, Expected>,
    /// The buyers in Redis, each with the order.
    buyers: BTreeMap<i64, OrderId>,
    /// Keys of the restocks.
    restocks: BTreeSet<i64>,
}

/// The answer to a move, without the order's details.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    There(OrderStatus),
    NotFound,
    Impossible(OrderStatus, OrderStatus),
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let users = || 1..=5_i64;
    let command = prop_oneof![
        6 => users().prop_map(Command::Claim),
        4 => Just(Command::Write),
        4 => users().prop_map(Command::Pay),
        3 => users().prop_map(Command::Cancel),
        3 => users().prop_map(Command::Refund),
        1 => users().prop_map(Command::Redeem),
        1 => Just(Command::Expire),
        3 => Just(Command::RefundPass),
        3 => Just(Command::GiveBack),
        2 => Just(Command::GiveBackAndDie),
        1 => Just(Command::ReadAgain),
        1 => (1..=3_i64).prop_map(Command::Restock),
    ];
    prop::collection::vec(command, 1..=50)
}

fn is_live(status: OrderStatus) -> bool {
    [Unpaid, Paid, Redeemed, Refunding].contains(&status)
}

impl Model {
    fn latest(&self, user: i64) -> Option<OrderId> {
        self.orders.iter().rev().find(|(_, order)| order.user == user).map(|(id, _)| *id)
    }

    /// Moves the order from `from` to `to`; in `also` the move has happened already.
    fn step(
        &mut self,
        order: OrderId,
        from: OrderStatus,
        to: OrderStatus,
        also: OrderStatus,
    ) -> Answer {
        let order = self.orders.get_mut(&order).expect("it was accepted");
        match order.status {
            None => Answer::NotFound,
            Some(status) if status == from => {
                order.status = Some(to);
                order.coming_back = !is_live(to);
                Answer::There(to)
            }
            Some(status) if status == to || status == also => Answer::There(status),
            Some(status) => Answer::Impossible(status, to),
        }
    }

    fn all(&mut self, from: Option<OrderStatus>, to: OrderStatus) {
        for order in self.orders.values_mut().filter(|order| order.status == from) {
            order.status = Some(to);
            order.coming_back = !is_live(to);
        }
    }

    fn give_back(&mut self) {
        for (id, order) in &mut self.orders {
            if order.coming_back && self.buyers.get(&order.user) == Some(id) {
                self.buyers.remove(&order.user);
            }
            order.coming_back = false;
        }
    }

    fn left(&self) -> i64 {
        let total = STOCK + self.restocks.iter().sum::<i64>();
        total - i64::try_from(self.buyers.len()).expect("a few")
    }
}

async fn carry_out(
    app: &TestApp,
    coupon: CouponId,
    command: Command,
    model: &mut Model,
) -> TestCaseResult {
    match command {
        Command::Claim(n) => claim(app, coupon, n, model).await?,
        Command::Pay(n) | Command::Cancel(n) | Command::Refund(n) | Command::Redeem(n) => {
            if let Some(order) = model.latest(n) {
                let (moved, expected) = step(app, n, order, command, model).await;
                prop_assert_eq!(moved, expected, "{:?}", command);
            }
        }
        Command::Write => {
            app.write_orders().await;
            model.all(None, Unpaid);
        }
        Command::Expire => {
            app.let_time_pass().await;
            app.expire().await;
            model.all(Some(Unpaid), Expired);
        }
        Command::RefundPass => {
            app.refund_payments().await;
            model.all(Some(Refunding), Refunded);
        }
        Command::GiveBack => {
            app.give_back().await;
            model.give_back();
        }
        Command::GiveBackAndDie => {
            app.give_back().await;
            model.give_back();
            let undo =
                format!("UPDATE stock_returns SET done_at = NULL WHERE coupon_id = {coupon}");
            app.execute(&undo).await;
            for order in model.orders.values_mut() {
                order.coming_back = order.status.is_some_and(|status| !is_live(status));
            }
        }
        Command::ReadAgain => {
            let log = app.log(coupon.lane());
            app.write_orders().await;
            model.all(None, Unpaid);
            let _: String = app.redis(&["XGROUP", "SETID", &log, "order-writers", "0"]).await;
            app.write_orders().await;
        }
        Command::Restock(units) => {
            let reply = app.restock(coupon, units, &units.to_string()).await;
            prop_assert_eq!(reply.status, 200, "{:?}", reply);
            model.restocks.insert(units);
        }
    }
    Ok(())
}

async fn claim(app: &TestApp, coupon: CouponId, n: i64, model: &mut Model) -> TestCaseResult {
    let outcome = app.app.claims.claim(coupon, user(n)).await.expect("Redis answers");
    match (outcome, model.buyers.get(&n)) {
        (ClaimOutcome::AlreadyClaimed(order), Some(expected)) => prop_assert_eq!(order, *expected),
        (ClaimOutcome::SoldOut, None) => prop_assert_eq!(model.left(), 0),
        (ClaimOutcome::Accepted(order), None) => {
            prop_assert!(model.left() > 0);
            model.buyers.insert(n, order);
            let expected = Expected { user: n, status: None, coming_back: false };
            prop_assert!(model.orders.insert(order, expected).is_none(), "an id is used once");
        }
        (outcome, expected) => prop_assert!(false, "{outcome:?}, but {expected:?} holds a unit"),
    }
    Ok(())
}

/// The answers of the service and of the model to a move.
async fn step(
    app: &TestApp,
    n: i64,
    order: OrderId,
    command: Command,
    model: &mut Model,
) -> (Answer, Answer) {
    let payments = &app.app.payments;
    let moves = &app.app.order_moves;
    let (moved, expected) = match command {
        Command::Pay(_) => (
            payments.pay(user(n), order, PayMethod::Balance, None).await.map(moved),
            model.step(order, Unpaid, Paid, Redeemed),
        ),
        Command::Cancel(_) => {
            (moves.cancel(user(n), order).await, model.step(order, Unpaid, Cancelled, Cancelled))
        }
        Command::Refund(_) => {
            (payments.refund(user(n), order).await, model.step(order, Paid, Refunding, Refunded))
        }
        _ => {
            // A repeat under its key is answered like the first request.
            let key = Some("model".to_owned());
            let request = Redemption { clerk: user(1), by: Actor::command_line(), key };
            let redeeming = moves.redeem(order, request).await.map(redeemed);
            (redeeming, model.step(order, Paid, Redeemed, Redeemed))
        }
    };
    let answer = match moved.expect("Postgres answers") {
        Moved::There(order) => Answer::There(order.status),
        Moved::NotFound => Answer::NotFound,
        Moved::Impossible { from, to } => Answer::Impossible(from, to),
        Moved::TooManyClosed(_) => panic!("no user closes so many"),
    };
    (answer, expected)
}

fn redeemed(redeeming: Redeeming) -> Moved {
    match redeeming {
        Redeeming::Redeemed(order) => Moved::There(Box::new(order)),
        Redeeming::NotFound => Moved::NotFound,
        Redeeming::Impossible(from) => Moved::Impossible { from, to: Redeemed },
        Redeeming::Before { .. } => panic!("{redeeming:?}"),
    }
}

/// Checks that both keep the same state.
async fn compare(app: &TestApp, coupon: CouponId, model: &Model) -> TestCaseResult {
    prop_assert_eq!(app.stock(coupon).await, model.left(), "stock");
    let buyers = app.buyers(coupon).await;
    let expected: BTreeMap<i64, i64> =
        model.buyers.iter().map(|(user, order)| (*user, order.get())).collect();
    prop_assert_eq!(buyers, expected, "buyers");
    let mut live = 0;
    for (id, expected) in &model.orders {
        let row = app.app.orders.get(user(expected.user), *id).await.expect("Postgres answers");
        prop_assert_eq!(row.map(|row| row.status), expected.status, "order {}", id);
        live += i64::from(expected.status.is_some_and(is_live));
    }
    prop_assert_eq!(app.sold(coupon).await, live, "sold");
    let named: Vec<String> =
        app.reconcile().await.disagreements.iter().map(ToString::to_string).collect();
    prop_assert!(named.is_empty(), "{named:?}");
    Ok(())
}

#[test]
fn orders_live_as_the_model_s_do() {
    let app = TestApp::configured(&["--sold-out-memory-ms", "0"]);
    for_all(app, &commands(), async |app, _, commands| {
        let coupon = app.create_flash(STOCK).await;
        let mut model = Model::default();
        for command in commands {
            carry_out(app, coupon, command, &mut model).await?;
        }
        compare(app, coupon, &model).await
    });
}
