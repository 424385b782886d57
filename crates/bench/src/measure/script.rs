//! The ceiling of the claim script: `redis-benchmark` calls it, one claim for each call, on the same Redis.
//!
//! The call is that of the service itself, seen with MONITOR, with other users and orders in it. The keys are
//! copies under other names, so the service's own sale and log stay as they are.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use redis::Cmd;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::timeout;

use crate::figures::Spread;
use crate::service::cpu::CpuTimes;
use crate::service::target::Target;
use crate::service::verdict::Judge;
use flash_sale::sale::keys::{LogId, LogLayout};

/// Names of the program; Valkey has its own.
const PROGRAMS: [&str; 2] = ["redis-benchmark", "valkey-benchmark"];
/// Calls that each connection sends at a time.
const PIPELINED: [u32; 2] = [1, 16];
/// The program puts twelve random digits in its place, of so many values: hardly any user comes twice.
const DIGITS: &str = "__rand_int__";
const DIGITS_VALUES: &str = "2147483647";
/// Calls among which one may be by a user that has called before.
const REPEATS: i64 = 500;
/// In front of the names of the keys that are called on.
const COPY: &str = "bench:";
/// Time until the service's own call is seen.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// The script by itself.
#[derive(Clone, Debug, Serialize)]
pub struct ScriptCeiling {
    pub pipelined: u32,
    pub connections: u32,
    pub calls_per_second: Option<Spread>,
    pub redis_us_per_call: Option<Spread>,
}

/// Calls the script, round by round.
pub struct ScriptBench {
    program: &'static str,
    socket: String,
    /// As the service sent it, ready for the program.
    call: Vec<String>,
    /// The keys that the service's call names.
    keys: Vec<String>,
    coupon_key: String,
    /// Begun anew instead of copied: it may be long, and an empty one does as well.
    log_key: String,
    calls: u32,
    connections: u32,
    measured: Vec<Measured>,
}

struct Measured {
    pipelined: u32,
    calls_per_second: f64,
    redis_us_per_call: Option<f64>,
}

impl ScriptBench {
    /// Finds the program, and the service's call. `None`: there is no such program on this machine.
    pub async fn prepare(
        target: &mut Target,
        calls: u32,
        connections: u32,
    ) -> anyhow::Result<Option<Self>> {
        let Some(program) = find_program().await else { return Ok(None) };
        let url = target.servers.as_ref().context("the servers are private")?.redis_url();
        let socket = url.strip_prefix("redis+unix://").context("Redis has a socket")?.to_owned();
        let coupon = target.open_sale(i64::from(calls) + 2).await?;
        // After the first claim Redis knows the script, so the second one calls it by its hash.
        target.claim_one(coupon).await?;
        let monitor = monitor(&socket).await?;
        let (user, order) = target.claim_one(coupon).await?;
        let user = user.to_string();
        let order = order.to_string();
        let mut call = timeout(SEEN_WITHIN, own_call(monitor, &user, &order)).await??;
        let keys = keys_of(&mut call)?;
        for argument in &mut call {
            // As long as what they stand for.
            if *argument == user {
                *argument = format!("1{DIGITS}");
            } else if *argument == order {
                *argument = format!("7{DIGITS}00000");
            }
        }
        let names = &judge(target)?.keys;
        Ok(Some(Self {
            program,
            socket,
            call,
            keys,
            coupon_key: names.coupon(coupon),
            log_key: names.log(LogId { lane: coupon.lane(), layout: LogLayout::Calls }),
            calls,
            connections,
            measured: Vec::new(),
        }))
    }

    /// Calls the script, at each depth. No client may use the service meanwhile.
    pub async fn round(&mut self, target: &Target) -> anyhow::Result<()> {
        for pipelined in PIPELINED {
            for key in self.keys.iter().filter(|key| **key != self.log_key) {
                run(target, redis::cmd("COPY").arg(key).arg(format!("{COPY}{key}"))).await?;
            }
            self.begin_log(target).await?;
            let measured = self.measure(target, pipelined).await;
            for key in &self.keys {
                run(target, redis::cmd("UNLINK").arg(format!("{COPY}{key}"))).await?;
            }
            self.measured.push(measured?);
        }
        Ok(())
    }

    /// No claim is decided without a log that the lane has begun.
    async fn begin_log(&self, target: &Target) -> anyhow::Result<()> {
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(format!("{COPY}{}", self.log_key));
        run(target, command.arg("bench").arg("$").arg("MKSTREAM")).await
    }

