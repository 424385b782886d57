//! A Redis that refuses one command for a while: nothing is taken for lost, and nothing is given up.

use flash_sale::sale::audit::Actor;

use super::{
    ADOPT, BY_HAND, close_lanes, damage, end_of, fate, no_process_keeps, pass_up_to_command,
    promise_in_redis, sold_to_two, write_letter,
};
use crate::faults::recovery::start;
use crate::support::played::{Play, Played, REFUSED};
use crate::support::{Bounded, TestApp, proxy_before};

#[tokio::test]
async fn harvest_builds_no_sale_whose_buyers_redis_does_not_tell_now() {
    let (_server, app) = start(&[]).await;
    let [sale] = sold_to_two::<1>(&app).await;
    promise_in_redis(&app, sale, 5, BY_HAND + 5).await;
    damage(&app, sale).await;
    close_lanes(&app).await;
    app.permit("-hscan").await;
    assert!(app.app.keeper.pass().bounded().await.is_err());
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 0);
    app.permit("+hscan").await;
    app.recover().await;
    assert_eq!(fate(&app, sale).await, "built 6 [1, 2, 5]");
    // Its claim came through no log.
    app.expect_disagreements();
}

#[tokio::test]
async fn are_buyers_takes_no_promise_for_lost_that_redis_does_not_tell_now() {
    let (_server, app) = start(&[]).await;
    let [sale] = sold_to_two::<1>(&app).await;
    app.execute(&format!(
        "INSERT INTO receipts (order_id, coupon_id, user_id) VALUES ({BY_HAND} + 5, {sale}, 5)"
    ))
    .await;
    app.permit("-hget").await;
    assert!(app.app.keeper.pass().bounded().await.is_err());
    app.permit("+hget").await;
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 1);
    assert_eq!(app.number("SELECT count(*) FROM receipts").await, 1);
    app.execute("DELETE FROM receipts").await;
}

#[tokio::test]
async fn retry_all_ends_where_redis_does_not_answer() {
    let (_server, app) = start(&[]).await;
    let [sale] = sold_to_two::<1>(&app).await;
    write_letter(&app, sale, (9, BY_HAND + 9), ("", "")).await;
    app.permit("-hget").await;
    assert!(app.app.retries.retry_all(None, &Actor::command_line()).bounded().await.is_err());
    app.permit("+hget").await;
    let retried = app.app.retries.retry_all(None, &Actor::command_line()).bounded().await;
    assert_eq!(retried.map(|summary| summary.orders).ok(), Some(1));
    assert!(app.buyers(sale).await.into_keys().eq([1, 2, 9]));
    app.expect_disagreements();
}

/// Redis does not tell of its shards whether the sale has buyers that Postgres does not know.
#[tokio::test]
async fn harvest_leaves_no_buyers_behind_of_shards_that_redis_does_not_tell_now() {
    let (_server, app) = start(&[]).await;
    let [sale] = sold_to_two::<1>(&app).await;
    promise_in_redis(&app, sale, 5, BY_HAND + 5).await;
    let lane = app.keys().lane(sale.lane());
    let _: i64 = app.redis(&["HDEL", &lane, "beat"]).await;
    close_lanes(&app).await;
    let proxy = proxy_before(&app, &ADOPT).await;
    let pass = pass_up_to_command(&app, &proxy).await;
    app.permit("-hget").await;
    assert!(end_of(pass, &proxy).await.is_err());
    app.permit("+hget").await;
    no_process_keeps(&app).await;
    app.recover().await;
    assert_eq!(fate(&app, sale).await, "built 6 [1, 2, 5]");
    app.expect_disagreements();
}

#[tokio::test]
async fn look_at_sales_closes_no_lane_of_a_sale_that_redis_does_not_tell_of_now() {
    let (_server, app) = start(&[]).await;
    let [sale] = sold_to_two::<1>(&app).await;
    app.app.lanes.suspect_sale(sale);
    app.permit("-hget").await;
    assert!(app.app.keeper.pass().bounded().await.is_err());
    app.permit("+hget").await;
    assert_eq!(app.number("SELECT count(*) FROM lanes WHERE state = 'open'").await, 1);
    assert_eq!(app.number("SELECT count(*) FROM recoveries").await, 0);
    assert_eq!(fate(&app, sale).await, "kept 7 [1, 2]");
}

/// One question after the other for the shards of a sale is refused, until a recovery has asked all of them.
#[tokio::test]
async fn recover_ends_with_each_refusal_to_tell_the_shards_of_a_sale() {
    let app = TestApp::start().await;
    let [sale] = sold_to_two::<1>(&app).await;
    let key = app.keys().coupon(sale);
    let played = Played::before(app.redis_url(), move |command| match command {
        [name, of, field] if name == "HGET" && *of == key && field == "shards" => Play::Given,
        _ => Play::Real,
    })
    .await;
    let other = played.process(&app).await;
    no_process_keeps(&app).await;
    for refused in 0.. {
        damage(&app, sale).await;
        close_lanes(&app).await;
        played.take_asked();
        (0..refused).for_each(|_| played.answer(""));
        played.answer(REFUSED);
        let ended = other.keeper.pass().bounded().await;
        played.forget_answers();
        let is_refused = played.take_asked().len() > refused;
        assert_eq!(ended.is_err(), is_refused, "{refused}: {ended:?}");
        if !is_refused {
            assert!(refused >= 3, "it was looked at, harvested and built");
            break;
        }
    }
    assert_eq!(fate(&app, sale).await, "built 7 [1, 2]");
}
