//! The end of all damage, and the wait for rest.

use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::Signal;
use reqwest::Method;
use tokio::time::{Instant, sleep, timeout};

use super::breaker::Breaker;
use super::collect;
use crate::clients::{Created, Http};
use crate::facts::LaneFacts;
use crate::plan::APIS;
use crate::world::{Installation, Mood, command_of};

/// Time for the service to come to rest once all damage has ended: only a hang exceeds it.
const REST_WITHIN: Duration = Duration::from_secs(90);
/// Time between two looks that both have to find rest.
const STILL: Duration = Duration::from_millis(1_200);
const POLL: Duration = Duration::from_millis(150);
/// Time for a command of the service.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
/// User that buys from a fresh sale at the end.
const LAST_USER: i64 = 900;

impl Breaker {
    /// Ends all damage: each fault has ended by itself, unless it did not get through.
    pub(super) async fn heal(&self) -> anyhow::Result<()> {
        self.postgres.lock().await.ensure_up().await?;
        let installation = &self.installation;
        {
            let mut redis = installation.redis.lock().await;
            redis.master().signal(Signal::SIGCONT);
            redis.master_mut().ensure_up().await?;
            redis.replica_mut().ensure_up().await?;
            for node in [redis.master(), redis.replica()] {
                node.set_clock(0)?;
                let _: redis::Value = node.ask(&["CONFIG", "SET", "maxmemory", "0"]).await?;
            }
        }
        for way in installation.ways_to_redis.iter().chain(&installation.ways_to_postgres) {
            way.set(Mood::Clear);
        }
        for service in &installation.services {
            service.set_clock(0)?;
            service.resume().await;
            service.start().await?;
        }
        Ok(())
    }
}

/// Waits until nothing is under way: all lanes open, the log written, no order due, each unit back. Says what is under
/// way still if that takes too long.
pub async fn rest(installation: &Installation) -> Result<(), String> {
    let deadline = Instant::now() + REST_WITHIN;
    let mut still_since: Option<(Instant, i64)> = None;
    loop {
        let found = unrest(installation).await.unwrap_or_else(|error| Err(format!("{error:#}")));
        match (found, still_since) {
            (Ok(recoveries), Some((since, before))) if recoveries == before => {
                if since.elapsed() >= STILL {
                    return Ok(());
                }
            }
            (Ok(recoveries), _) => still_since = Some((Instant::now(), recoveries)),
            (Err(why), _) => {
                still_since = None;
                if Instant::now() > deadline {
                    return Err(format!("no rest {REST_WITHIN:?} after the last fault: {why}"));
                }
            }
        }
        sleep(POLL).await;
    }
}

/// The number of recoveries so far, at rest; or what is under way, in words.
async fn unrest(installation: &Installation) -> anyhow::Result<Result<i64, String>> {
    for lane in collect::lanes(installation).await? {
        let LaneFacts { lane: number, postgres, redis, pending, unread, promised, written, .. } =
            &lane;
        if postgres != redis || postgres.1 != "open" {
            return Ok(Err(format!(
                "lane {number} is {postgres:?} in Postgres, {redis:?} in Redis"
            )));
        }
        if (*pending, *unread) != (0, 0) || promised != written {
            return Ok(Err(format!(
                "lane {number}: {pending} entries pending, {unread} unread, promised {promised}, acknowledged {written}"
            )));
        }
    }
    let waiting: [(&str, &str); 4] = [
        // An order that a repair has written may be paid for five minutes; windows of a plan are seconds.
        (
            "unpaid orders",
            "SELECT count(*) FROM orders
             WHERE status = 'unpaid' AND pay_by < now() + interval '1 minute'",
        ),
        ("units on their way back", "SELECT count(*) FROM stock_returns WHERE done_at IS NULL"),
        ("unwritten", "SELECT count(*) FROM unwritten_claims"),
        ("postponed items", "SELECT count(*) FROM postponed"),
    ];
    for (what, query) in waiting {
        let count: i64 = sqlx::query_scalar(query).fetch_one(&installation.pool).await?;
        if count > 0 {
            return Ok(Err(format!("{count} {what}")));
        }
    }
    let recoveries = sqlx::query_scalar("SELECT count(*) FROM recoveries");
    Ok(Ok(recoveries.fetch_one(&installation.pool).await?))
}

/// Disagreements that `flash-sale reconcile` names.
pub async fn reconcile(installation: &Installation) -> anyhow::Result<Vec<String>> {
    let redis = format!("redis+unix://{}", installation.redis.lock().await.socket().display());
    let mut command = command_of(&installation.binary);
    command.args(["reconcile", "--key-prefix", crate::world::PREFIX, "--redis-url", &redis]);
    command.args(["--database-url", &installation.database_url]);
    // Other runs may keep the machine busy: the most that there is.
    command.args(["--redis-timeout-ms", "10000", "--database-timeout-ms", "10000"]);
    let said = timeout(COMMAND_WITHIN, command.output()).await;
    let said = said.context("`flash-sale reconcile` does not end")??;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let disagreements = text.lines().filter(|line| line.starts_with("DISAGREE"));
    match said.status.code() {
        Some(0 | 4) => Ok(disagreements.map(str::to_owned).collect()),
        _ => anyhow::bail!("`flash-sale reconcile`: {}", String::from_utf8_lossy(&said.stderr)),
    }
}

/// Claims one unit of a fresh sale. Says why if that does not succeed.
pub async fn sells(installation: &Installation, http: &Http, sale: Created) -> Result<(), String> {
    let token = http.signer.user(LAST_USER);
    let deadline = Instant::now() + REST_WITHIN;
    let mut last = "no answer".to_owned();
    for door in (0..APIS).cycle() {
        if let Some((url, _)) = installation.doors()[door].address() {
            let url = format!("{url}/v1/coupons/{}/claims", sale.coupon);
            match http.send(Method::POST, url, &token, None).await {
                Some(answer) if answer.status == 202 || answer.code() == "already_claimed" => {
                    return Ok(());
                }
                Some(answer) => last = format!("{} {}", answer.status, answer.code()),
                None => {}
            }
        }
        if Instant::now() > deadline {
            break;
        }
        sleep(POLL).await;
    }
    Err(format!("a fresh sale can't be sold at the end: {last}"))
}
