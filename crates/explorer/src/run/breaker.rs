//! Faults, caused.

use std::sync::{Arc, Mutex};

use flash_sale::store::ids::Lane;
use tokio::sync::Mutex as AsyncMutex;

use super::collect::{self, GROUP, LANES, keys};
use crate::facts::{Loss, Ms};
use crate::plan::{APIS, Act, Fault, Ground};
use crate::world::{Installation, Machine, Mood, Postgres, answered};

/// Step of a clock, in seconds.
const STEP_S: i64 = 3_600;
/// Delay of a piece of data, in milliseconds.
const LATE_MS: u64 = 120;
/// Pause between two resets, in milliseconds.
const RESET_MS: u32 = 250;

/// Causes faults, and notes what data that costs.
pub struct Breaker {
    pub installation: Arc<Installation>,
    /// Postgres, which outlives the run.
    pub postgres: Arc<AsyncMutex<Postgres>>,
    /// Permissions of this machine.
    pub machine: Machine,
    /// Coupons of the run.
    pub coupons: Mutex<Vec<i64>>,
    /// Losses of data so far.
    pub losses: Mutex<Vec<Loss>>,
    /// Remarks for the log of the run.
    pub notes: Mutex<Vec<String>>,
    /// Events that must not happen.
    pub mishaps: Mutex<Vec<String>>,
}

impl Breaker {
    /// Causes a fault from its beginning to its end. A fault that can't be caused is noted.
    pub async fn act(self: Arc<Self>, act: Act) {
        let begin = act.begin_ms;
        if let Some(need) = act.fault.need()
            && !self.machine.permits(need)
        {
            self.note(format!("SKIPPED {}: this machine does not permit {need:?}", act.fault));
            return;
        }
        self.installation.time.reaches(begin).await;
        let done = match act.fault.ground(act.place) {
            Ground::RedisServer => self.break_redis_server(act).await,
            Ground::WayToRedis(place) => self.disturb_way_to_redis(act, place).await,
            _ => self.break_other(act).await,
        };
        let now = self.installation.time.now();
        match done {
            Ok(()) => self.note(format!("{}: from {begin} to {now} ms", act.fault)),
            Err(error) => self.note(format!("{}: did not get through: {error:#}", act.fault)),
        }
    }

    /// Writes a remark.
    pub fn note(&self, text: String) {
        self.notes.lock().expect("no holder of this lock panics").push(text);
    }

    /// Notes a loss of data.
    pub fn loses(&self, loss: Loss) {
        self.losses.lock().expect("no holder of this lock panics").push(loss);
    }

    /// Notes that buyers are gone. A command without an answer may be carried out when Redis goes on.
    fn loses_buyers(&self, fault: Fault, back_at: Ms, answered: bool) {
        let lost_at = if answered { self.installation.time.now() } else { Ms::MAX };
        self.loses(Loss::new(fault, Ms::MIN, (lost_at, back_at)));
    }

    /// One of the sales, by a number of the plan.
    fn a_coupon(&self, number: u32) -> i64 {
        let coupons = self.coupons.lock().expect("no holder of this lock panics");
        coupons[number as usize % coupons.len()]
    }

    async fn disturb_way_to_redis(&self, act: Act, place: usize) -> anyhow::Result<()> {
        let (time, way) = (&self.installation.time, &self.installation.ways_to_redis[place]);
        match act.fault {
            Fault::Resets => {
                let mut at = act.begin_ms;
                while at < act.end_ms {
                    way.cut();
                    at += RESET_MS;
                    time.reaches(at.min(act.end_ms)).await;
                }
                return Ok(());
            }
            Fault::RepliesDropped => way.set(Mood::DropReplies),
            Fault::Latency => way.set(Mood::Late(LATE_MS)),
            Fault::OneByteSlices => way.set(Mood::Slices),
            _ => way.set(Mood::Hole),
        }
        time.reaches(act.end_ms).await;
        way.set(Mood::Clear);
        Ok(())
    }

