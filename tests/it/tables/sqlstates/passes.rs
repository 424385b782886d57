//! Passes that put single items aside: one of two items can't be written.

use std::time::Duration;

use flash_sale::sale::audit::Actor;
use flash_sale::sale::coupon::model::CouponState;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::order::cancellations::Asked;
use flash_sale::sale::pass::Pass;
use sample_gateway::{Faults, Sample};
use serde_json::json;

use super::{Patience, Poison, classes, decide, oversell};
use crate::coupon::load::only_in_postgres;
use crate::payment::gateway;
use crate::support::{Bounded, SECRET, TestApp};

/// The service, and the gateway of a pass that asks one.
struct Shop {
    app: TestApp,
    gateway: Option<Sample>,
}

/// Two sales, one of which a pass can't write about.
struct Case {
    bad: CouponId,
    good: CouponId,
    /// The order of the bad sale.
    order: i64,
    /// Its payment; 0 if there is none.
    payment: i64,
}

/// A pass with work of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Expiry,
    Cancellations,
    Refunds,
    /// Money for an order that was not written yet.
    Held,
    /// A payment of which only the gateway knows that it is paid.
    Openings,
    /// One that its payer hasn't paid yet.
    OpenThere,
    /// One that the gateway has closed.
    ClosedThere,
    StockReturns,
    /// The unit of a discarded dead letter.
    Withdrawals,
    Places,
    Changes,
    Revisions,
    Load,
    Archive,
    History,
    /// The mark that is raised to the newest of the orders that move: the bad one is the newest.
    Mark,
}

