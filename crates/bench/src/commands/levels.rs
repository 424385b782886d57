//! Wins at each level of durability, beside those of the service at its own (`fsync`).
//!
//! Each level has a process of its own that answers, on the same stores; the service writes. Redis has the settings
//! that the level needs, and no more, while it is measured.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hyper::header::HeaderValue;
use hyper::{Method, Uri};
use private_servers::testing::RedisServer;
use redis::AsyncConnectionConfig;

use crate::load::connection::Address;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::results::levels::{Level, LevelSlice};
use crate::service::target::Target;
use crate::service::verdict::Judge;
use flash_sale::kit::redis::Redis;
use flash_sale::sale::fence::look::look;
use flash_sale::sale::fence::table;
use flash_sale::sale::ids::Lane;

/// Time for Redis and the service to notice a setting.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// The processes that answer, one for each level, and the replica of one of them.
pub struct Levels {
    doors: Vec<(Level, Address)>,
    replica: RedisServer,
}

impl Levels {
    /// Starts them.
    pub async fn start(target: &mut Target, binary: &Path, bench: &Bench) -> anyhow::Result<Self> {
        let mut doors = Vec::new();
        for level in Level::ALL {
            let durability = ["--durability", level.name()];
            doors.push((level, target.start_door(binary, &durability, &bench.shutdown).await?));
        }
        let levels = Self { doors, replica: RedisServer::start(&[]) };
        let judge = target.judge.as_ref().context("private servers are judged")?;
        levels.follow(&judge.redis).await?;
        levels.leave(&judge.redis).await?;
        until_approved(judge).await?;
        Ok(levels)
    }

    /// A slice at each level. Afterwards Redis has its settings again.
    pub async fn round(
        &self,
        bench: &mut Bench,
        target: &mut Target,
    ) -> anyhow::Result<Vec<LevelSlice>> {
        let redis = target.judge.as_ref().context("private servers are judged")?.redis.clone();
        let service = target.address.clone();
        let mut slices = Vec::new();
        for (level, door) in &self.doors {
            set(&redis, "appendfsync", level.appendfsync()).await?;
            let replicated = *level == Level::Replica;
            if replicated {
                self.follow(&redis).await?;
            }
            target.address = door.clone();
            let slice = bench.slice(target, Scenario::Win, Pace::Closed).await;
            target.address = service.clone();
            if replicated {
                self.leave(&redis).await?;
            }
            slices.push(LevelSlice { level: *level, slice: slice? });
        }
        set(&redis, "appendfsync", "always").await?;
        until_kept(&service).await?;
        Ok(slices)
    }

    /// Has the replica follow the Redis of the service, which otherwise listens on its socket alone.
    async fn follow(&self, redis: &Redis) -> anyhow::Result<()> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port().to_string();
        drop(listener);
        set(redis, "port", &port).await?;
        let replica = Redis::with_timeout(&self.replica.url(), PATIENCE)?;
        let mut command = redis::cmd("REPLICAOF");
        let _: String = replica.query(command.arg("127.0.0.1").arg(&port)).await?;
        let is_followed = async {
            while redis.facts().await?.replicas == 0 {
                tokio::time::sleep(PAUSE).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, is_followed).await.context("the replica doesn't follow")?
    }

    async fn leave(&self, redis: &Redis) -> anyhow::Result<()> {
        let client = redis::Client::open(self.replica.url())?;
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let mut replica = client.get_multiplexed_async_connection_with_config(&patient).await?;
        let mut command = redis::cmd("REPLICAOF");
        let _: String = command.arg("NO").arg("ONE").query_async(&mut replica).await?;
        set(redis, "port", "0").await
    }
}

/// Waits until all lanes are open again. The first replica gives a Redis another replication ID, for which each lane is
/// closed and compared once (docs/recovery.md); those that follow within an hour don't.
async fn until_approved(judge: &Judge) -> anyhow::Result<()> {
    let are_approved = async {
        loop {
            let lanes = table::all(&judge.pool).await?;
            let names: Vec<Lane> = lanes.iter().map(|lane| lane.lane).collect();
            let (_, seen) = look(&judge.redis, &judge.keys, &names).await?;
            if lanes.iter().zip(seen).all(|(lane, (_, seen))| seen.is_open(lane.epoch)) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, are_approved).await.context("a lane stays closed")?
}

/// Waits until the service has seen that Redis syncs each answer again: until then it confirms no claim.
async fn until_kept(service: &Address) -> anyhow::Result<()> {
    let ready = Uri::from_static("/readyz");
    // No token is looked at there.
    let none = HeaderValue::from_static("");
    let is_kept = async {
        loop {
            let (_, answer) = service.ask(&Method::GET, &ready, none.clone(), None).await?;
            // An older service has no levels.
            if answer["durability"].as_str().is_none_or(|text| text == "ok") {
                return anyhow::Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_kept).await.context("the service confirms no claims")?
}

async fn set(redis: &Redis, name: &str, value: &str) -> anyhow::Result<()> {
    let mut command = redis::cmd("CONFIG");
    Ok(redis.query(command.arg("SET").arg(name).arg(value)).await?)
}
