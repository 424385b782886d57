//! Regular coupons by state: the answers to users and administrators.

use flash_sale::sale::ids::CouponId;

use super::answers::{Row, Thing, compare};
use super::sales::{act, thing};
use super::{MISSING, OWNER};
use crate::support::TestApp;

/// A regular coupon has an order of its buyer, unpaid but for `paid`.
const REGULAR_STATES: &[&str] = &["active", "paid", "paused", "ended", "none"];

pub const REGULAR: &[Row] = &[
    (
        "show",
        &[
            ("200 active, unchanged", "active paid"),
            ("200 paused, unchanged", "paused"),
            ("200 ended, unchanged", "ended"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "claim",
        &[
            ("201 unpaid", "active paid"),
            ("409 sale_paused", "paused"),
            ("410 sale_ended", "ended"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "claim, by the buyer",
        &[
            ("409 already_claimed", "active paused ended"),
            ("201 unpaid", "paid"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "claims/me",
        &[("404 not_claimed", "active paid paused ended"), ("404 coupon_not_found", "none")],
    ),
    (
        "claims/me, by the buyer",
        &[
            ("200 unpaid, unchanged", "active paused ended"),
            ("200 paid, unchanged", "paid"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit to other words",
        &[
            ("200 active", "active paid"),
            ("200 paused", "paused"),
            ("409 coupon_ended", "ended"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit to the same words",
        &[
            ("200 active, unchanged", "active paid"),
            ("200 paused, unchanged", "paused"),
            ("200 ended, unchanged", "ended"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit another revision",
        &[
            ("409 revision_conflict", "active paid paused"),
            ("409 coupon_ended", "ended"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "edit to more units",
        &[("409 no_sale", "active paid paused ended"), ("404 coupon_not_found", "none")],
    ),
    (
        "pause",
        &[
            ("200 paused", "active paid"),
            ("200 paused, unchanged", "paused"),
            ("409 invalid_transition", "ended"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "resume",
        &[
            ("200 active, unchanged", "active paid"),
            ("200 active", "paused"),
            ("409 invalid_transition", "ended"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    (
        "end",
        &[
            ("200 ended", "active paid paused"),
            ("200 ended, unchanged", "ended"),
            ("404 coupon_not_found", "none"),
        ],
    ),
    ("restock", &[("409 no_sale", "active paid paused ended"), ("404 coupon_not_found", "none")]),
    ("archive", &[("409 no_sale", "active paid paused ended"), ("404 coupon_not_found", "none")]),
    (
        "archive with the loss",
        &[("409 no_sale", "active paid paused ended"), ("404 coupon_not_found", "none")],
    ),
];

#[tokio::test]
async fn each_action_on_a_regular_coupon_is_answered_by_its_state() {
    let app = TestApp::start().await;
    let bring_to = async |state: &str| regular(&app, state).await;
    let act = async |thing, action: &str| act(&app, thing, action).await;
    compare(&app, REGULAR_STATES, REGULAR, bring_to, act).await;
}

async fn regular(app: &TestApp, state: &str) -> Thing {
    if state == "none" {
        return thing(CouponId::new(MISSING).expect("a positive number"));
    }
    let coupon = app.create_regular().await;
    match state {
        "paid" => drop(app.paid_order(OWNER, coupon).await),
        _ => drop(app.order(OWNER, coupon).await),
    }
    let moved = match state {
        "paused" => app.r#move(coupon, "pause").await.status,
        "ended" => app.r#move(coupon, "end").await.status,
        _ => 200,
    };
    assert_eq!(moved, 200, "{state}");
    thing(coupon)
}
