//! Each class of SQLSTATE, raised for real by a trigger, on each path that writes: poison or patience.
//!
//! A class about the data (22, 23) says that the *item* is at fault: the item is put aside, and the others go on.
//! Each other class says that Postgres can't write now, or that the program or a migration is wrong: no item is put
//! aside, and each is written as soon as Postgres accepts it.

use std::time::Duration;

use flash_sale::sale::coupon::model::CouponState;
use flash_sale::sale::ids::CouponId;
use flash_sale::worker::PassError;
use serde_json::{Value, json};

use crate::coupon::load::only_in_postgres;
use crate::support::process::pending;
use crate::support::{Bounded, Reply, SECRET, TestApp, lane, write_all};

/// Consequence of a refusal for the item at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Poison,
    Patience,
}
use Meaning::{Patience, Poison};

/// Every class with which Postgres can answer a write, and the codes in them with a meaning of their own.
const STATES: [(&str, Meaning); 36] = [
    ("08000", Patience), // connection exception
    ("08006", Patience), // connection failure
    ("0A000", Patience), // feature not supported
    ("21000", Patience), // cardinality violation: a wrong query
    ("22000", Poison),   // data exception
    ("22001", Poison),   // string too long
    ("22003", Poison),   // number out of range
    ("22P02", Poison),   // not a value of the type
    ("22P05", Poison),   // not a character of the encoding
    ("23001", Poison),   // restrict violation
    ("23502", Poison),   // not null
    ("23503", Poison),   // foreign key
    ("23505", Poison),   // unique
    ("23514", Poison),   // check
    ("25006", Patience), // read-only: a fail-over
    ("25P02", Patience), // the transaction has failed before
    ("25P03", Patience), // idle in its transaction for too long
    ("28000", Patience), // not authorised
    ("40001", Patience), // serialisation failure
    ("40P01", Patience), // deadlock
    ("42501", Patience), // no privilege
    ("42703", Patience), // no such column: a migration is missing
    ("42P01", Patience), // no such table
    ("53100", Patience), // disk full
    ("53200", Patience), // out of memory
    ("53300", Patience), // too many connections
    ("54000", Patience), // a limit of the program
    ("54001", Patience), // statement too complex
    ("55000", Patience), // not in the required state
    ("55P03", Patience), // lock not available
    ("57014", Patience), // cancelled: the time of a statement is over
    ("57P01", Patience), // shut down by an administrator
    ("57P03", Patience), // starting up
    ("58030", Patience), // the disk fails
    ("P0001", Patience), // raised by a function of the database
    ("XX000", Patience), // internal error
];

/// One code of each class, where each path takes a while to set up.
const CLASSES: [&str; 14] = [
    "08006", "22003", "23505", "23514", "25006", "40001", "42P01", "53100", "54001", "55P03",
    "57014", "57P01", "58030", "XX001",
];

fn meaning_of(state: &str) -> Meaning {
    if ["22", "23"].contains(&&state[..2]) { Poison } else { Patience }
}

#[test]
fn the_tables_agree() {
    for (state, meaning) in STATES {
        assert_eq!(meaning, meaning_of(state), "{state}");
    }
    for class in ["08", "22", "23", "25", "40", "42", "53", "54", "55", "57", "58", "XX"] {
        let is_of = |state: &str| state.starts_with(class);
        assert!(STATES.iter().any(|(state, _)| is_of(state)), "{class}");
        assert!(CLASSES.iter().any(|state| is_of(state)), "{class}");
    }
}

async fn count(app: &TestApp, table: &str, coupon: CouponId) -> i64 {
    app.number(&format!("SELECT count(*) FROM {table} WHERE coupon_id = {coupon}")).await
}

// ---- the worker ----

