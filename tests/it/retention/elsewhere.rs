//! `unpaid` and `places`: what Redis has of a user; and `erase`, when an order comes back from the history meanwhile.

use flash_sale::kit::{id, postgres};
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::{Lane, OrderId};
use flash_sale::sale::order::history::moved;
use flash_sale::sale::person::erase::{Erasure, erase};
use flash_sale::sale::person::export::export;
use flash_sale::sale::retention::months::{self, Month};
use serde_json::json;

use crate::support::{TestApp, now, user};

#[tokio::test]
async fn unpaid_orders_in_redis_are_exported_lane_by_lane_and_places_sale_by_sale() {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    for (lane, buyer, orders) in
        [(0, "7", "12 345"), (2, "7", "6"), (1, "8", "99"), (2, "77", "98"), (0, "70", "97")]
    {
        let key = app.keys().unpaid(Lane::numbered(lane));
        let _: i64 = app.redis(&["HSET", &key, buyer, orders]).await;
    }
    let mut sales = Vec::new();
    for order in [501, 502, 503] {
        let coupon = app.create_flash(5).await;
        app.set_buyer(coupon, 7, order).await;
        app.set_buyer(coupon, 8, order + 100).await;
        sales.push(coupon);
    }
    // By what Postgres has noted, Redis has lost the second one with its removal.
    app.execute(&format!(
        "UPDATE flash_sales SET archived_at = now(), removed_at = now() WHERE coupon_id = {}",
        sales[1]
    ))
    .await;
    let export = export(&app.app.stores, user(7)).await.expect("both stores answer");
    let export = serde_json::to_value(export).expect("JSON");
    assert_eq!(
        export["unpaid_in_redis"],
        json!([{"lane": 0, "order_ids": ["12", "345"]}, {"lane": 2, "order_ids": ["6"]}])
    );
    let mut places = [(sales[0].to_string(), "501"), (sales[2].to_string(), "503")];
    places.sort_unstable();
    let mut found: Vec<_> = export["places_in_redis"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|place| {
            (place["coupon_id"].as_str().unwrap().to_owned(), place["order_id"].as_str().unwrap())
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, places);
}

/// The transaction that brings the order back ends while the erasure waits for it.
#[tokio::test]
async fn erase_is_refused_when_an_order_has_come_back_from_the_history() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let pool = &app.app.stores.pool;
    let month = Month::of(now()).back(2);
    months::make(pool, month).await.expect("Postgres answers");
    let order = id::first_at(month.begins()) + 7;
    app.execute(&format!(
        "INSERT INTO order_history (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at, created_at, updated_at,
                                    pay_cents, currency)
             VALUES ({order}, 1, 'regular', 7, '{}', 'cancelled', now(), now(), now(), 1, 'CNY');
         INSERT INTO moved_order_counts VALUES (1, 'cancelled', 1)",
        month.begins()
    ))
    .await;
    let mut back = postgres::begin(pool).await.expect("Postgres answers");
    let of_history = OrderId::new(order).expect("an id");
    assert!(moved::recall(&mut back, of_history).await.expect("Postgres answers"));
    let by = Actor::command_line();
    let meanwhile = async {
        app.a_session_waits_for_a_row().await;
        back.commit().await.expect("Postgres answers");
    };
    let (refused, ()) = tokio::join!(erase(&app.app.stores, user(7), &by), meanwhile);
    let Ok(Erasure::Refused(words)) = &refused else { panic!("{refused:?}") };
    assert_eq!(words.len(), 1);
    assert!(words[0].contains("has just come back from the history"), "{words:?}");
    let buyers = "SELECT user_id FROM orders";
    assert_eq!(app.numbers(buyers).await, [7], "nothing is erased");
    let erased = erase(&app.app.stores, user(7), &by).await;
    let Ok(Erasure::Done(erased)) = &erased else { panic!("{erased:?}") };
    assert_eq!((erased.orders, app.numbers(buyers).await), (1, vec![-order]));
}
