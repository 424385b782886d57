//! The floor of a win in Redis: the least that a claim script could do, sent as plain commands to the same Redis.
//!
//! For each claim one HSET into a shard of its sale; for each 128 claims one XADD of them all and one HINCRBY of the
//! stock. These 130 commands go in one pipeline, and the next one waits for the answer. No decision is taken, no script
//! is run, nothing is read, and no writer reads the log. The keys have names of their own, and are removed.

use anyhow::Context;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use serde::Serialize;

use crate::service::target::Target;

/// Claims in a pipeline: as many as the service puts into one call.
const CLAIMS: u64 = 128;
/// Pipelines in a round.
const PIPELINES: u64 = 1_000;
/// Buyers in a shard, about as many as in a sale of this size.
const BUYERS_IN_A_SHARD: u64 = 32;
/// As long as the ids of users and orders.
const FIRST_USER: u64 = 1_000_000_000;
const FIRST_ORDER: u64 = 600_000_000_000_000_000;

/// One round.
#[derive(Clone, Debug, Serialize)]
pub struct Floor {
    pub claims: u64,
    /// Microseconds of Redis's CPU time for each claim.
    pub redis_us_per_claim: f64,
}

/// Sends a round of pipelines. No client may use the service meanwhile.
pub async fn measure(target: &Target) -> anyhow::Result<Floor> {
    let servers = target.servers.as_ref().context("the servers are private")?;
    let client = redis::Client::open(servers.redis_url())?;
    // A sync may take its time.
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = client.get_multiplexed_async_connection_with_config(&patient).await?;
    let before = used_us(&mut redis).await?;
    for pipeline in 0..PIPELINES {
        let () = claims(pipeline).query_async(&mut redis).await?;
    }
    let used = used_us(&mut redis).await? - before;
    let claims = PIPELINES * CLAIMS;
    remove(&mut redis).await?;
    Ok(Floor { claims, redis_us_per_claim: used / claims as f64 })
}

/// The claims of one pipeline.
fn claims(pipeline: u64) -> redis::Pipeline {
    let mut commands = redis::pipe();
    let mut entry = String::new();
    for claim in pipeline * CLAIMS..(pipeline + 1) * CLAIMS {
        let user = FIRST_USER + claim;
        let order = FIRST_ORDER + claim;
        commands.cmd("HSET").arg(shard(claim)).arg(user).arg(order).ignore();
        entry.push_str(&format!("{user} {order} "));
    }
    commands.cmd("XADD").arg(log()).arg("*").arg("claims").arg(entry).ignore();
    commands.cmd("HINCRBY").arg(sale()).arg("stock").arg(-(CLAIMS as i64)).ignore();
    commands
}

/// Neighbours in time have different shards, as in a sale.
fn shard(claim: u64) -> String {
    format!("bench:floor:shard:{}", claim % (PIPELINES * CLAIMS / BUYERS_IN_A_SHARD))
}

fn log() -> &'static str {
    "bench:floor:log"
}

fn sale() -> &'static str {
    "bench:floor:sale"
}

async fn remove(redis: &mut MultiplexedConnection) -> anyhow::Result<()> {
    let mut commands = redis::pipe();
    commands.cmd("UNLINK").arg(log()).arg(sale()).ignore();
    for claim in 0..PIPELINES * CLAIMS / BUYERS_IN_A_SHARD {
        commands.cmd("UNLINK").arg(shard(claim)).ignore();
    }
    Ok(commands.query_async(redis).await?)
}

/// CPU time of Redis in microseconds, as it says itself: finer than the clock ticks of `/proc`.
async fn used_us(redis: &mut MultiplexedConnection) -> anyhow::Result<f64> {
    let info: redis::InfoDict = redis::cmd("INFO").arg("cpu").query_async(redis).await?;
    let seconds =
        |name| info.get::<f64>(name).context("Redis doesn't say how much CPU time it used");
    Ok((seconds("used_cpu_user")? + seconds("used_cpu_sys")?) * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_has_130_commands_and_each_shard_its_buyers() {
        assert_eq!(claims(0).cmd_iter().count(), 130);
        let shards: std::collections::HashSet<String> =
            (0..PIPELINES * CLAIMS).map(shard).collect();
        assert_eq!(shards.len() as u64, PIPELINES * CLAIMS / BUYERS_IN_A_SHARD);
    }
}
