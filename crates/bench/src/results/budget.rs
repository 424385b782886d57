//! The budget of a win: the CPU time of each process, in parts, until the win is written.

use serde::{Deserialize, Serialize};

use crate::measure::cost::Cost;
use crate::service::cpu::CpuTimes;

/// Commands of Redis that are named; the others are one part.
const COMMANDS_NAMED: usize = 7;
const MICROSECONDS_IN_A_SECOND: f64 = 1e6;

/// The parts of a win. A later run reads an earlier one's from its `figures.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Commit or binary.
    pub of: String,
    pub wins: u64,
    pub processes: Vec<Process>,
}

/// One process, or all of Postgres.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub name: String,
    pub parts: Vec<Part>,
}

/// A part of the time of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    pub us: f64,
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
    /// The mean of all wins; `everysec` are those without a sync before each answer. None without CPU times.
    pub fn of(of: &str, wins: &[Cost], everysec: &[Cost]) -> Option<Self> {
        let mean = |times: fn(&Cost) -> &CpuTimes, costs: &[Cost]| {
            CpuTimes::mean(costs.iter().map(|cost| (times(cost), cost.requests)))
        };
        let all = mean(|cost| &cost.cpu_us, wins);
        let kernel = mean(|cost| &cost.kernel_us, wins);
        let without_sync = mean(|cost| &cost.kernel_us, everysec).redis;
        let own = |all: Option<f64>, kernel: Option<f64>| {
            let kernel = kernel?;
            Some(vec![part("own code", all? - kernel), part("kernel", kernel)])
        };
        let process = |name: &str, parts| Some(Process { name: name.to_owned(), parts: parts? });
        let mut postgres = own(all.postgres, kernel.postgres);
        postgres.iter_mut().flatten().skip(1).for_each(|part| part.name = "kernel, syncs".into());
        let processes = [
            process("client", own(all.client, kernel.client)),
            process("service", own(all.service, kernel.service)),
            process("Redis", redis(wins, all.redis, kernel.redis, without_sync)),
            process("Postgres", postgres),
        ];
        let processes = processes.into_iter().collect::<Option<Vec<_>>>()?;
        let wins = wins.iter().map(|cost| cost.requests).sum();
        Some(Self { of: of.to_owned(), wins, processes })
    }

    /// Microseconds of one process.
    pub fn us(&self, name: &str) -> Option<f64> {
        Some(self.processes.iter().find(|process| process.name == name)?.us())
    }

    /// Microseconds of all processes but the client.
    pub fn measured_us(&self) -> f64 {
        let measured = self.processes.iter().filter(|process| process.name != "client");
        measured.map(Process::us).sum()
    }

    /// Wins a second on so many cores, with the lanes spread over so many servers of Redis. Each of these runs its
    /// commands on one thread; all else runs on any core.
    pub fn on(&self, cores: u32, redis_servers: u32) -> Option<Capacity> {
        let redis = self.us("Redis").filter(|us| *us > 0.0)?;
        let by_redis = f64::from(redis_servers) * MICROSECONDS_IN_A_SECOND / redis;
        let by_cores = f64::from(cores) * MICROSECONDS_IN_A_SECOND / self.measured_us();
        let wins_per_second = by_redis.min(by_cores);
        let busy = |us: f64| wins_per_second * us / MICROSECONDS_IN_A_SECOND;
        Some(Capacity {
            wins_per_second,
            service_cores: busy(self.us("service")?),
            redis_cores: busy(redis),
            postgres_cores: busy(self.us("Postgres")?),
            redis_is_full: by_redis < by_cores,
        })
    }
}

impl Process {
    /// All parts.
    pub fn us(&self) -> f64 {
        self.parts.iter().map(|part| part.us).sum()
    }
}

