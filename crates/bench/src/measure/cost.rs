//! The cost of the requests of a slice, until everything that they sold is written: CPU time of each process, Redis by
//! command, and bytes of its append-only file.
//!
//! The readings stand before the first request, the warm-up included, and behind the last row. So the writer's part is
//! whole, unlike in the figures that a slice has of its measured seconds.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::service::cpu::CpuTimes;
use crate::service::target::Target;

/// Commands that run a script: their time holds that of the commands inside, which Redis counts by themselves, too.
const SCRIPTS: [&str; 6] = ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];

/// The command that reads the buyers of a sold-out sale; no script uses it.
const READING: &str = "hscan";

/// The cost of one request; of one accepted claim where every request is to win.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Requests, or accepted claims.
    pub requests: u64,
    pub cpu_us: CpuTimes,
    /// The part of `cpu_us` that the kernel spent.
    pub kernel_us: CpuTimes,
    /// Figures of Redis; none where its address is unknown.
    pub redis: Option<RedisCost>,
}

/// The cost of one request in Redis, by its own books.
#[derive(Clone, Debug, Serialize)]
pub struct RedisCost {
    /// Microseconds by command, those inside of scripts included. The scripts around them are no part of it.
    pub commands_us: BTreeMap<String, f64>,
    /// Number of calls by which a claim may ask: scripts, and readings of the buyers of a sold-out sale.
    pub questions: f64,
    /// Growth of the append-only file in bytes; none if Redis has none, or has rewritten it meanwhile.
    pub aof_bytes: Option<f64>,
}

/// All books at one moment.
pub struct Reading {
    cpu: CpuTimes,
    kernel: CpuTimes,
    redis: Option<RedisBooks>,
}

/// The books of Redis.
#[derive(Debug, Default, PartialEq)]
struct RedisBooks {
    /// Calls and microseconds by command.
    commands: BTreeMap<String, (u64, u64)>,
    aof_bytes: Option<u64>,
    /// Bytes of the file after its last rewrite.
    aof_base_bytes: Option<u64>,
}

impl Reading {
    /// Reads the books.
    pub async fn take(target: &Target) -> anyhow::Result<Self> {
        let redis = match &target.judge {
            Some(judge) => {
                let info: String = judge.redis.query(redis::cmd("INFO").arg("all")).await?;
                Some(RedisBooks::parse(&info))
            }
            None => None,
        };
        let processes = &target.processes;
        Ok(Self { cpu: processes.read(), kernel: processes.read_kernel(), redis })
    }

    /// The cost of each of `requests` that came and went until `after`; none without requests.
    pub fn cost(&self, after: &Self, requests: u64) -> Option<Cost> {
        let redis = self.redis.as_ref().zip(after.redis.as_ref());
        (requests > 0).then(|| Cost {
            requests,
            cpu_us: CpuTimes::per_request(self.cpu, after.cpu, requests),
            kernel_us: CpuTimes::per_request(self.kernel, after.kernel, requests),
            redis: redis.map(|(before, after)| before.cost(after, requests)),
        })
    }
}

impl RedisBooks {
    /// Reads a reply to INFO.
    fn parse(info: &str) -> Self {
        let mut books = Self::default();
        for (name, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
            match name {
                "aof_current_size" => books.aof_bytes = value.parse().ok(),
                "aof_base_size" => books.aof_base_bytes = value.parse().ok(),
                _ => {
                    let command = name.strip_prefix("cmdstat_").zip(calls_and_time(value));
                    books.commands.extend(command.map(|(name, spent)| (name.to_owned(), spent)));
                }
            }
        }
        books
    }

    fn cost(&self, after: &Self, requests: u64) -> RedisCost {
        let each = |sum: u64| sum as f64 / requests as f64;
        let spent = after.commands.iter().map(|(name, (calls, us))| {
            let (calls_before, us_before) = self.commands.get(name).copied().unwrap_or_default();
            (name, calls.saturating_sub(calls_before), us.saturating_sub(us_before))
        });
        let is_question = |name: &str| name == READING || SCRIPTS.contains(&name);
        let questions = spent.clone().filter(|(name, ..)| is_question(name));
        let questions = questions.map(|(_, calls, _)| calls).sum();
        let leaves =
            spent.filter(|(name, calls, _)| *calls > 0 && !SCRIPTS.contains(&name.as_str()));
        let grown = self.aof_bytes.zip(after.aof_bytes);
        let grown = grown.filter(|_| self.aof_base_bytes == after.aof_base_bytes);
        RedisCost {
            commands_us: leaves.map(|(name, _, us)| (name.clone(), each(us))).collect(),
            questions: each(questions),
            aof_bytes: grown.map(|(before, after)| each(after.saturating_sub(before))),
        }
    }
}

/// `calls=3,usec=12,...`
fn calls_and_time(value: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let mut fields = value.split(',').filter_map(|field| field.split_once('='));
        fields.find(|(field, _)| *field == name)?.1.parse().ok()
    };
    Some((field("calls")?, field("usec")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# Persistence\r\naof_enabled:1\r\naof_current_size:1000\r\naof_base_size:90\r\n\
        # Commandstats\r\ncmdstat_xadd:calls=10,usec=50,usec_per_call=5.00,rejected_calls=0,failed_calls=0\r\n";

    fn after(base: u64) -> RedisBooks {
        RedisBooks::parse(&format!(
            "aof_current_size:3000\r\naof_base_size:{base}\r\ncmdstat_xadd:calls=30,usec=90,usec_per_call=3.00\r\n\
            cmdstat_evalsha:calls=10,usec=400\r\ncmdstat_config|get:calls=0,usec=0\r\ncmdstat_hscan:calls=2,usec=0\r\n"
        ))
    }

    #[test]
    fn a_script_is_not_counted_beside_its_commands() {
        let cost = RedisBooks::parse(BEFORE).cost(&after(90), 10);
        assert_eq!(
            cost.commands_us,
            BTreeMap::from([("hscan".to_owned(), 0.0), ("xadd".to_owned(), 4.0)])
        );
        assert_eq!((cost.questions, cost.aof_bytes), (1.2, Some(200.0)));
    }

    #[test]
    fn a_file_that_was_rewritten_tells_no_growth() {
        assert_eq!(RedisBooks::parse(BEFORE).cost(&after(91), 10).aof_bytes, None);
        assert_eq!(RedisBooks::parse("x").cost(&after(90), 10).aof_bytes, None);
    }
}