    async fn break_other(&self, act: Act) -> anyhow::Result<()> {
        let time = &self.installation.time;
        let service = &self.installation.services[act.place];
        let sign = if act.begin_ms.is_multiple_of(2) { 1 } else { -1 };
        match act.fault {
            Fault::ApiKill | Fault::WorkerKill => {
                service.kill().await?;
                time.reaches(act.end_ms).await;
                service.start().await?;
            }
            Fault::WorkersKill => {
                for worker in &self.installation.services[APIS..] {
                    worker.kill().await?;
                }
                time.reaches(act.end_ms).await;
                for worker in &self.installation.services[APIS..] {
                    worker.start().await?;
                }
            }
            Fault::ApiPause | Fault::WorkerPause => {
                service.pause().await;
                time.reaches(act.end_ms).await;
                service.resume().await;
            }
            Fault::RollingRestart => {
                for service in &self.installation.services {
                    service.replace().await?;
                    service.listens().await?;
                }
            }
            Fault::ServiceClock => {
                service.set_clock(sign * STEP_S)?;
                time.reaches(act.end_ms).await;
                service.set_clock(0)?;
            }
            Fault::RedisClock => {
                self.set_redis_clocks(sign * STEP_S).await?;
                time.reaches(act.end_ms).await;
                self.set_redis_clocks(0).await?;
            }
            Fault::PostgresKill => {
                let from = time.now();
                self.postgres.lock().await.kill().await?;
                time.reaches(act.end_ms).await;
                self.postgres.lock().await.ensure_up().await?;
                for service in &self.installation.services {
                    service.note_silence(from, time.now());
                }
            }
            Fault::PostgresBlackHole => {
                let from = time.now();
                let way = &self.installation.ways_to_postgres[act.place];
                way.set(Mood::Hole);
                time.reaches(act.end_ms).await;
                way.set(Mood::Clear);
                service.note_silence(from, time.now());
            }
            Fault::PostgresRestored => self.restore_postgres(act).await?,
            Fault::ForeignInstallation => self.start_foreign_installation().await?,
            _ => self.change_data(act).await?,
        }
        Ok(())
    }

    async fn set_redis_clocks(&self, seconds: i64) -> anyhow::Result<()> {
        let redis = self.installation.redis.lock().await;
        redis.master().set_clock(seconds)?;
        redis.replica().set_clock(seconds)
    }

    /// Faults by commands to Redis.
    async fn change_data(&self, act: Act) -> anyhow::Result<()> {
        let time = &self.installation.time;
        match act.fault {
            Fault::FlushAll => {
                let back_at = time.now();
                let flushed = self.command(&["FLUSHALL"]).await;
                self.loses_buyers(act.fault, back_at, flushed.is_ok());
                flushed?;
            }
            Fault::MemoryFull => {
                self.command(&["CONFIG", "SET", "maxmemory", "1"]).await?;
                time.reaches(act.end_ms).await;
                self.command(&["CONFIG", "SET", "maxmemory", "0"]).await?;
            }
            Fault::ScriptsFlushed => self.command(&["SCRIPT", "FLUSH"]).await?,
            Fault::Poison => {
                for log in logs() {
                    self.command(&["XADD", &log, "*", "x", "y"]).await?;
                    // A coupon that is not there.
                    let claim = ["coupon", "999424", "user", "5", "order", "7"];
                    self.command(&[&["XADD", &log, "*"], claim.as_slice()].concat()).await?;
                }
            }
            Fault::GroupDestroyed => {
                for log in logs() {
                    // A log that is not there yet has no group.
                    let _ = self.command(&["XGROUP", "DESTROY", &log, GROUP]).await;
                }
            }
            Fault::SaleDeleted | Fault::ShardDeleted => {
                let coupon = self.a_coupon(act.begin_ms);
                let key = match act.fault {
                    Fault::SaleDeleted => keys().coupon(coupon.to_string().parse()?),
                    _ => collect::a_shard(&self.installation, coupon).await?,
                };
                let back_at = time.now();
                let deleted = self.command(&["DEL", &key]).await;
                self.loses_buyers(act.fault, back_at, deleted.is_ok());
                deleted?;
            }
            Fault::LogDeleted => {
                for log in logs() {
                    self.command(&["DEL", &log]).await?;
                }
            }
            fault => anyhow::bail!("no way is known to cause {fault}"),
        }
        Ok(())
    }

    async fn command(&self, words: &[&str]) -> anyhow::Result<()> {
        // The lock is not held while Redis is asked: a fault that ends may wait for the lock.
        let socket = self.installation.redis.lock().await.socket();
        let _: redis::Value = answered(&socket, words).await?;
        Ok(())
    }
}

/// The order logs.
fn logs() -> Vec<String> {
    Lane::all(LANES).map(|lane| keys().log(lane)).collect()
}
