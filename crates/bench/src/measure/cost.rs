//! The cost of the requests of a slice, until everything that they sold is written: CPU time of each process, calls of
//! Redis, and bytes of its append-only file.
//!
//! The readings stand before the first request, the warm-up included, and behind the last row, so the writer's part is
//! whole.

use serde::Serialize;

use crate::service::cpu::CpuTimes;
use crate::service::target::Target;

/// The commands by which a claim may ask Redis: scripts, and the one that reads the buyers of a sold-out sale, which no
/// script uses.
const QUESTIONS: [&str; 4] = ["cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall", "cmdstat_hscan"];

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
    /// Number of calls by which a claim may ask, those of the worker included.
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

#[derive(Debug, Default, PartialEq)]
struct RedisBooks {
    questions: u64,
    aof_bytes: Option<u64>,
    /// Bytes of the file after its last rewrite.
    aof_base_bytes: Option<u64>,
}

impl Reading {
    /// Reads the books.
    pub async fn take(target: &Target) -> anyhow::Result<Self> {
        let redis = match target.judge() {
            Ok(judge) => {
                let info: String = judge.redis.query(redis::cmd("INFO").arg("all")).await?;
                Some(RedisBooks::parse(&info))
            }
            Err(_) => None,
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
                _ if QUESTIONS.contains(&name) => {
                    let calls =
                        value.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
                    books.questions += calls.and_then(|calls| calls.parse().ok()).unwrap_or(0u64);
                }
                _ => {}
            }
        }
        books
    }

    fn cost(&self, after: &Self, requests: u64) -> RedisCost {
        let each = |sum: u64| sum as f64 / requests as f64;
        let grown = self.aof_bytes.zip(after.aof_bytes);
        let grown = grown.filter(|_| self.aof_base_bytes == after.aof_base_bytes);
        RedisCost {
            questions: each(after.questions.saturating_sub(self.questions)),
            aof_bytes: grown.map(|(before, after)| each(after.saturating_sub(before))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_rewritten_tells_no_growth() {
        let before = RedisBooks::parse("aof_current_size:1000\r\naof_base_size:90\r\n");
        let after = |base: u64| {
            RedisBooks::parse(&format!(
                "aof_current_size:3000\r\naof_base_size:{base}\r\ncmdstat_xadd:calls=30,usec=90\r\n\
                 cmdstat_evalsha:calls=10,usec=400\r\ncmdstat_hscan:calls=2,usec=0\r\n"
            ))
        };
        let cost = before.cost(&after(90), 10);
        assert_eq!((cost.questions, cost.aof_bytes), (1.2, Some(200.0)));
        assert_eq!(before.cost(&after(91), 10).aof_bytes, None);
        assert_eq!(RedisBooks::parse("x").cost(&after(90), 10).aof_bytes, None);
    }
}
