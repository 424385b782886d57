//! `differences`: the facts about the sales of a lane that only one store has; and `close`: a recovery on an operator's word.

use flash_sale::sale::audit::Actor;
use flash_sale::sale::fence::table::Trust;
use flash_sale::sale::ids::Lane;
use flash_sale::sale::recovery::by_hand::{SaleDifference, close, differences};

use crate::support::{TestApp, lane};

#[tokio::test]
async fn differences_of_each_sale_are_counted_by_store() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (same, differs, lost) =
        (app.create_flash(9).await, app.create_flash(9).await, app.create_flash(9).await);
    for (coupon, users) in [(same, 1..=2), (differs, 1..=5), (lost, 1..=3)] {
        for user in users {
            app.order(user, coupon).await;
        }
    }
    for user in 1..=2 {
        app.forget_buyer(differs, user).await;
    }
    // Of users without an order, and of one with another order.
    for user in [5, 6, 7, 8] {
        app.set_buyer(differs, user, 77 + user).await;
    }
    app.lose_sale(lost).await;
    let mut found = differences(&app.app.stores, lane()).await.expect("both stores answer");
    found.sort_by_key(|one| one.coupon);
    let difference = |coupon, is_there, only_redis, only_postgres| SaleDifference {
        coupon,
        is_there,
        only_redis,
        only_postgres,
    };
    let mut expected = [
        difference(same, true, 0, 0),
        difference(differs, true, 4, 3),
        difference(lost, false, 0, 3),
    ];
    expected.sort_by_key(|one| one.coupon);
    assert_eq!(found, expected);
}

#[tokio::test]
async fn close_raises_the_epoch_above_both_stores_and_enters_it_in_the_book() {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    let by = Actor::command_line();
    let lanes: Vec<Lane> = Lane::all(4).collect();
    let _: i64 = app.redis(&["HSET", &app.keys().lane(lanes[1]), "epoch", "9"]).await;
    let _: i64 = app.redis(&["DEL", &app.keys().lane(lanes[2])]).await;
    // The last one has never been begun.
    let trusted = [Trust::Redis, Trust::Postgres, Trust::Redis, Trust::Redis];
    for (lane, trusts) in lanes.iter().zip(trusted) {
        close(&app.app.stores, *lane, trusts, &by).await.expect("both stores answer");
    }
    let closed =
        "SELECT concat_ws(' ', lane, epoch, state, trusts, reason) FROM lanes ORDER BY lane";
    let expected = ["0 2 recovering redis", "1 10 recovering postgres", "2 2 recovering redis"];
    let expected = expected.map(|lane| format!("{lane} an operator asked for it"));
    assert_eq!(app.texts(closed).await, expected);
    let book = "SELECT concat_ws(' ', before->>'lane', before->>'epoch', before->>'state', after->>'epoch', after->>'state',
                                 after->>'trusts')
                FROM audit WHERE action = 'recover_lane' ORDER BY id";
    let expected = [
        "0 1 open 2 recovering redis",
        "1 1 open 10 recovering postgres",
        "2 1 open 2 recovering redis",
    ];
    assert_eq!(app.texts(book).await, expected);
}