/// Redis by command. The commands' time is by Redis's own clock, all other times are by the kernel's.
fn redis(
    wins: &[Cost],
    all: Option<f64>,
    kernel: Option<f64>,
    kernel_without_sync: Option<f64>,
) -> Option<Vec<Part>> {
    let kernel = kernel?;
    let own = all? - kernel;
    let mut commands = commands(wins);
    let named = commands.iter().map(|part| part.us).sum::<f64>();
    if named > own && named > 0.0 {
        // Redis's clock runs on while the processor works for another process.
        commands.iter_mut().for_each(|part| part.us *= own / named);
    }
    let named = named.min(own);
    let rest = commands.split_off(commands.len().min(COMMANDS_NAMED));
    let rest = rest.iter().map(|part| part.us).sum();
    let sync = kernel_without_sync.map_or(0.0, |without| (kernel - without).max(0.0));
    commands.push(part("other commands", rest));
    commands.push(part("script, protocol", own - named));
    commands.push(part("kernel", kernel - sync));
    commands.push(part("sync of each answer", sync));
    Some(commands)
}

/// Mean time of each command for a win, the longest first.
fn commands(wins: &[Cost]) -> Vec<Part> {
    let requests: u64 = wins.iter().map(|cost| cost.requests).sum();
    let mut commands: Vec<Part> = Vec::new();
    for cost in wins {
        let of_redis = cost.redis.iter().flat_map(|redis| &redis.commands_us);
        for (name, us) in of_redis {
            let us = us * cost.requests as f64 / requests.max(1) as f64;
            let name = name.to_uppercase();
            match commands.iter_mut().find(|part| part.name == name) {
                Some(part) => part.us += us,
                None => commands.push(Part { name, us }),
            }
        }
    }
    commands.sort_by(|a, b| b.us.total_cmp(&a.us));
    commands
}

fn part(name: &str, us: f64) -> Part {
    Part { name: name.to_owned(), us: us.max(0.0) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::measure::cost::RedisCost;

    fn cost(redis: f64, redis_kernel: f64, commands: &[(&str, f64)]) -> Cost {
        let times = |us: f64, redis: f64| CpuTimes {
            service: Some(us),
            redis: Some(redis),
            postgres: Some(us),
            client: Some(us),
        };
        let commands_us: BTreeMap<String, f64> =
            commands.iter().map(|(name, us)| ((*name).to_owned(), *us)).collect();
        Cost {
            requests: 100,
            cpu_us: times(20.0, redis),
            kernel_us: times(5.0, redis_kernel),
            redis: Some(RedisCost { commands_us, questions: 1.0, aof_bytes: None }),
        }
    }

    fn parts(budget: &Budget, name: &str) -> Vec<(String, f64)> {
        let process = budget.processes.iter().find(|process| process.name == name).unwrap();
        process.parts.iter().map(|part| (part.name.clone(), part.us)).collect()
    }

    #[test]
    fn the_parts_of_redis_are_all_of_redis() {
        let win = cost(30.0, 12.0, &[("xadd", 6.0), ("hset", 2.0)]);
        let everysec = cost(20.0, 8.0, &[]);
        let budget = Budget::of("x", &[win], &[everysec]).unwrap();
        let expected = [
            ("XADD", 6.0),
            ("HSET", 2.0),
            ("other commands", 0.0),
            ("script, protocol", 10.0),
            ("kernel", 8.0),
            ("sync of each answer", 4.0),
        ];
        assert_eq!(parts(&budget, "Redis"), expected.map(|(name, us)| (name.to_owned(), us)));
        assert_eq!(budget.us("Redis"), Some(30.0));
        assert_eq!(budget.measured_us(), 70.0);
    }

    #[test]
    fn commands_never_take_more_than_the_process() {
        let win = cost(30.0, 12.0, &[("xadd", 27.0), ("hset", 9.0)]);
        let budget = Budget::of("x", &[win.clone(), win], &[]).unwrap();
        assert_eq!(budget.us("Redis"), Some(30.0));
        assert_eq!(parts(&budget, "Redis")[0], ("XADD".to_owned(), 13.5));
        assert_eq!(budget.wins, 200);
        assert_eq!(Budget::of("x", &[], &[]), None);
    }

    #[test]
    fn redis_is_the_limit_until_there_are_enough_servers() {
        let win = cost(40.0, 10.0, &[]);
        let budget = Budget::of("x", &[win], &[]).unwrap();
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
