//! Wins without a sync before each answer, beside those of the service at its own level of durability (`fsync`).
//!
//! A process of its own answers at the level `memory`, on the same stores; the service writes. Redis syncs once a second
//! while it is measured.

use std::time::Duration;

use anyhow::Context;
use flash_sale::store::redis::Redis;
use hyper::header::HeaderValue;
use hyper::{Method, Uri};

use crate::load::connection::Address;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::slice::Slice;
use crate::service::target::Target;

/// Time for the service to notice a setting of Redis, and between two looks.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// A slice. Afterwards Redis has its settings again.
pub async fn slice(
    bench: &mut Bench,
    target: &mut Target,
    answering: &Address,
) -> anyhow::Result<Slice> {
    let redis = target.judge()?.redis.clone();
    set_appendfsync(&redis, "everysec").await?;
    let service = std::mem::replace(&mut target.address, answering.clone());
    let slice = bench.slice(target, Scenario::Win, Pace::Closed).await;
    target.address = service;
    set_appendfsync(&redis, "always").await?;
    until_kept(&target.address).await?;
    slice
}

/// Waits until the service has seen that Redis syncs each answer again: until then it confirms no claim.
async fn until_kept(service: &Address) -> anyhow::Result<()> {
    let ready = Uri::from_static("/readyz");
    // No token is looked at there.
    let none = HeaderValue::from_static("");
    let is_kept = async {
        loop {
            let (_, answer) = service.ask(&Method::GET, &ready, none.clone(), None).await?;
            if answer["durability"].as_str().is_none_or(|text| text == "ok") {
                return anyhow::Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_kept).await.context("the service confirms no claims")?
}

async fn set_appendfsync(redis: &Redis, value: &str) -> anyhow::Result<()> {
    let mut command = redis::cmd("CONFIG");
    Ok(redis.query(command.arg("SET").arg("appendfsync").arg(value)).await?)
}
