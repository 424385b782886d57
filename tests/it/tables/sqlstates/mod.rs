//! Each class of SQLSTATE, raised for real by a trigger, on each path that writes: poison or patience.
//!
//! A class about the data (22, 23) says that the *item* is at fault: the item is put aside, and the others go on.
//! Each other class says that Postgres can't write now, or that the program or a migration is wrong: no item is put
//! aside, and each is written as soon as Postgres accepts it.

// Passes that put single items aside.
mod passes;

// Passes that fail as a whole, and the list of all passes.
mod records;

// Requests of users and administrators.
mod requests;

// Writes with consequences of their own: the end of a job, and letters that are tried again or wait.
mod steps;

// Recoveries of lanes, sales that are built anew, and receipts.
mod lanes;

// The erasure of a user.
mod persons;

use std::collections::BTreeSet;

use flash_sale::sale::ids::CouponId;
use flash_sale::worker::PassError;

use crate::support::process::pending;
use crate::support::{Bounded, Reply, TestApp, lane, write_all};

/// Consequence of a refusal for the item at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Poison,
    Patience,
}
use Meaning::{Patience, Poison};

/// Every class with which Postgres can answer a write, and the codes in them with a meaning of their own.
const STATES: [(&str, Meaning); 42] = [
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
    ("26000", Patience), // no such statement: a pooler has mixed sessions up
    ("28000", Patience), // not authorised
    ("2D000", Patience), // a transaction ends where it may not
    ("34000", Patience), // no such cursor
    ("3D000", Patience), // no such database
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
    ("F0000", Patience), // a configuration file is wrong
    ("HV000", Patience), // a foreign table fails
    ("P0001", Patience), // raised by a function of the database
    ("XX000", Patience), // internal error
];

/// One code of each class, where each path takes a while to set up.
pub const CLASSES: [&str; 24] = [
    "08006", "0A000", "21000", "22003", "23505", "23514", "25006", "26000", "28000", "2D000",
    "34000", "3D000", "40001", "42P01", "53100", "54001", "55P03", "57014", "57P01", "58030",
    "F0000", "HV000", "P0001", "XX001",
];

fn meaning_of(state: &str) -> Meaning {
    if ["22", "23"].contains(&&state[..2]) { Poison } else { Patience }
}

/// The codes among [`CLASSES`] with this meaning.
fn classes(meaning: Meaning) -> impl Iterator<Item = &'static str> {
    CLASSES.into_iter().filter(move |state| meaning_of(state) == meaning)
}

#[test]
fn the_tables_agree() {
    for (state, meaning) in STATES {
        assert_eq!(meaning, meaning_of(state), "{state}");
    }
    let classes_of = |states: &[&'static str]| -> BTreeSet<&str> {
        states.iter().map(|state| &state[..2]).collect()
    };
    assert_eq!(classes_of(&STATES.map(|(state, _)| state)), classes_of(&CLASSES));
    // Those that `src/sale/failure.rs` tells apart.
    assert_eq!(classes_of(&CLASSES).len(), 22);
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

// ---- dead letters ----

/// Makes a dead letter of a user's claim, because all units count as sold for a while; `sold` are counted afterwards.
/// Returns the order that it promises.
async fn oversell(app: &TestApp, user: i64, coupon: CouponId, sold: i64) -> i64 {
    app.execute(&format!("UPDATE flash_sales SET sold = total WHERE coupon_id = {coupon}")).await;
    let claimed = app.claim(user, coupon).await;
    assert_eq!(claimed.status, 202);
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute(&format!("UPDATE flash_sales SET sold = {sold} WHERE coupon_id = {coupon}")).await;
    claimed.order_id()
}

/// An administrator discards or retries the dead letter of this order.
async fn decide(app: &TestApp, order: i64, verb: &str) -> Reply {
    let letter = app.number(&format!("SELECT id FROM dead_letters WHERE order_id = {order}")).await;
    let path = format!("/v1/dead-letters/{letter}/{verb}");
    let request = app.client().post(app.url.clone() + &path).bearer_auth(app.admin_token());
    app.send(request, "POST", &path).await
}
