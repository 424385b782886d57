//! Coupons as shoppers read them, kept for a fifth of a second.

use flash_sale::app::App;
use flash_sale::base::limits;
use flash_sale::coupon::input::CouponEdit;
use flash_sale::coupon::rules::Change;
use flash_sale::store::audit::Actor;
use flash_sale::store::ids::CouponId;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::TestApp;

/// The coupon as this process shows it.
async fn shown(process: &App, coupon: CouponId) -> Value {
    let shown = process.coupons.cache.show(coupon).await.expect("both stores answer");
    serde_json::from_slice(&shown.expect("it is there").body).expect("it is JSON")
}

#[tokio::test]
async fn the_units_left_are_those_of_200_ms_ago_at_most() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    for shown in join_all((0..200).map(|_| shown(&app.app, coupon))).await {
        assert_eq!(shown["sale"]["left"], json!(5));
    }
    assert_eq!(app.claim(1, coupon).await.status, 202);
    sleep(limits::LEFT_SHOWN_MAX).await;
    assert_eq!(shown(&app.app, coupon).await["sale"]["left"], json!(4));
    app.write_orders().await;
}

#[tokio::test]
async fn the_process_that_makes_a_change_shows_it_at_once_and_the_others_within_200_ms() {
    let app = TestApp::start().await;
    let other = app.another_instance().await;
    let coupon = app.create_flash(5).await;
    for process in [&app.app, &other] {
        assert_ne!(shown(process, coupon).await["title"], "new");
    }
    let edit = CouponEdit { title: Some("new".to_owned()), ..CouponEdit::default() };
    let by = Actor::command_line();
    let changed = app.app.coupon_changes.change(coupon, Change::Edit(edit), &by).await;
    changed.expect("both stores answer");
    assert_eq!(shown(&app.app, coupon).await["title"], "new");
    sleep(limits::LEFT_SHOWN_MAX).await;
    assert_eq!(shown(&other, coupon).await["title"], "new");
}