/// The work, the pass under whose name an item is put aside, and the refused write. `{bad}` is the coupon, `{order}`
/// its order, `{payment}` the order's payment.
pub(super) type Write = (Run, Pass, &'static str, &'static str, &'static str);

pub(super) const WRITES: [Write; 49] = [
    (Run::Expiry, Pass::Expiry, "UPDATE", "orders", "NEW.id = {order}"),
    (Run::Expiry, Pass::Expiry, "INSERT", "stock_returns", "NEW.order_id = {order}"),
    (Run::Expiry, Pass::Expiry, "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    (Run::Expiry, Pass::Expiry, "INSERT OR UPDATE", "stock_returns", "NEW.coupon_id = {bad}"),
    (Run::Cancellations, Pass::Cancellations, "UPDATE", "orders", "NEW.id = {order}"),
    (Run::Cancellations, Pass::Cancellations, "INSERT", "stock_returns", "NEW.order_id = {order}"),
    (Run::Cancellations, Pass::Cancellations, "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    (Run::Cancellations, Pass::Cancellations, "UPDATE", "jobs", "NEW.coupon_id = {bad}"),
    (Run::Refunds, Pass::Refunds, "UPDATE", "payments", "NEW.order_id = {order}"),
    (Run::Refunds, Pass::Refunds, "UPDATE", "orders", "NEW.id = {order}"),
    (Run::Refunds, Pass::Refunds, "INSERT", "stock_returns", "NEW.order_id = {order}"),
    (Run::Refunds, Pass::Refunds, "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    (
        Run::Refunds,
        Pass::Refunds,
        "UPDATE",
        "flash_sales",
        "NEW.coupon_id = {bad} AND NEW.sold < OLD.sold",
    ),
    (Run::Held, Pass::Refunds, "UPDATE", "payments", "NEW.order_id = {order}"),
    (Run::Held, Pass::Refunds, "DELETE", "held_payments", "OLD.payment_id = {payment}"),
    (Run::Held, Pass::Refunds, "UPDATE", "orders", "NEW.id = {order}"),
    (Run::Held, Pass::Refunds, "INSERT", "redemptions", "NEW.order_id = {order}"),
    (Run::Held, Pass::Refunds, "INSERT", "stock_returns", "NEW.order_id = {order}"),
    (Run::Openings, Pass::Openings, "INSERT", "payments", "NEW.order_id = {order}"),
    (Run::Openings, Pass::Openings, "UPDATE", "orders", "NEW.id = {order}"),
    (Run::Openings, Pass::Openings, "INSERT", "redemptions", "NEW.order_id = {order}"),
    (Run::Openings, Pass::Openings, "INSERT", "stock_returns", "NEW.order_id = {order}"),
    (
        Run::Openings,
        Pass::Openings,
        "UPDATE",
        "opened_payments",
        "NEW.order_id = {order} AND NEW.closed_at IS NOT NULL",
    ),
    (Run::Openings, Pass::Openings, "UPDATE", "opened_payments", EACH_CHANGE),
    (
        Run::OpenThere,
        Pass::Openings,
        "UPDATE",
        "opened_payments",
        "NEW.order_id = {order} AND NEW.looks > OLD.looks",
    ),
    (Run::OpenThere, Pass::Openings, "UPDATE", "opened_payments", EACH_CHANGE),
    (
        Run::ClosedThere,
        Pass::Openings,
        "UPDATE",
        "opened_payments",
        "NEW.order_id = {order} AND NEW.number > OLD.number",
    ),
    (Run::ClosedThere, Pass::Openings, "UPDATE", "opened_payments", EACH_CHANGE),
    (Run::StockReturns, Pass::StockReturns, "UPDATE", "stock_returns", "NEW.order_id = {order}"),
    (Run::Withdrawals, Pass::Withdrawals, "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    // The letter is dealt with by then, and its row is closed with those of other orders.
    (Run::Withdrawals, Pass::StockReturns, "UPDATE", "stock_returns", "NEW.order_id = {order}"),
    (Run::Places, Pass::Places, "UPDATE", "stock_returns", "NEW.order_id = {order}"),
    (Run::Changes, Pass::Changes, "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    // The pass finds the revision again every ten seconds, so no item is put aside.
    (Run::Revisions, Pass::Revisions, "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    (Run::Load, Pass::Load, "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    (Run::Archive, Pass::Archive, "UPDATE", "coupons", "NEW.id = {bad}"),
    (
        Run::Archive,
        Pass::Archive,
        "UPDATE",
        "flash_sales",
        "NEW.coupon_id = {bad} AND NEW.archived_at > coalesce(OLD.archived_at, '-infinity')",
    ),
    (
        Run::Archive,
        Pass::Archive,
        "UPDATE",
        "flash_sales",
        "NEW.coupon_id = {bad} AND NEW.removed_at IS NOT NULL",
    ),
    (Run::History, Pass::History, "DELETE", "orders", "OLD.id = {order}"),
    (Run::History, Pass::History, "INSERT", "order_history", "NEW.id = {order}"),
    (Run::History, Pass::History, "INSERT", "moved_order_counts", "NEW.coupon_id = {bad}"),
    (Run::History, Pass::History, "DELETE", "stock_returns", "OLD.order_id = {order}"),
    (Run::History, Pass::History, "INSERT", "stock_return_history", "NEW.order_id = {order}"),
    (Run::History, Pass::History, "UPDATE", "orders", "NEW.id = {order}"),
    (Run::History, Pass::History, "DELETE", "redemptions", "OLD.order_id = {order}"),
    (Run::History, Pass::History, "INSERT", "redemption_history", "NEW.order_id = {order}"),
    (Run::History, Pass::History, "DELETE", "payments", "OLD.order_id = {order}"),
    (Run::History, Pass::History, "INSERT", "payment_history", "NEW.order_id = {order}"),
    (Run::Mark, Pass::History, "UPDATE", "settings", "NEW.orders_moved_to = {order}"),
];

/// Whatever the pass changes about an opened payment. The test itself makes it due now.
const EACH_CHANGE: &str = "NEW.order_id = {order} AND NEW.next_look_at <> now()";

impl Run {
    async fn shop(self) -> Shop {
        const ROOM: [&str; 2] = ["--unpaid-orders-max", "1000"];
        if let Self::Openings | Self::OpenThere | Self::ClosedThere = self {
            let silent = Faults { confirms_nothing: true, ..Faults::default() };
            let (app, gateway) = gateway::shop_with(&ROOM, silent).await;
            return Shop { app, gateway: Some(gateway) };
        }
        let more = ["--archive-after-ms", "0", "--payment-callback-secret", SECRET];
        Shop { app: TestApp::configured(&[&ROOM[..], &more].concat()).await, gateway: None }
    }

    /// Makes an item for each of two sales, the bad one first.
    async fn prepare(self, shop: &Shop) -> Case {
        let app = &shop.app;
        let (mut first, mut second) = (self.item(shop).await, self.item(shop).await);
        if let Self::Mark = self {
            (first, second) = (second, first);
        }
        let ((bad, order), (good, _)) = (first, second);
        if let Self::Revisions = self {
            // The sale can't be changed in Redis, and that has to be noted.
            let _: i64 = app.redis(&["HSET", &app.keys().coupon(bad), "layout", "9"]).await;
        }
        let payment = format!("SELECT coalesce(max(id), 0) FROM payments WHERE order_id = {order}");
        Case { bad, good, order, payment: app.number(&payment).await }
    }

    /// Makes a coupon with an item. Returns it with its order, if the item has one.
    async fn item(self, Shop { app, gateway }: &Shop) -> (CouponId, i64) {
        let coupon = match self {
            Self::Load => only_in_postgres(app, 3).await,
            Self::History | Self::Mark => app.create_regular().await,
            _ => app.create_flash(9).await,
        };
        let order = match self {
            Self::Expiry => {
                let order = app.order(1, coupon).await;
                app.let_time_pass_for(order).await;
                order
            }
            Self::Cancellations => {
                let order = app.order(1, coupon).await;
                let (jobs, by) = (&app.app.cancellations, Actor::command_line());
                let job = jobs.ask(coupon, "k", "wrong price", &by).bounded().await;
                assert!(matches!(job, Ok(Asked::Job(_))), "{job:?}");
                order
            }
            Self::Refunds => {
                let order = app.paid_order(1, coupon).await;
                assert_eq!(app.act(1, order, "refund").await.status, 200);
                order
            }
            Self::Held => paid_too_early(app, coupon).await,
            Self::Openings | Self::OpenThere | Self::ClosedThere => {
                let order = app.order(1, coupon).await;
                let payment = gateway::open(app, 1, order).await;
                let gateway = gateway.as_ref().expect("a gateway");
                match self {
                    Self::Openings => gateway.pay(&payment),
                    Self::ClosedThere => gateway.close(&payment),
                    _ => {}
                }
                order
            }
            Self::StockReturns => {
                let order = app.order(1, coupon).await;
                assert_eq!(app.cancel(1, order).await.status, 200);
                order
            }
            Self::Withdrawals => {
                let order = oversell(app, 1, coupon, 0).await;
                assert_eq!(decide(app, order, "discard").await.status, 204);
                order
            }
            Self::Places => app.paid_order(1, coupon).await,
            Self::History | Self::Mark => over(app, coupon).await,
            Self::Changes | Self::Revisions | Self::Load | Self::Archive => {
                self.change(app, coupon).await;
                0
            }
        };
        (coupon, order)
    }

    /// Makes a sale ready for a pass over sales.
    async fn change(self, app: &TestApp, coupon: CouponId) {
        match self {
            Self::Changes => app.decide_on(coupon, CouponState::Paused).await,
            Self::Revisions => {
                app.changes_pass().await;
                let key = app.keys().coupon(coupon);
                let _: i64 = app.redis(&["HSET", &key, "revision", "0"]).await;
            }
            Self::Archive => {
                app.changes_pass().await;
                app.execute(&format!(
                    "UPDATE flash_sales SET closes_at = now() - interval '1 s', opens_at = now() - interval '2 s'
                     WHERE coupon_id = {coupon};
                     UPDATE coupons SET revision = revision + 1 WHERE id = {coupon}"
                ))
                .await;
            }
            _ => {}
        }
    }

    /// Runs the pass as often as its work needs. False if it fails.
    async fn run(self, app: &TestApp) -> bool {
        match self {
            Self::Held => app.execute("UPDATE held_payments SET next_look_at = now()").await,
            Self::Openings | Self::OpenThere | Self::ClosedThere => {
                app.execute("UPDATE opened_payments SET next_look_at = now()").await;
            }
            _ => {}
        }
        let app = &app.app;
        match self {
            Self::Expiry => app.expiry.pass().bounded().await.is_ok(),
            Self::Cancellations => app.cancellations.pass().bounded().await.is_ok(),
            Self::Refunds | Self::Held | Self::Openings | Self::OpenThere | Self::ClosedThere => {
                app.payments.refund_pass().bounded().await.is_ok()
            }
            Self::StockReturns | Self::Withdrawals | Self::Places => {
                app.stock_returns.pass().bounded().await.is_ok()
            }
            Self::Changes => app.coupon_changes.pass().bounded().await.is_ok(),
            Self::Revisions => app.coupon_changes.catch_up().bounded().await.is_ok(),
            Self::Load => app.loader.pass(Duration::from_secs(3_600)).bounded().await.is_ok(),
            Self::Archive => {
                // Ends sales that are over; tells Redis; then archives and removes them.
                app.archive.pass().bounded().await.is_ok()
                    && app.coupon_changes.pass().bounded().await.is_ok()
                    && app.archive.pass().bounded().await.is_ok()
            }
            Self::History | Self::Mark => app.history.pass().bounded().await.is_ok(),
        }
    }

    /// True once the pass has dealt with this sale.
    async fn is_done(self, app: &TestApp, coupon: CouponId) -> bool {
        let holds = match self {
            Self::Expiry => "(SELECT status = 'expired' FROM orders WHERE coupon_id = {c})",
            Self::Cancellations => {
                "(SELECT status = 'cancelled' FROM orders WHERE coupon_id = {c})"
            }
            Self::Refunds => "(SELECT status = 'refunded' FROM orders WHERE coupon_id = {c})",
            Self::Held => "(SELECT status = 'paid' FROM orders WHERE coupon_id = {c})",
            Self::Openings => {
                "(SELECT status = 'paid' AND closed_at IS NOT NULL FROM orders
                  JOIN opened_payments ON orders.id = order_id WHERE coupon_id = {c})"
            }
            Self::OpenThere => {
                "(SELECT looks > 0 FROM orders JOIN opened_payments ON orders.id = order_id WHERE coupon_id = {c})"
            }
            Self::ClosedThere => {
                "(SELECT number = 2 AND closed_at IS NOT NULL FROM orders
                  JOIN opened_payments ON orders.id = order_id WHERE coupon_id = {c})"
            }
            Self::StockReturns | Self::Withdrawals | Self::Places => {
                "(SELECT done_at IS NOT NULL FROM stock_returns WHERE coupon_id = {c})"
            }
            // Either noted as behind, or brought up to date.
            Self::Revisions if app.in_redis(coupon, ["revision"]).await == ["1"] => "true",
            Self::Revisions => {
                "(SELECT applied_revision = 0 FROM flash_sales WHERE coupon_id = {c})"
            }
            Self::Changes => {
                "(SELECT applied_revision = revision FROM flash_sales JOIN coupons ON id = coupon_id WHERE id = {c})"
            }
            Self::Load => "(SELECT loaded_at IS NOT NULL FROM flash_sales WHERE coupon_id = {c})",
            Self::Archive => {
                "(SELECT removed_at IS NOT NULL FROM flash_sales WHERE coupon_id = {c})"
            }
            Self::History | Self::Mark => {
                "(SELECT count(*) = 1 FROM order_history WHERE coupon_id = {c})"
            }
        };
        let holds = holds.replace("{c}", &coupon.to_string());
        app.number(&format!("SELECT {holds}::int::bigint")).await == 1
    }
}

/// An order whose money was taken before it was written. Returns its id.
async fn paid_too_early(app: &TestApp, coupon: CouponId) -> i64 {
    let claimed = app.claim(1, coupon).await;
    let order = claimed.order_id();
    let notice = json!({"kind": "payment", "payment_id": format!("early-{order}"), "order_id": order.to_string(),
                        "method": 2, "amount_cents": 1});
    assert_eq!(app.confirm(&notice).await.text("outcome"), "held");
    assert_eq!(app.write_orders().await.inserted, 1);
    order
}

/// An order of a regular coupon that has been over for long, with a return that is done, a redemption and a payment.
/// Returns its id.
async fn over(app: &TestApp, coupon: CouponId) -> i64 {
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at, updated_at)
         VALUES ({coupon}, {coupon}, 'regular', 1, now(), 'cancelled', now(), now() - interval '1 year');
         INSERT INTO stock_returns (order_id, what, coupon_id, user_id, done_at)
         VALUES ({coupon}, 'place', {coupon}, 1, now());
         INSERT INTO redemptions (order_id) VALUES ({coupon});
         INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason,
                               refunded_at, updated_at)
         VALUES ({coupon}, 'external', '{coupon}', 'alipay', 1, 'refunded', 'too_late', now(), now() - interval '1 year')"
    ))
    .await;
    coupon.get()
}

