//! The budget of a win: the CPU time of each process until the win is written, and what a machine could do by it.

use serde::Serialize;

use crate::measure::cost::Cost;
use crate::measure::slice::Slice;
use crate::service::cpu::CpuTimes;

const MICROSECONDS_IN_A_SECOND: f64 = 1e6;

/// The mean of all wins of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Budget {
    /// Commit or binary.
    pub of: String,
    pub wins: u64,
    /// Microseconds of a win, and the part of them that the kernel spent.
    pub cpu_us: CpuTimes,
    pub kernel_us: CpuTimes,
    /// The kernel's part without a sync before each answer: what Redis spends more is the sync.
    pub everysec_kernel_us: CpuTimes,
    /// Growth of Redis's append-only file in bytes.
    pub aof_bytes: Option<f64>,
}

/// Wins that a machine could do by this budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    pub wins_per_second: f64,
    pub service_cores: f64,
    pub redis_cores: f64,
    pub postgres_cores: f64,
    /// Redis is the limit, and not the number of cores.
    pub redis_is_full: bool,
}

impl Budget {
    /// `None` without CPU times.
    pub fn of(of: &str, wins: &[&Slice], everysec: &[Slice]) -> Option<Self> {
        let everysec: Vec<&Slice> = everysec.iter().collect();
        let cpu_us = mean(wins, |cost| &cost.cpu_us);
        cpu_us.measured()?;
        let grown: Vec<f64> =
            costs(wins).filter_map(|cost| cost.redis.as_ref()?.aof_bytes).collect();
        Some(Self {
            of: of.to_owned(),
            wins: costs(wins).map(|cost| cost.requests).sum(),
            cpu_us,
            kernel_us: mean(wins, |cost| &cost.kernel_us),
            everysec_kernel_us: mean(&everysec, |cost| &cost.kernel_us),
            aof_bytes: crate::figures::Spread::of(grown).map(|grown| grown.median),
        })
    }

    /// Wins a second on so many cores, with the lanes spread over so many servers of Redis. Each of these runs its
    /// commands on one thread; all else runs on any core.
    pub fn on(&self, cores: u32, redis_servers: u32) -> Option<Capacity> {
        let redis = self.cpu_us.redis.filter(|us| *us > 0.0)?;
        let by_redis = f64::from(redis_servers) * MICROSECONDS_IN_A_SECOND / redis;
        let by_cores = f64::from(cores) * MICROSECONDS_IN_A_SECOND / self.cpu_us.measured()?;
        let wins_per_second = by_redis.min(by_cores);
        let busy = |us: f64| wins_per_second * us / MICROSECONDS_IN_A_SECOND;
        Some(Capacity {
            wins_per_second,
            service_cores: busy(self.cpu_us.service?),
            redis_cores: busy(redis),
            postgres_cores: busy(self.cpu_us.postgres?),
            redis_is_full: by_redis < by_cores,
        })
    }
}

fn costs<'a>(slices: &[&'a Slice]) -> impl Iterator<Item = &'a Cost> + Clone {
    slices.iter().filter_map(|slice| slice.cost.as_ref()).collect::<Vec<_>>().into_iter()
}

fn mean(slices: &[&Slice], times: fn(&Cost) -> &CpuTimes) -> CpuTimes {
    CpuTimes::mean(costs(slices).map(|cost| (times(cost), cost.requests)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_is_the_limit_until_there_are_enough_servers() {
        let us = Some(20.0);
        let cpu_us = CpuTimes { service: us, redis: Some(40.0), postgres: us, client: us };
        let none = CpuTimes::default();
        let budget = Budget {
            of: "x".to_owned(),
            wins: 1,
            cpu_us,
            kernel_us: none,
            everysec_kernel_us: none,
            aof_bytes: None,
        };
        let one = budget.on(16, 1).unwrap();
        assert_eq!(
            (one.wins_per_second, one.redis_cores, one.redis_is_full),
            (25_000.0, 1.0, true)
        );
        assert_eq!(one.service_cores, 0.5);
        let many = budget.on(16, 16).unwrap();
        assert_eq!((many.wins_per_second, many.redis_is_full), (200_000.0, false));
        let sum = many.service_cores + many.redis_cores + many.postgres_cores;
        assert!((sum - 16.0).abs() < 1e-9, "{sum}");
    }
}
