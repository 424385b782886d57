//! The relay, its engine or both die by SIGKILL in the middle of a sale.

use std::process::{Command, Stdio};
use std::time::Duration;

use private_servers::testing::{Process, run_within};
use serde_json::Value;

use crate::deliveries::{Delivery, assert_complete, news};
use crate::engine::{Engine, Kind, NAME, installed};
use crate::service::{Service, until};

/// Orders that are sold while no relay runs, so that it is busy when something dies.
const BACKLOG: usize = 300;
/// Orders that are sold meanwhile.
const MEANWHILE: usize = 100;

#[derive(Clone, Copy)]
enum Victim {
    Relay,
    Engine,
    Both,
}

use Victim::{Both, Engine as TheEngine, Relay};

const VICTIMS: [Victim; 7] = [Relay, TheEngine, Both, TheEngine, Relay, Both, TheEngine];

#[tokio::test]
async fn nats_gets_each_event_whatever_dies() {
    let Some(mut engine) = Engine::start(Kind::Nats).await else { return };
    sell_and_kill(&mut engine, &VICTIMS).await;
}

#[tokio::test]
#[ignore = "installs Kafka: make relay-engines"]
async fn kafka_gets_each_event_whatever_dies() {
    let Some(mut engine) = Engine::start(Kind::Kafka).await else { return };
    sell_and_kill(&mut engine, &VICTIMS).await;
}

#[tokio::test]
#[ignore = "installs RocketMQ: make relay-engines"]
async fn rocketmq_gets_each_event_whatever_dies() {
    let Some(mut engine) = Engine::start(Kind::RocketMq).await else { return };
    // A broker needs many seconds for each start.
    sell_and_kill(&mut engine, &[Relay, TheEngine, Both]).await;
}

#[tokio::test]
#[ignore = "installs a client of NATS for Python: make events"]
async fn the_sample_consumer_keeps_what_it_has_to() {
    let Some(mut engine) = Engine::start(Kind::Nats).await else { return };
    let deliveries = sell_and_kill(&mut engine, &[Relay]).await;
    check_with_the_sample_consumer(&engine, &deliveries).await;
}

/// A sale with kills in it, all of which is in the engine at the end.
async fn sell_and_kill(engine: &mut Engine, victims: &[Victim]) -> Vec<Delivery> {
    let service = Service::start().await;
    let (program, arguments) = (engine.relay(), engine.arguments());
    let start_relay = || Process::spawn(service.command(&program, &arguments));
    for &victim in victims {
        service.sell(BACKLOG).await;
        // None before the first message.
        let seen = engine.count().await.unwrap_or_default();
        let mut relay = start_relay();
        let kill = async {
            until("a message arrives", async || {
                engine.count().await.is_some_and(|count| count > seen)
            })
            .await;
            if let Relay | Both = victim {
                relay.kill();
            }
            if let TheEngine | Both = victim {
                engine.kill();
                engine.start_again().await;
            }
            if let Relay | Both = victim {
                relay = start_relay();
            }
        };
        tokio::join!(service.sell(MEANWHILE), kill);
        until("the engine answers", async || engine.count().await.is_some()).await;
    }
    let _relay = start_relay();
    let feed = service.feed_with_claims((BACKLOG + MEANWHILE) * victims.len()).await;
    service.is_relayed(&feed).await;
    let deliveries = engine.deliveries().await;
    assert_complete(&deliveries, &feed);
    deliveries
}

/// `consumer.py` keeps what it has to keep.
async fn check_with_the_sample_consumer(engine: &Engine, deliveries: &[Delivery]) {
    let Some(folder) = installed("consumer").await else { return };
    let mut command = Command::new(folder.join("python/bin/python"));
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/consumer.py")).stdin(Stdio::null());
    command.args([&engine.url(), NAME, "shop", "--once"]);
    let finished = run_within(command, Duration::from_secs(600)).await;
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let id = |line: &str| {
        let event: Value = serde_json::from_str(line).expect("an event a line");
        event["id"].as_str().expect("an id").to_owned()
    };
    let printed: Vec<String> = finished.stdout.lines().map(id).collect();
    assert_eq!(printed, news(deliveries));
}