/// One write of a pass is refused for one of two items.
async fn refuse_a_pass((run, pass, write, table, when): Write) {
    let shop = run.shop().await;
    let app = &shop.app;
    let refuse = async |case: &Case, state| {
        let when = when.replace("{bad}", &case.bad.to_string());
        let when = when.replace("{order}", &case.order.to_string());
        app.refuse(write, table, &when.replace("{payment}", &case.payment.to_string()), state)
            .await;
    };
    let name = |state| format!("{state} on {write} {table} of {run:?}");
    let case = run.prepare(&shop).await;
    // No session keeps a whole table here, so a lock that is waited for in vain is one of the item's rows.
    let postpones = pass.postpones().is_some() && !matches!(run, Run::History | Run::Mark);
    let is_of_item = |state: &&str| *state == "55P03" && postpones;
    for state in classes(Patience).filter(|state| !is_of_item(state)) {
        let name = name(state);
        refuse(&case, state).await;
        assert!(!run.run(app).await, "{name}: the pass fails");
        assert!(!run.is_done(app, case.bad).await, "{name}: the refusal is real");
        assert_eq!(app.postponed().await, [""; 0], "{name}");
        app.accept(table).await;
    }
    all_is_done((run, pass, write, table, when), app, &case).await;
    for state in classes(Poison).chain(classes(Patience).filter(is_of_item)) {
        let case = run.prepare(&shop).await;
        let name = name(state);
        refuse(&case, state).await;
        assert!(run.run(app).await, "{name}: one item stops nothing");
        assert!(!run.is_done(app, case.bad).await, "{name}: the refusal is real");
        assert!(run.is_done(app, case.good).await, "{name}: the other one is dealt with");
        let postponed = app.postponed().await;
        let put_aside = usize::from(pass.postpones().is_some());
        assert_eq!(postponed.len(), put_aside, "{name}: {postponed:?}");
        let of_pass = |line: &String| line.starts_with(pass.name());
        assert!(postponed.iter().all(of_pass), "{name}: {postponed:?}");
        app.accept(table).await;
        app.let_postponed_be_due().await;
        all_is_done((run, pass, write, table, when), app, &case).await;
    }
    if let Some(gateway) = shop.gateway {
        gateway.stop().await;
    }
}

