//! Coupons with a sale by state: the answers to users and administrators.

use chrono::TimeDelta;
use flash_sale::sale::ids::CouponId;
use serde_json::{Value, json};

use super::answers::{Call, Row, Thing, ask, compare, in_review};
use super::{MISSING, OTHER, OWNER};
use crate::support::{Reply, TestApp, now};

/// Each sale has sold one unit, to a buyer who has paid. `early` opens in an hour, `closed` is past its window but has not
/// been ended. Four have ended: `unsettled` has an unpaid order, `lettered` an open dead letter, and `in_flight` an accepted claim in the
/// order log, which stands last because any write pass ends that.
const STATES: &[&str] = &[
    "on_sale",
    "sold_out",
    "early",
    "closed",
    "paused",
    "ended",
    "unsettled",
    "lettered",
    "archived",
    "none",
    "in_flight",
];

pub const FLASH: &[Row] = &[
    (
        "show",
        &[
            ("200 active, unchanged", "on_sale sold_out early closed"),
            ("200 paused, unchanged", "paused"),
            ("200 ended, unchanged", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "claim",
        &[
            ("202 pending", "on_sale"),
            ("410 sold_out", "sold_out"),
            ("409 sale_not_started", "early"),
            ("409 sale_paused", "paused"),
            ("410 sale_ended", "closed ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "claim, by the buyer",
        &[
            (
                "409 already_claimed",
                "on_sale sold_out early closed paused ended unsettled lettered archived in_flight",
            ),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "claims/me",
        &[
            (
                "404 not_claimed",
                "on_sale sold_out early closed paused ended unsettled lettered archived in_flight",
            ),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "claims/me, by the buyer",
        &[
            ("200 paid, unchanged", "on_sale sold_out early closed paused ended archived"),
            ("200 unpaid, unchanged", "unsettled"),
            ("200 in_review, unchanged", "lettered"),
            ("200 pending, unchanged", "in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit to other words",
        &[
            ("200 active", "on_sale sold_out early closed"),
            ("200 paused", "paused"),
            ("409 coupon_ended", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit to the same words",
        &[
            ("200 active, unchanged", "on_sale sold_out early closed"),
            ("200 paused, unchanged", "paused"),
            ("200 ended, unchanged", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit another revision",
        &[
            ("409 revision_conflict", "on_sale sold_out early closed paused"),
            ("409 coupon_ended", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit to more units",
        &[
            ("200 active", "on_sale sold_out early closed"),
            ("200 paused", "paused"),
            ("409 coupon_ended", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit to fewer units",
        &[
            ("409 stock_only_grows", "on_sale sold_out early closed paused"),
            ("409 coupon_ended", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit to no window",
        &[
            ("422 invalid_body", "on_sale sold_out early closed paused"),
            ("409 coupon_ended", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "pause",
        &[
            ("200 paused", "on_sale sold_out early closed"),
            ("200 paused, unchanged", "paused"),
            ("409 invalid_transition", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "resume",
        &[
            ("200 active, unchanged", "on_sale sold_out early closed"),
            ("200 active", "paused"),
            ("409 invalid_transition", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "end",
        &[
            ("200 ended", "on_sale sold_out early closed paused"),
            ("200 ended, unchanged", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "restock",
        &[
            ("200 active", "on_sale sold_out early closed"),
            ("200 paused", "paused"),
            ("409 coupon_ended", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "restock by too many",
        &[
            ("409 stock_too_large", "on_sale sold_out early closed paused"),
            ("409 coupon_ended", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    // The key that has added one unit to each of these before.
    (
        "restock as before",
        &[
            ("200 active, unchanged", "on_sale sold_out early closed"),
            ("200 paused, unchanged", "paused"),
            ("200 ended, unchanged", "ended unsettled lettered archived in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "restock by another number",
        &[
            (
                "409 restock_key_used",
                "on_sale sold_out early closed paused ended unsettled lettered archived in_flight",
            ),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "archive",
        &[
            ("409 sale_not_ended", "on_sale sold_out early closed paused"),
            ("200", "ended"),
            ("200, unchanged", "archived"),
            ("409 sale_not_settled", "unsettled lettered"),
            ("409 sale_in_flight", "in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "archive with the loss",
        &[
            ("409 sale_not_ended", "on_sale sold_out early closed paused"),
            ("200", "ended unsettled lettered"),
            ("200, unchanged", "archived"),
            ("409 sale_in_flight", "in_flight"),
            ("404 coupon_not_found", "none"),
        ],
    ),
];

#[tokio::test]
async fn each_action_on_a_sale_is_answered_by_its_state() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| sale(&app, state).await;
    let act = async |thing, action: &str| act(&app, thing, action).await;
    compare(&app, STATES, FLASH, bring_to, act).await;
}

/// A sale of two units or, if it is sold out, of one; then restocked by one.
async fn sale(app: &TestApp, state: &str) -> Thing {
    if state == "none" {
        return thing(CouponId::new(MISSING).expect("a positive number"));
    }
    let opens_at = now() - TimeDelta::hours(2);
    let closes_at = now() + TimeDelta::hours(2);
    let coupon = app.create_sale(1, opens_at, closes_at).await;
    assert_eq!(app.restock(coupon, 1, KEY).await.status, 200);
    if state == "sold_out" {
        app.paid_order(OTHER + 1, coupon).await;
    }
    match state {
        "unsettled" => drop(app.order(OWNER, coupon).await),
        "lettered" => drop(in_review(app, OWNER, coupon).await),
        "in_flight" => assert_eq!(app.claim(OWNER, coupon).await.status, 202),
        _ => drop(app.paid_order(OWNER, coupon).await),
    }
    let changed = match state {
        "early" => {
            edit(app, coupon, &json!({"sale": {"opens_at": now() + TimeDelta::hours(1)}})).await
        }
        "closed" => {
            app.let_window_end(coupon, TimeDelta::hours(1)).await;
            200
        }
        "paused" => app.r#move(coupon, "pause").await.status,
        "on_sale" | "sold_out" => 200,
        _ => app.r#move(coupon, "end").await.status,
    };
    assert_eq!(changed, 200, "{state}");
    if state == "archived" {
        assert_eq!(act(app, thing(coupon), "archive").await.status, 200);
    }
    thing(coupon)
}

async fn edit(app: &TestApp, coupon: CouponId, edit: &Value) -> u16 {
    app.edit(coupon, edit).await.status
}

/// A coupon.
pub fn thing(coupon: CouponId) -> Thing {
    Thing { id: coupon.get(), coupon: Some(coupon), order: None }
}

/// The key that has added a unit to each sale.
const KEY: &str = "before";

/// The request behind an action, each on the coupon itself.
pub fn call(action: &str) -> Call {
    let early = "2000-01-01T00:00:00Z";
    let (method, route, body) = match action {
        "show" => ("get", "", Value::Null),
        "claim" | "claim, by the buyer" => ("post", "/claims", Value::Null),
        "claims/me" | "claims/me, by the buyer" => ("get", "/claims/me", Value::Null),
        "edit to other words" => ("patch", "", json!({"title": "other words"})),
        "edit to the same words" => ("patch", "", json!({"title": "t"})),
        "edit another revision" => {
            ("patch", "", json!({"title": "other words", "revision": 1_000}))
        }
        "edit to more units" => ("patch", "", json!({"sale": {"total": 7}})),
        "edit to fewer units" => ("patch", "", json!({"sale": {"total": 1}})),
        "edit to no window" => ("patch", "", json!({"sale": {"closes_at": early}})),
        "restock" => ("post", "/restock", json!({"units": 1, "key": "now"})),
        "restock by too many" => ("post", "/restock", json!({"units": 100_000_000, "key": "now"})),
        "restock as before" => ("post", "/restock", json!({"units": 1, "key": KEY})),
        "restock by another number" => ("post", "/restock", json!({"units": 2, "key": KEY})),
        "archive" => ("post", "/archive", json!({"accept_loss": false})),
        "archive with the loss" => ("post", "/archive", json!({"accept_loss": true})),
        "pause" => ("post", "/pause", Value::Null),
        "resume" => ("post", "/resume", Value::Null),
        "end" => ("post", "/end", Value::Null),
        action => panic!("no action {action}"),
    };
    (method, format!("/v1/coupons/{{id}}{route}"), body)
}

pub async fn act(app: &TestApp, thing: Thing, action: &str) -> Reply {
    let token = match action {
        "show" => None,
        "claim" | "claims/me" => Some(app.token(OTHER)),
        "claim, by the buyer" | "claims/me, by the buyer" => Some(app.token(OWNER)),
        _ => Some(app.admin_token()),
    };
    ask(app, &thing, call(action), token.as_deref()).await
}