    async fn measure(&self, target: &Target, pipelined: u32) -> anyhow::Result<Measured> {
        let mut command = Command::new(self.program);
        command.args(["-s", &self.socket, "-q", "-r", DIGITS_VALUES]);
        command.args(["-n", &self.calls.to_string(), "-c", &self.connections.to_string()]);
        command.args(["-P", &pipelined.to_string()]).args(&self.call);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let (stock, before, began) =
            (self.stock(target).await?, target.processes.read(), Instant::now());
        let status = command.status().await?;
        let took = began.elapsed();
        let after = target.processes.read();
        ensure!(status.success(), "{} ended with {status}", self.program);
        let sold = stock - self.stock(target).await?;
        let calls = i64::from(self.calls);
        let repeats = calls - sold;
        ensure!(
            (0..=calls / REPEATS + 5).contains(&repeats),
            "{} called the claim script {calls} times, but that took {sold} units",
            self.program
        );
        let cpu = CpuTimes::per_request(before, after, self.calls.into());
        Ok(Measured {
            pipelined,
            calls_per_second: f64::from(self.calls) / took.as_secs_f64(),
            redis_us_per_call: cpu.redis,
        })
    }

    async fn stock(&self, target: &Target) -> anyhow::Result<i64> {
        let mut command = redis::cmd("HGET");
        command.arg(format!("{COPY}{}", self.coupon_key)).arg("stock");
        Ok(judge(target)?.redis.query(&command).await?)
    }

    /// The result.
    pub fn ceilings(&self) -> Vec<ScriptCeiling> {
        let of = |pipelined| {
            let all = move || {
                self.measured.iter().filter(move |measured| measured.pipelined == pipelined)
            };
            ScriptCeiling {
                pipelined,
                connections: self.connections,
                calls_per_second: Spread::of(all().map(|measured| measured.calls_per_second)),
                redis_us_per_call: Spread::of(
                    all().filter_map(|measured| measured.redis_us_per_call),
                ),
            }
        };
        PIPELINED.into_iter().map(of).collect()
    }
}

async fn find_program() -> Option<&'static str> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
        if command.stderr(Stdio::null()).status().await.is_ok_and(|status| status.success()) {
            return Some(program);
        }
    }
    None
}

/// From now on Redis says what it is asked.
async fn monitor(socket: &str) -> anyhow::Result<BufReader<UnixStream>> {
    let mut connection = BufReader::new(UnixStream::connect(socket).await?);
    connection.write_all(b"MONITOR\r\n").await?;
    let mut said = String::new();
    connection.read_line(&mut said).await?;
    ensure!(said.starts_with("+OK"), "Redis doesn't let itself be watched: {said}");
    Ok(connection)
}

/// The call in which the service asked for this user and this order.
async fn own_call(
    monitor: BufReader<UnixStream>,
    user: &str,
    order: &str,
) -> anyhow::Result<Vec<String>> {
    let mut lines = monitor.lines();
    while let Some(line) = lines.next_line().await? {
        let call = arguments_in(&line);
        let names = |what: &str| call.iter().any(|argument| argument == what);
        if call.first().is_some_and(|name| name == "EVALSHA") && names(user) && names(order) {
            return Ok(call);
        }
    }
    anyhow::bail!("the service's own call of the claim script was not seen")
}

/// `+1700000000.123456 [0 unix:/path] "EVALSHA" "..." "3"`: what stands in quotes. Nothing that the service sends holds any.
fn arguments_in(line: &str) -> Vec<String> {
    let quoted = line.split_once(" \"").map_or("", |(_, quoted)| quoted);
    let quoted = quoted.trim_end();
    let quoted = quoted.strip_suffix('"').unwrap_or(quoted);
    quoted.split("\" \"").map(str::to_owned).collect()
}

/// The keys that a call names; there it names their copies from now on.
fn keys_of(call: &mut [String]) -> anyhow::Result<Vec<String>> {
    let count: usize = call.get(2).context("a script has keys")?.parse()?;
    let named = call.get_mut(3..3 + count).context("a script has as many keys as it says")?;
    let keys = named.to_vec();
    for key in named {
        key.insert_str(0, COPY);
    }
    Ok(keys)
}

async fn run(target: &Target, command: &Cmd) -> anyhow::Result<()> {
    Ok(judge(target)?.redis.query(command).await?)
}

fn judge(target: &Target) -> anyhow::Result<&Judge> {
    target.judge.as_ref().context("private servers are judged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_and_led_to_copies() {
        let line = "+1700000000.123456 [0 unix:/a b.sock] \"EVALSHA\" \"c0ffee\" \"2\" \"fs:a\" \"fs:b\" \"42\" \"\"";
        let mut call = arguments_in(line);
        assert_eq!(call, ["EVALSHA", "c0ffee", "2", "fs:a", "fs:b", "42", ""]);
        assert_eq!(keys_of(&mut call).unwrap(), ["fs:a", "fs:b"]);
        assert_eq!(call[3..], ["bench:fs:a", "bench:fs:b", "42", ""]);
        assert!(arguments_in("+OK").iter().all(String::is_empty));
        assert!(keys_of(&mut ["EVALSHA".to_owned(), "x".into(), "1".into()]).is_err());
    }
}