/// Once Postgres accepts the write again, the next run deals with the item.
async fn all_is_done((run, _, write, table, _): Write, app: &TestApp, case: &Case) {
    let name = format!("{write} {table} of {run:?}");
    assert!(run.run(app).await, "{name}");
    for coupon in [case.bad, case.good] {
        assert!(run.is_done(app, coupon).await, "{name}: it is dealt with by now");
    }
    assert_eq!(app.postponed().await, [""; 0], "{name}");
    if let Run::Revisions = run {
        let key = app.keys().coupon(case.bad);
        let _: i64 = app.redis(&["HSET", &key, "layout", "2"]).await;
    }
    app.give_back().await;
}

async fn refuse_the_writes_of(runs: &[Run]) {
    for row in WRITES.into_iter().filter(|row| runs.contains(&row.0)) {
        refuse_a_pass(row).await;
    }
}

#[tokio::test]
async fn the_writes_of_expiry() {
    refuse_the_writes_of(&[Run::Expiry]).await;
}

#[tokio::test]
async fn the_writes_of_jobs_that_cancel() {
    refuse_the_writes_of(&[Run::Cancellations]).await;
}

#[tokio::test]
async fn the_writes_of_refunds() {
    refuse_the_writes_of(&[Run::Refunds]).await;
}