/// Three claims of each of two sales in one batch.
#[tokio::test]
async fn a_batch_of_the_worker() {
    let app = TestApp::start().await;
    for (state, meaning) in STATES {
        // The write that is refused, and how many of the six are poison then.
        for (write, table, when, culprits) in [
            ("INSERT", "orders", "NEW.user_id = 2 AND NEW.coupon_id = {bad}", 1),
            ("UPDATE", "flash_sales", "NEW.coupon_id = {bad}", 3),
        ] {
            let bad = app.create_flash(3).await;
            let good = app.create_flash(3).await;
            // A worker that hasn't failed yet takes all six in one batch.
            let mut worker = app.worker(lane());
            worker.ensure_group().bounded().await.expect("Redis answers");
            for user in 1..=3 {
                for coupon in [bad, good] {
                    assert_eq!(app.claim(user, coupon).await.status, 202);
                }
            }
            let case = format!("{state} on {table}");
            app.refuse(write, table, &when.replace("{bad}", &bad.to_string()), state).await;
            match meaning {
                Poison => {
                    let report = write_all(&mut worker).await;
                    let expected = (6 - culprits, culprits);
                    assert_eq!((report.inserted, report.dead_letters), expected, "{case}");
                    assert_eq!(count(&app, "orders", good).await, 3, "{case}");
                }
                Patience => {
                    let failed = worker.write_pass().bounded().await;
                    assert!(matches!(failed, Err(PassError::Postgres(_))), "{case}: {failed:?}");
                    assert_eq!(pending(&app).await, 6, "{case}: nothing is acknowledged");
                    assert_eq!(count(&app, "dead_letters", bad).await, 0, "{case}");
                    app.accept(table).await;
                    let report = write_all(&mut worker).await;
                    assert_eq!((report.inserted, report.dead_letters), (6, 0), "{case}");
                }
            }
            if meaning == Poison {
                app.accept(table).await;
            }
            assert_eq!(pending(&app).await, 0, "{case}");
        }
    }
}

/// An entry that can't be put aside stays in the log, whatever Postgres says: no other place has it.
#[tokio::test]
async fn the_insert_of_a_dead_letter() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(1_000).await;
    let mut worker = app.worker(lane());
    worker.ensure_group().bounded().await.expect("Redis answers");
    for (n, (state, _)) in (1..).zip(STATES) {
        app.append(lane(), &["junk", "junk"]).await;
        assert_eq!(app.claim(n, coupon).await.status, 202);
        app.refuse("INSERT", "dead_letters", "true", state).await;
        for _ in 0..2 {
            let failed = worker.write_pass().bounded().await;
            assert!(matches!(failed, Err(PassError::Postgres(_))), "{state}: {failed:?}");
        }
        assert!(pending(&app).await >= 1, "{state}: it isn't acknowledged");
        app.accept("dead_letters").await;
        let report = write_all(&mut worker).await;
        assert_eq!(report.dead_letters, 1, "{state}");
        assert_eq!((pending(&app).await, count(&app, "orders", coupon).await), (0, n), "{state}");
    }
}

// ---- the passes that postpone ----

/// Two sales, one of which a pass can't write about.
struct Case {
    bad: CouponId,
    good: CouponId,
    /// The order of the bad sale.
    order: i64,
}

/// A pass, and one of its writes for each item.
#[derive(Clone, Copy, Debug)]
enum Run {
    Expiry,
    Refunds,
    StockReturns,
    Places,
    Changes,
    Revisions,
    Load,
    Archive,
}

