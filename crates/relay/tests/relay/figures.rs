//! Events a second. Run by hand, on a machine that does nothing else.

use std::time::Instant;

use private_servers::testing::Process;
use sqlx::Executor;

use crate::engine::{Engine, Kind};
use crate::service::Service;

/// Claims in batches of 100, and as many payments, one event each.
const EVENTS: &str = "
    INSERT INTO events (type, claims)
    SELECT 'order.claimed', array_agg(n ORDER BY o, k)
    FROM generate_series(0, 49999) o, unnest(ARRAY[o, 1024, o, 2500]::bigint[]) WITH ORDINALITY numbers(n, k)
    GROUP BY o / 100 ORDER BY o / 100;
    INSERT INTO events (type, subject, data)
    SELECT 'order.paid', 'orders/' || o, jsonb_build_object('order_id', o::text, 'coupon_id', '1024',
        'user_id', o::text, 'pay_cents', 2500, 'currency', 'CNY', 'move', 2)
    FROM generate_series(0, 49999) o";

#[tokio::test]
#[ignore = "measures"]
async fn nats() {
    measure(Kind::Nats).await;
}

#[tokio::test]
#[ignore = "measures"]
async fn kafka() {
    measure(Kind::Kafka).await;
}

#[tokio::test]
#[ignore = "measures"]
async fn rocketmq() {
    measure(Kind::RocketMq).await;
}

async fn measure(kind: Kind) {
    let Some(engine) = Engine::start(kind).await else { return };
    let service = Service::start().await;
    service.sql().await.execute(EVENTS).await.expect("the events are valid");
    let feed = service.feed().await;
    let began = Instant::now();
    let _relay = Process::spawn(service.command(engine.relay(), &engine.arguments()));
    service.is_relayed(&feed).await;
    let seconds = began.elapsed().as_secs_f64();
    let messages = engine.count().await.expect("the engine answers");
    println!(
        "{} events, {messages} messages in {seconds:.1} s: {:.0} events/s, {:.0} messages/s",
        feed.len(),
        feed.len() as f64 / seconds,
        messages as f64 / seconds
    );
}