#[tokio::test]
async fn the_writes_of_held_payments() {
    refuse_the_writes_of(&[Run::Held]).await;
}

#[tokio::test]
async fn the_writes_of_looks_at_opened_payments() {
    refuse_the_writes_of(&[Run::Openings, Run::OpenThere, Run::ClosedThere]).await;
}

#[tokio::test]
async fn the_writes_of_units_and_places_that_come_back() {
    refuse_the_writes_of(&[Run::StockReturns, Run::Places]).await;
}

#[tokio::test]
async fn the_writes_of_withdrawals() {
    refuse_the_writes_of(&[Run::Withdrawals]).await;
}

#[tokio::test]
async fn the_writes_of_changes_and_revisions() {
    refuse_the_writes_of(&[Run::Changes, Run::Revisions]).await;
}

#[tokio::test]
async fn the_writes_of_load_and_archive() {
    refuse_the_writes_of(&[Run::Load, Run::Archive]).await;
}

#[tokio::test]
async fn the_writes_of_moves_into_the_history() {
    refuse_the_writes_of(&[Run::History, Run::Mark]).await;
}

/// The note itself is refused: then the pass fails as a whole, and is run again.
#[tokio::test]
async fn the_note_of_what_is_postponed() {
    let shop = Run::Expiry.shop().await;
    let app = &shop.app;
    let Case { bad, good, order, .. } = Run::Expiry.prepare(&shop).await;
    app.refuse("UPDATE", "orders", &format!("NEW.id = {order}"), "23514").await;
    for state in super::CLASSES {
        app.refuse("INSERT", "postponed", "true", state).await;
        assert!(!Run::Expiry.run(app).await, "{state}");
        assert_eq!(app.postponed().await, [""; 0], "{state}");
        assert!(!Run::Expiry.is_done(app, bad).await, "{state}");
        app.accept("postponed").await;
    }
    app.accept("orders").await;
    assert!(Run::Expiry.run(app).await);
    for coupon in [bad, good] {
        assert!(Run::Expiry.is_done(app, coupon).await);
    }
    app.give_back().await;
}
