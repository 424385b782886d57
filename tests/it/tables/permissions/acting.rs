//! Acting operations by state: a guard that none is left out of the tables by state.

use std::collections::BTreeSet;

use super::answers::{Call, Row};
use super::{operators, orders, payments, regular, sales, unpaid};
use crate::support::TestApp;

/// A table by state, and the request behind each of its actions.
type Table = (&'static [Row], fn(&str) -> Call);

const TABLES: &[Table] = &[
    (orders::ANSWERS, orders::call),
    (payments::ANSWERS, payments::call),
    (sales::FLASH, sales::call),
    (regular::REGULAR, sales::call),
    (unpaid::OF_COUPONS, unpaid::call),
    (operators::OF_LETTERS, |action| operators::call("dead-letters", action)),
    (operators::OF_ALL_LETTERS, |action| operators::call("dead-letters", action)),
    (operators::OF_ITEMS, |action| operators::call("postponed", action)),
    (operators::OF_RUNS, |action| operators::call("reconcile/runs", action)),
    (operators::OF_RECOVERIES, |action| operators::call("recoveries", action)),
];

/// Acting operations that are in no table by state, each with the reason.
const WITHOUT_STATE: [(&str, &str, &str); 1] =
    [("post", "/v1/coupons", "no coupon is there before it that could have a state")];

/// An action that is only refused for the role is no row about states.
#[tokio::test]
async fn each_acting_operation_is_in_a_table_by_state_or_has_a_reason_not_to_be() {
    let app = TestApp::start().await;
    let document = app.get("/openapi.json", "").await.body;
    let paths = document["paths"].as_object().expect("a document has paths");
    let mut documented = BTreeSet::new();
    for (path, item) in paths {
        for method in ["post", "put", "patch", "delete"] {
            if item.get(method).is_some() {
                documented.insert((method, path.clone()));
            }
        }
    }
    let mut tabled = BTreeSet::new();
    for (rows, call) in TABLES {
        let taken = rows.iter().filter(|(_, answers)| answers.iter().any(|it| it.0 < "300"));
        tabled
            .extend(taken.map(|(action, _)| call(action)).map(|(method, path, _)| (method, path)));
    }
    tabled.retain(|(method, _)| *method != "get");
    for (method, path, reason) in WITHOUT_STATE {
        assert!(
            tabled.insert((method, path.to_owned())),
            "{path} is in a table, against: {reason}"
        );
    }
    assert_eq!(tabled, documented, "left: the tables by state; right: the document");
}
