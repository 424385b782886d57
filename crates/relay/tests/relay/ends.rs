//! Leases, and how a relay ends.

use std::fs;

use nix::sys::signal::Signal;
use private_servers::testing::{DataFolder, run};

use crate::deliveries::assert_complete;
use crate::engine::{Engine, Kind};
use crate::service::Service;

/// An engine that isn't there.
fn nowhere() -> Vec<String> {
    ["--nats", "nats://127.0.0.1:1", "--stream", "sales"].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn another_relay_goes_on_where_a_hanging_one_stopped() {
    let Some(engine) = Engine::start(Kind::Nats).await else { return };
    let service = Service::start().await;
    let mut first = service.relay(&engine.arguments());
    first.logged("publishes").await;
    let mut second = service.relay(&engine.arguments());
    second.logged("another relay named relay is at work").await;
    first.signal(Signal::SIGSTOP);
    service.sell(100).await;
    second.logged("publishes").await;
    service.is_relayed(&service.feed_with_claims(100).await).await;

    first.signal(Signal::SIGCONT);
    first.logged("lost the lease").await;
    second.signal(Signal::SIGTERM);
    assert_eq!(second.ended().await.code(), Some(0));
    service.sell(100).await;
    let feed = service.feed_with_claims(200).await;
    service.is_relayed(&feed).await;
    first.signal(Signal::SIGTERM);
    assert_eq!(first.ended().await.code(), Some(0));
    assert_complete(&engine.deliveries().await, &feed);
}

#[tokio::test]
async fn an_unknown_cursor_ends_the_relay_until_it_begins_again() {
    let Some(engine) = Engine::start(Kind::Nats).await else { return };
    let service = Service::start().await;
    service.sell(20).await;
    let feed = service.feed_with_claims(20).await;
    let relay = service.relay(&engine.arguments());
    service.is_relayed(&feed).await;
    drop(relay);
    let broken = "UPDATE relays SET cursor = '1-1-1'";
    sqlx::query(broken).execute(&mut service.sql().await).await.expect("Postgres answers");

    let ended = run(service.relay_command(&engine.arguments())).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.last_words().contains("--from-oldest"), "{}", ended.stderr);

    let again = [engine.arguments(), vec!["--from-oldest".to_owned()]].concat();
    let _relay = service.relay(&again);
    service.is_relayed(&feed).await;
    assert_complete(&engine.deliveries().await, &feed);
}

#[tokio::test]
async fn a_refused_token_is_named_and_not_shown() {
    let service = Service::start().await;
    let folder = DataFolder::made(0o700);
    let file = folder.path().join("token");
    fs::write(&file, "a-token-that-nobody-signed\n").expect("the folder is new");
    for token in ["a-token-that-nobody-signed", &format!("@{}", file.display())] {
        let mut command = service.relay_command(&nowhere());
        command.env("FLASH_SALE_RELAY_TOKEN", token);
        let ended = run(command).await;
        assert_eq!(ended.code, Some(1));
        assert!(ended.last_words().contains("--scope integrator"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("nobody-signed"), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn sigterm_ends_a_relay_that_waits_for_its_servers() {
    let service = Service::start().await;
    service.sell(1).await;
    let mut relay = service.relay(&nowhere());
    relay.logged("the engine takes no messages").await;
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.ended().await.code(), Some(0));

    let mut command = service.relay_command(&nowhere());
    command.env("FLASH_SALE_RELAY_DATABASE_URL", "postgres://127.0.0.1:1/none");
    let mut relay = private_servers::testing::Process::spawn(command);
    relay.logged("Postgres doesn't answer").await;
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_wrong_command_line_ends_with_two() {
    let service = Service::start().await;
    let wrong: [&[&str]; 4] = [
        &[],
        &["--nats", "nats://127.0.0.1"],
        &["--kafka", "127.0.0.1:9092"],
        &["--nats", "nats://127.0.0.1", "--stream", "s", "--lease-s", "1"],
    ];
    for arguments in wrong {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let ended = run(service.relay_command(&arguments)).await;
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
    }
}
