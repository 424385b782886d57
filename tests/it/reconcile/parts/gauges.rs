//! `gauges`: both stores' numbers about one sale beside another one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::CENSUS;
use crate::faults::recovery::start;
use crate::support::played::{OTHER_TYPE, Play, Played, REFUSED};
use crate::support::{Bounded, TestApp};

#[tokio::test]
async fn side_by_side_tells_the_numbers_of_its_own_sale() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let (first, second) = (app.create_flash(9).await, app.create_flash(7).await);
    for user in 1..=4 {
        assert_eq!(app.claim(user, first).await.status, 202);
    }
    app.write_orders().await;
    let order = "SELECT id FROM orders WHERE user_id = 1";
    assert_eq!(app.cancel(1, app.number(order).await).await.status, 200);
    // Three letters, of which one has become an order, and one is closed; and two claims in the log.
    app.execute(&format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
         SELECT 0, n || '-1', '{{}}', 'oversold', 'x', {first}, n, CASE n WHEN 3 THEN id ELSE n END, CASE n WHEN 2 THEN now() END
         FROM generate_series(1, 3) AS n, (SELECT id FROM orders WHERE user_id = 3) AS own;
         UPDATE coupons SET revision = 5 WHERE id = {first}"
    ))
    .await;
    for user in 8..=9 {
        assert_eq!(app.claim(user, second).await.status, 202);
    }
    let told = async |coupon| {
        app.app.numbers.progress(coupon).await.expect("both stores answer").expect("a sale")
    };
    let of_first = told(first).await;
    let postgres = &of_first.postgres;
    assert_eq!((postgres.total, postgres.sold, postgres.revision), (9, 3, 5));
    let orders = BTreeMap::from([("cancelled".to_owned(), 1), ("unpaid".to_owned(), 3)]);
    assert_eq!((postgres.claims, &postgres.orders), (6, &orders));
    assert_eq!((postgres.dead_letters_open, postgres.stock_returns_open), (1, 1));
    let redis = of_first.redis.as_ref().expect("it is there");
    assert_eq!((redis.total, redis.left, redis.buyers, redis.conserved), (Some(9), 5, 4, true));
    assert_eq!(
        (redis.state.as_deref(), redis.revision, redis.epoch),
        (Some("active"), Some(1), Some(1))
    );
    assert_eq!((of_first.log.unread, of_first.log.pending), (2, 0));

    let of_second = told(second).await;
    let postgres = &of_second.postgres;
    assert_eq!((postgres.total, postgres.sold, postgres.revision, postgres.claims), (7, 0, 1, 0));
    assert_eq!((postgres.dead_letters_open, postgres.stock_returns_open), (0, 0));
    assert_eq!(of_second.disagreements, [""; 0]);
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(second), "stock", "x"]).await;
    let of_second = told(second).await;
    assert!(of_second.redis.is_none());
    assert_eq!(of_second.disagreements.len(), 1, "{:?}", of_second.disagreements);
    let regular = app.create_regular().await;
    assert!(app.app.numbers.progress(regular).await.expect("both stores answer").is_none());
}

/// No number is on the page then: an old one would look like a new one.
#[tokio::test]
async fn look_shows_no_number_while_redis_refuses_to_tell_one() {
    let (_server, app) = start(&[]).await;
    let coupon = app.create_flash(9).await;
    // An entry that isn't written: the state of its log is asked for again.
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let numbers =
        ["flash_sale_dead_letters_open", "flash_sale_log_unread_entries", "flash_sale_conserved"];
    let shown = async || {
        let page = app.app.metrics.page();
        numbers.map(|name| page.lines().any(|line| line.starts_with(name)))
    };
    for command in ["xinfo", "hget"] {
        app.app.numbers.pass().bounded().await.expect("both stores answer");
        assert_eq!(shown().await, [true; 3]);
        app.permit(&format!("-{command}")).await;
        let refused = app.app.numbers.pass().bounded().await;
        let side_by_side = app.app.numbers.progress(coupon).await;
        app.permit(&format!("+{command}")).await;
        assert!(refused.is_err() && side_by_side.is_err(), "{command}");
        assert_eq!(shown().await, [false; 3], "{command}");
    }
}

/// The state of the log is told, and its first entry is not.
#[tokio::test]
async fn log_gauges_leave_out_a_log_of_another_type_and_fail_while_redis_refuses() {
    let app = TestApp::start().await;
    app.expect_disagreements();
    let coupon = app.create_flash(9).await;
    assert_eq!(app.claim(1, coupon).await.status, 202);
    let play = |words: &[String]| if words[0] == "XRANGE" { Play::Given } else { Play::Real };
    let played = Played::before(app.redis_url(), play).await;
    let process = played.process(&app).await;
    for (answer, is_told) in [(OTHER_TYPE, true), (REFUSED, false)] {
        played.answer(answer);
        assert_eq!(process.numbers.pass().bounded().await.is_ok(), is_told, "{answer}");
        let page = process.metrics.page();
        let shown = |name| page.lines().any(|line| line.starts_with(name));
        assert!(!shown("flash_sale_log_unread_entries"), "{answer}");
        assert_eq!(shown("flash_sale_conserved"), is_told, "{answer}");
        assert_eq!(played.take_asked().len(), 1);
    }
}

/// The sale has been compared, and is counted once more then.
#[tokio::test]
async fn in_redis_is_no_sale_that_can_not_be_read_and_a_refusal_is_a_failure() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(9).await;
    let counts = Arc::new(AtomicUsize::new(0));
    let counted = counts.clone();
    let play = move |words: &[String]| {
        let is_count = words.get(1).is_some_and(|of| *of == *CENSUS);
        let is_second = is_count && counted.fetch_add(1, Ordering::SeqCst) == 1;
        if is_second { Play::Given } else { Play::Real }
    };
    let played = Played::before(app.redis_url(), play).await;
    let process = played.process(&app).await;
    // Redis knows the script from the first time on.
    for (answer, expected) in [
        (None, Some(true)),
        (None, Some(true)),
        (Some(OTHER_TYPE), Some(false)),
        (Some(REFUSED), None),
    ] {
        counts.store(0, Ordering::SeqCst);
        answer.into_iter().for_each(|answer| played.answer(answer));
        let told = process.numbers.progress(coupon).bounded().await.ok();
        let is_there = told.map(|told| told.expect("a sale").redis.is_some());
        assert_eq!(is_there, expected, "{answer:?}");
    }
}