/// The pass, its name in `postponed`, and the refused write. `{bad}` is the coupon, `{order}` its order.
const WRITES: [(Run, &str, &str, &str, &str); 17] = [
    (Run::Expiry, "expiry", "UPDATE", "orders", "NEW.id = {order}"),
    (Run::Expiry, "expiry", "INSERT", "stock_returns", "NEW.order_id = {order}"),
    (Run::Expiry, "expiry", "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    (Run::Refunds, "refunds", "UPDATE", "payments", "NEW.order_id = {order}"),
    (Run::Refunds, "refunds", "UPDATE", "orders", "NEW.id = {order}"),
    (Run::Refunds, "refunds", "INSERT", "stock_returns", "NEW.order_id = {order}"),
    (Run::Refunds, "refunds", "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    (Run::StockReturns, "stock_returns", "UPDATE", "stock_returns", "NEW.order_id = {order}"),
    (Run::Places, "places", "UPDATE", "stock_returns", "NEW.order_id = {order}"),
    (Run::Changes, "changes", "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    // The pass finds the revision again every ten seconds, so no item is put aside.
    (Run::Revisions, "", "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    (Run::Load, "warm_up", "UPDATE", "flash_sales", "NEW.coupon_id = {bad}"),
    (Run::Archive, "archive", "UPDATE", "coupons", "NEW.id = {bad}"),
    (
        Run::Archive,
        "archive",
        "UPDATE",
        "flash_sales",
        "NEW.coupon_id = {bad} AND NEW.archived_at > coalesce(OLD.archived_at, '-infinity')",
    ),
    (
        Run::Archive,
        "archive",
        "UPDATE",
        "flash_sales",
        "NEW.coupon_id = {bad} AND NEW.removed_at IS NOT NULL",
    ),
    (Run::Expiry, "expiry", "INSERT OR UPDATE", "stock_returns", "NEW.coupon_id = {bad}"),
    (
        Run::Refunds,
        "refunds",
        "UPDATE",
        "flash_sales",
        "NEW.coupon_id = {bad} AND NEW.sold < OLD.sold",
    ),
];

impl Run {
    /// Makes an item for each of two sales, the bad one first.
    async fn prepare(self, app: &TestApp) -> Case {
        let mut sales = [(app.create_flash(9).await, 0), (app.create_flash(9).await, 0)];
        for (coupon, order) in &mut sales {
            match self {
                Self::Expiry => {
                    *order = app.order(1, *coupon).await;
                    app.let_time_pass_for(*order).await;
                }
                Self::Refunds => {
                    *order = app.paid_order(1, *coupon).await;
                    assert_eq!(app.act(1, *order, "refund").await.status, 200);
                }
                Self::StockReturns => {
                    *order = app.order(1, *coupon).await;
                    assert_eq!(app.cancel(1, *order).await.status, 200);
                }
                Self::Places => *order = app.paid_order(1, *coupon).await,
                Self::Changes => app.decide_on(*coupon, CouponState::Paused).await,
                Self::Revisions => {
                    app.changes_pass().await;
                    let key = app.keys().coupon(*coupon);
                    let _: i64 = app.redis(&["HSET", &key, "revision", "0"]).await;
                }
                Self::Load => *coupon = only_in_postgres(app, 3).await,
                Self::Archive => {
                    app.changes_pass().await;
                    app.execute(&format!(
                        "UPDATE flash_sales SET closes_at = now() - interval '1 s', opens_at = now() - interval '2 s'
                         WHERE coupon_id = {coupon};
                         UPDATE coupons SET revision = revision + 1 WHERE id = {coupon}"
                    ))
                    .await;
                }
            }
        }
        if let Self::Revisions = self {
            // The sale can't be changed in Redis, and that has to be noted.
            let key = app.keys().coupon(sales[0].0);
            let _: i64 = app.redis(&["HSET", &key, "layout", "9"]).await;
        }
        Case { bad: sales[0].0, good: sales[1].0, order: sales[0].1 }
    }

    /// Runs the pass as often as its work needs. False if it fails.
    async fn run(self, app: &TestApp) -> bool {
        let app = &app.app;
        match self {
            Self::Expiry => app.expiry.pass().bounded().await.is_ok(),
            Self::Refunds => app.payments.refund_pass().bounded().await.is_ok(),
            Self::StockReturns | Self::Places => app.stock_returns.pass().bounded().await.is_ok(),
            Self::Changes => app.coupon_changes.pass().bounded().await.is_ok(),
            Self::Revisions => app.coupon_changes.catch_up().bounded().await.is_ok(),
            Self::Load => app.loader.pass(Duration::from_secs(3_600)).bounded().await.is_ok(),
            Self::Archive => {
                // Ends sales that are over; tells Redis; then archives and removes them.
                app.archive.pass().bounded().await.is_ok()
                    && app.coupon_changes.pass().bounded().await.is_ok()
                    && app.archive.pass().bounded().await.is_ok()
            }
        }
    }

    /// Whether the pass has dealt with this sale.
    async fn is_done(self, app: &TestApp, coupon: CouponId) -> bool {
        let holds = match self {
            Self::Expiry => "(SELECT status = 'expired' FROM orders WHERE coupon_id = {c})",
            Self::Refunds => "(SELECT status = 'refunded' FROM orders WHERE coupon_id = {c})",
            Self::StockReturns | Self::Places => {
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
        };
        let holds = holds.replace("{c}", &coupon.to_string());
        app.number(&format!("SELECT {holds}::int::bigint")).await == 1
    }
}

/// One write of a pass is refused for one of two items.
async fn refuse_a_pass((run, pass, write, table, when): (Run, &str, &str, &str, &str)) {
    let app =
        TestApp::configured(&["--archive-after-ms", "0", "--unpaid-orders-max", "1000"]).await;
    for state in CLASSES {
        let case = run.prepare(&app).await;
        let when = when.replace("{bad}", &case.bad.to_string());
        app.refuse(write, table, &when.replace("{order}", &case.order.to_string()), state).await;
        let name = format!("{state} on {write} {table} of {run:?}");
        let ran = run.run(&app).await;
        assert!(!run.is_done(&app, case.bad).await, "{name}: the refusal is real");
        let postponed: Vec<String> = app.postponed().await;
        match meaning_of(state) {
            Poison => {
                assert!(ran, "{name}: one item stops nothing");
                assert!(run.is_done(&app, case.good).await, "{name}: the other one is dealt with");
                let put_aside = usize::from(!pass.is_empty());
                assert_eq!(postponed.len(), put_aside, "{name}: {postponed:?}");
                assert!(
                    postponed.iter().all(|line| line.starts_with(pass)),
                    "{name}: {postponed:?}"
                );
            }
            Patience => {
                assert!(!ran, "{name}: the pass fails");
                assert_eq!(postponed, [""; 0], "{name}");
            }
        }
        app.accept(table).await;
        app.let_postponed_be_due().await;
        assert!(run.run(&app).await, "{name}");
        for coupon in [case.bad, case.good] {
            assert!(run.is_done(&app, coupon).await, "{name}: it is dealt with by now");
        }
        assert_eq!(app.postponed().await, [""; 0], "{name}");
        if let Run::Revisions = run {
            let key = app.keys().coupon(case.bad);
            let _: i64 = app.redis(&["HSET", &key, "layout", "2"]).await;
        }
        app.give_back().await;
    }
}

#[tokio::test]
async fn the_writes_of_expiry() {
    for row in WRITES.into_iter().filter(|row| row.1 == "expiry") {
        refuse_a_pass(row).await;
    }
}

#[tokio::test]
async fn the_writes_of_refunds() {
    for row in WRITES.into_iter().filter(|row| row.1 == "refunds") {
        refuse_a_pass(row).await;
    }
}

#[tokio::test]
async fn the_writes_of_units_and_places_that_come_back() {
    for row in WRITES.into_iter().filter(|row| ["stock_returns", "places"].contains(&row.1)) {
        refuse_a_pass(row).await;
    }
}

#[tokio::test]
async fn the_writes_of_changes_and_revisions() {
    for row in WRITES.into_iter().filter(|row| ["changes", ""].contains(&row.1)) {
        refuse_a_pass(row).await;
    }
}

#[tokio::test]
async fn the_writes_of_load_and_archive() {
    for row in WRITES.into_iter().filter(|row| ["warm_up", "archive"].contains(&row.1)) {
        refuse_a_pass(row).await;
    }
}

/// The note itself is refused: then the pass fails as a whole, and is run again.
#[tokio::test]
async fn the_note_of_what_is_postponed() {
    let app = TestApp::start().await;
    for state in CLASSES {
        let Case { bad, good, order } = Run::Expiry.prepare(&app).await;
        app.refuse("UPDATE", "orders", &format!("NEW.id = {order}"), "23514").await;
        app.refuse("INSERT", "postponed", "true", state).await;
        assert!(!Run::Expiry.run(&app).await, "{state}");
        assert_eq!(app.postponed().await, [""; 0], "{state}");
        app.accept("postponed").await;
        app.accept("orders").await;
        assert!(Run::Expiry.run(&app).await, "{state}");
        for coupon in [bad, good] {
            assert!(Run::Expiry.is_done(&app, coupon).await, "{state}");
        }
        app.give_back().await;
    }
}

// ---- requests of users and administrators ----

/// A request over HTTP, and one of its writes that is refused.
const ASKED: [(&str, &str, &str); 35] = [
    ("regular claim", "INSERT", "orders"),
    ("pay", "UPDATE", "orders"),
    ("pay", "INSERT", "payments"),
    ("pay", "INSERT", "redemptions"),
    ("pay", "INSERT", "stock_returns"),
    ("cancel", "UPDATE", "orders"),
    ("cancel", "INSERT", "stock_returns"),
    ("cancel", "UPDATE", "flash_sales"),
    ("refund", "UPDATE", "orders"),
    ("refund", "UPDATE", "payments"),
    ("redeem", "UPDATE", "orders"),
    ("redeem", "UPDATE", "redemptions"),
    ("redeem", "INSERT", "audit"),
    ("discard", "UPDATE", "dead_letters"),
    ("discard", "INSERT", "orders"),
    ("discard", "INSERT", "audit"),
    ("discard", "INSERT", "stock_returns"),
    ("pause", "UPDATE", "coupons"),
    ("end", "UPDATE", "coupons"),
    ("edit", "UPDATE", "coupons"),
    ("edit", "UPDATE", "flash_sales"),
    ("edit", "INSERT", "audit"),
    ("pause", "INSERT", "audit"),
    ("restock", "UPDATE", "coupons"),
    ("restock", "UPDATE", "flash_sales"),
    ("restock", "INSERT", "restocks"),
    ("create", "INSERT", "coupons"),
    ("create", "INSERT", "flash_sales"),
    ("create", "INSERT", "audit"),
    ("confirm", "INSERT", "payments"),
    ("confirm", "UPDATE", "orders"),
    ("archive", "UPDATE", "flash_sales"),
    ("archive", "INSERT", "orders"),
    ("archive", "INSERT", "audit"),
    ("archive", "UPDATE", "dead_letters"),
];

/// The things that a request names.
struct Asked {
    regular: CouponId,
    flash: CouponId,
    /// Its sale has ended, with a unit that hasn't come back and a dead letter.
    ended: CouponId,
    unpaid: i64,
    paid: i64,
    letter: String,
}

impl Asked {
    async fn prepare(app: &TestApp) -> Self {
        let regular = app.create_regular().await;
        let flash = app.create_flash(9).await;
        let unpaid = app.order(1, flash).await;
        let paid = app.paid_order(2, flash).await;
        let ended = app.create_flash(9).await;
        let order = app.order(1, ended).await;
        assert_eq!(app.cancel(1, order).await.status, 200);
        app.changes_pass().await;
        Self::oversell(app, ended, 0).await;
        Self::oversell(app, flash, 2).await;
        assert_eq!(app.r#move(ended, "end").await.status, 200);
        let letters = app.get("/v1/dead-letters", &app.admin_token()).await;
        let letter = letters.body["dead_letters"][0]["id"].as_str().expect("an id").to_owned();
        Self { regular, flash, ended, unpaid, paid, letter }
    }

    /// Makes a dead letter of user 3's claim; `sold` units are sold.
    async fn oversell(app: &TestApp, coupon: CouponId, sold: i64) {
        app.execute(&format!("UPDATE flash_sales SET sold = total WHERE coupon_id = {coupon}"))
            .await;
        assert_eq!(app.claim(3, coupon).await.status, 202);
        assert_eq!(app.write_orders().await.dead_letters, 1);
        app.execute(&format!("UPDATE flash_sales SET sold = {sold} WHERE coupon_id = {coupon}"))
            .await;
    }

    async fn ask(&self, app: &TestApp, what: &str) -> Reply {
        let admin = app.admin_token();
        let sale = json!({"total": 9, "opens_at": "2030-01-01T00:00:00Z", "closes_at": "2031-01-01T00:00:00Z"});
        let coupon =
            json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale});
        let larger: Value = json!({"title": "new", "sale": {"total": 10}});
        match what {
            "regular claim" => app.claim(1, self.regular).await,
            "pay" => app.pay(1, self.unpaid).await,
            "cancel" => app.cancel(1, self.unpaid).await,
            "refund" => app.act(2, self.paid, "refund").await,
            "redeem" => app.redeem(self.paid).await,
            "discard" => {
                let path = format!("/v1/dead-letters/{}/discard", self.letter);
                let request = app.client().post(app.url.clone() + &path).bearer_auth(admin);
                app.send(request, "POST", &path).await
            }
            "edit" => app.edit(self.flash, &larger).await,
            "restock" => app.restock(self.flash, 1, "key").await,
            "create" => app.post("/v1/coupons", &admin, &coupon).await,
            "confirm" => {
                let notice = json!({"kind": "payment", "payment_id": "g", "order_id": self.unpaid.to_string(),
                                    "method": 2, "amount_cents": 1});
                app.confirm(&notice).await
            }
            "archive" => {
                let path = format!("/v1/coupons/{}/archive", self.ended);
                app.post(&path, &admin, &json!({"accept_loss": true})).await
            }
            verb => app.r#move(self.flash, verb).await,
        }
    }
}

#[tokio::test]
async fn what_is_asked_over_http() {
    for (what, write, table) in ASKED {
        let settings = ["--unpaid-orders-max", "9", "--payment-callback-secret", SECRET];
        let app = TestApp::configured(&settings).await;
        let asked = Asked::prepare(&app).await;
        let before = app.tables().await;
        for state in CLASSES {
            let case = format!("{what}: {state} on {write} {table}");
            app.refuse(write, table, "true", state).await;
            let refused = asked.ask(&app, what).await;
            assert_eq!(refused.refusal(), (503, "unavailable"), "{case}");
            assert_eq!(app.changed_since(&before).await, [""; 0], "{case}: nothing has changed");
            app.accept(table).await;
        }
        let done = asked.ask(&app, what).await;
        assert!((200..300).contains(&done.status), "{what}: {done:?}");
        assert_ne!(app.changed_since(&before).await, [""; 0], "{what}: it wasn't for nothing");
        app.give_back().await;
    }
}

#[tokio::test]
async fn a_retry_of_a_postponed_item() {
    let app = TestApp::start().await;
    app.execute("INSERT INTO postponed (pass, item, error, tries, next_try_at) VALUES ('expiry', '1', 'e', 1, 'infinity')").await;
    let id = app.number("SELECT id FROM postponed").await;
    let path = format!("/v1/postponed/{id}/retry");
    let ask = async || app.post(&path, &app.admin_token(), &Value::Null).await;
    let waiting = "SELECT count(*) FROM postponed WHERE next_try_at = 'infinity'";
    for state in CLASSES {
        app.refuse("UPDATE", "postponed", "true", state).await;
        assert_eq!(ask().await.refusal(), (503, "unavailable"), "{state}");
        assert_eq!(app.number(waiting).await, 1, "{state}: nothing has changed");
        app.accept("postponed").await;
    }
    assert_eq!(ask().await.status, 204);
    assert_eq!(app.number(waiting).await, 0);
}
