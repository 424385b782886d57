//! Facts about each kind: what a clock, a time zone, a lost store and a competitor do.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::base::clock::Clock;
use flash_sale::store::redis::Redis;
use private_servers::testing::RedisServer;
use sqlx::PgPool;

use crate::generator::{Generator, Kind, Server, told};
use ladders::essay::table;
use ladders::servers::Servers;

/// Ids of each look.
const IDS: usize = 1_000;
/// Ids that are asked for when the store is away.
const ASKED: usize = 2_000;
/// A Redis that is away answers at once, and a busy one late.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stores of the facts. A second Redis is killed.
pub struct Stores {
    pool: PgPool,
    redis_url: String,
    database_url: String,
}

impl Stores {
    pub async fn open(servers: &Servers) -> anyhow::Result<Self> {
        let pool = PgPool::connect(servers.database_url()).await?;
        let tables = "CREATE SCHEMA ladder;
            CREATE TABLE ladder.numbered (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
            CREATE TABLE ladder.segments (last bigint NOT NULL);
            INSERT INTO ladder.segments VALUES (0)";
        sqlx::raw_sql(tables).execute(&pool).await?;
        let redis_url = servers.redis_url().to_owned();
        Ok(Self { pool, redis_url, database_url: servers.database_url().to_owned() })
    }

    pub fn server(&self, clock: &Clock, zone_hours: i64) -> anyhow::Result<Server> {
        let redis = Redis::with_timeout(&self.redis_url, PATIENCE)?;
        Ok(Server { pool: self.pool.clone(), redis, clock: clock.clone(), zone_hours })
    }
}

/// A summer evening: 18:00 in UTC, and 02:00 of the next day eight hours east.
fn evening() -> DateTime<Utc> {
    DateTime::from_timestamp(1_780_336_800, 0).unwrap_or_default()
}

/// The table of facts.
pub async fn of_all(stores: &Stores) -> anyhow::Result<String> {
    let head = [
        "kind",
        "bytes",
        "in order: one server",
        "in order: two servers",
        "duplicates: clock set back 1 s",
        "no id meanwhile",
        "duplicates: two servers set up alike, in two time zones",
        "ids of 2,000 when the store is away",
        "two orders tell of 1,000 sales between",
    ];
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        rows.push(row(stores, kind).await.context(kind.name())?);
    }
    Ok(table(&head, &rows))
}

async fn row(stores: &Stores, kind: Kind) -> anyhow::Result<Vec<String>> {
    let one = in_turns(stores, kind, 1).await?;
    let two = in_turns(stores, kind, 2).await?;
    let (repeated, refused) = set_back(stores, kind).await?;
    let yes = |sorted| if sorted { "yes" } else { "no" }.to_owned();
    let (first, last) = (one[0], one[IDS]);
    Ok(vec![
        kind.name().to_owned(),
        kind.bytes().to_string(),
        yes(one.is_sorted()),
        yes(two.is_sorted()),
        bold(repeated),
        refused.to_string(),
        bold(in_two_zones(stores, kind).await?),
        store_away(stores, kind).await?.to_string(),
        told(kind, first, last),
    ])
}

/// A number that should be 0.
fn bold(count: usize) -> String {
    if count == 0 { "0".to_owned() } else { format!("**{count}**") }
}

/// One more than a thousand ids, a millisecond apart, by so many servers in turns; servers have numbers of their own.
async fn in_turns(stores: &Stores, kind: Kind, servers: usize) -> anyhow::Result<Vec<u128>> {
    let clock = Clock::manual(evening());
    let mut generators = Vec::new();
    for _ in 0..servers {
        generators.push(Generator::new(kind, stores.server(&clock, 0)?));
    }
    let mut ids = Vec::new();
    for turn in 0..=IDS {
        clock.set(clock.now() + TimeDelta::milliseconds(1));
        ids.push(generators[turn % servers].next().await?);
    }
    Ok(ids)
}

/// A thousand ids of a second; then the clock is set back by the second: ids that come again, and requests without one.
async fn set_back(stores: &Stores, kind: Kind) -> anyhow::Result<(usize, usize)> {
    let clock = Clock::manual(evening());
    let generator = Generator::new(kind, stores.server(&clock, 0)?);
    let mut ids = HashSet::new();
    let (mut repeated, mut refused) = (0, 0);
    for step in 0..2 * IDS {
        let ms = i64::try_from(step % IDS)?;
        clock.set(evening() + TimeDelta::milliseconds(ms));
        match generator.next().await {
            Ok(id) => repeated += usize::from(!ids.insert(id)),
            Err(_) => refused += 1,
        }
    }
    Ok((repeated, refused))
}

/// Two servers in the same second, whose machines are set to two time zones.
async fn in_two_zones(stores: &Stores, kind: Kind) -> anyhow::Result<usize> {
    // Another day than that of the looks before.
    let clock = Clock::manual(evening() + TimeDelta::days(7));
    let here = Generator::new(kind, stores.server(&clock, 0)?);
    let east = Generator::new(kind, stores.server(&clock, 8)?);
    let mut ids = HashSet::new();
    let mut repeated = 0;
    for _ in 0..IDS {
        repeated += usize::from(!ids.insert(here.next().await?));
        repeated += usize::from(!ids.insert(east.next().await?));
    }
    Ok(repeated)
}

/// Ids that a server still makes once no store can be reached.
async fn store_away(stores: &Stores, kind: Kind) -> anyhow::Result<usize> {
    let mut redis_server = RedisServer::start(&[]);
    let redis = Redis::with_timeout(&redis_server.url(), PATIENCE)?;
    let pool = PgPool::connect(&stores.database_url).await?;
    let clock = Clock::manual(evening());
    let server = Server { pool: pool.clone(), redis, clock: clock.clone(), zone_hours: 0 };
    let generator = Generator::new(kind, server);
    generator.next().await?;
    redis_server.kill();
    pool.close().await;
    let mut made = 0;
    for _ in 0..ASKED {
        clock.set(clock.now() + TimeDelta::milliseconds(1));
        if generator.next().await.is_err() {
            break;
        }
        made += 1;
    }
    Ok(made)
}
