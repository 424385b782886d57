//! CPU time and memory of processes, from the kernel's own books (`/proc`, so Linux only; elsewhere there are no such
//! figures).

use std::fs;

use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

/// The processes whose CPU time is told apart. None, or empty: not on this machine, or not known.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// All processes of the service.
    pub service: Vec<u32>,
    pub redis: Option<u32>,
    pub postgres: Option<u32>,
    /// Processes of Postgres that work for the bench alone.
    pub not_counted: Vec<u32>,
}

/// CPU time in microseconds: since the start of each process, or of a slice, or for one request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CpuTimes {
    pub service: Option<f64>,
    pub redis: Option<f64>,
    pub postgres: Option<f64>,
    pub client: Option<f64>,
}

/// Times in `/proc/<pid>/stat` (proc_pid_stat(5)), in clock ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// utime + stime.
    own: u64,
    /// stime: the part of `own` that was spent in the kernel.
    kernel: u64,
    /// cutime + cstime: children that have ended and were waited for.
    ended_children: u64,
    /// cstime: the part of `ended_children` that was spent in the kernel.
    ended_in_kernel: u64,
}

impl Processes {
    /// The CPU time used so far.
    pub fn read(&self) -> CpuTimes {
        self.sum(|stat| (stat.own, stat.ended_children))
    }

    /// The part of it that the kernel spent for them: connections, files, memory.
    pub fn read_kernel(&self) -> CpuTimes {
        self.sum(|stat| (stat.kernel, stat.ended_in_kernel))
    }

    /// Sums of a time of each process, and of its children that have ended.
    fn sum(&self, times: fn(&Stat) -> (u64, u64)) -> CpuTimes {
        let own = |pid: u32| Some(times(&stat(&pid.to_string())?).0);
        let services = self.service.iter().map(|pid| own(*pid));
        let service = services.sum::<Option<u64>>().filter(|_| !self.service.is_empty());
        let postgres = self.postgres.and_then(|pid| self.with_children(pid, times));
        CpuTimes {
            service: service.map(microseconds),
            redis: self.redis.and_then(own).map(microseconds),
            postgres: postgres.map(microseconds),
            client: stat("self").map(|stat| microseconds(times(&stat).0)),
        }
    }

    /// Postgres has a process for each connection, all children of the first one.
    fn with_children(&self, pid: u32, times: fn(&Stat) -> (u64, u64)) -> Option<u64> {
        let first = stat(&pid.to_string())?;
        let names = fs::read_dir("/proc").ok()?.flatten();
        let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let counted = pids.filter(|pid| !self.not_counted.contains(pid));
        let children = counted.filter_map(|child| stat(&child.to_string()));
        let children = children.filter(|child| child.parent == pid).map(|child| times(&child).0);
        let (own, ended) = times(&first);
        Some(own + ended + children.sum::<u64>())
    }
}

impl CpuTimes {
    /// CPU time between two readings, for each of `requests`.
    pub fn per_request(before: Self, after: Self, requests: u64) -> Self {
        let share = |before: Option<f64>, after: Option<f64>| {
            (requests > 0).then(|| Some((after? - before?) / requests as f64))?
        };
        Self {
            service: share(before.service, after.service),
            redis: share(before.redis, after.redis),
            postgres: share(before.postgres, after.postgres),
            client: share(before.client, after.client),
        }
    }

    /// Service, Redis and Postgres together.
    pub fn measured(&self) -> Option<f64> {
        Some(self.service? + self.redis? + self.postgres?)
    }

    /// The mean of several, each with the number of its requests.
    pub fn mean<'a>(of: impl Iterator<Item = (&'a Self, u64)> + Clone) -> Self {
        let requests: u64 = of.clone().map(|(_, requests)| requests).sum();
        let mean = |part: fn(&Self) -> Option<f64>| {
            let used = of.clone().map(|(cpu, requests)| Some(part(cpu)? * requests as f64));
            let used = used.sum::<Option<f64>>()?;
            (requests > 0).then(|| used / requests as f64)
        };
        Self {
            service: mean(|cpu| cpu.service),
            redis: mean(|cpu| cpu.redis),
            postgres: mean(|cpu| cpu.postgres),
            client: mean(|cpu| cpu.client),
        }
    }
}

fn stat(pid: &str) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
fn parse(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The state is the first of these, and the third in the manual.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(4)?).ok()?,
        own: number(14)? + number(15)?,
        kernel: number(15)?,
        ended_children: number(16)? + number(17)?,
        ended_in_kernel: number(17)?,
    })
}

fn microseconds(ticks: u64) -> f64 {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    ticks as f64 * 1e6 / per_second as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_may_hold_spaces_and_parentheses() {
        let line =
            "71 (postgres: io) w (2) S 70 71 71 0 -1 4194560 9 8 7 6 150 50 30 12 20 0 1 0 1000";
        let stat =
            Stat { parent: 70, own: 200, kernel: 50, ended_children: 42, ended_in_kernel: 12 };
        assert_eq!(parse(line), Some(stat));
        assert_eq!(parse("71 (x"), None);
        assert_eq!(parse("71 (x) S 1"), None);
    }

    #[test]
    fn a_request_costs_what_was_used_meanwhile() {
        let at = |service| CpuTimes { service: Some(service), ..CpuTimes::default() };
        let cost = CpuTimes::per_request(at(1_000.0), at(5_000.0), 100);
        assert_eq!((cost.service, cost.redis), (Some(40.0), None));
        assert_eq!(CpuTimes::per_request(at(1.0), at(2.0), 0).service, None);
        assert_eq!(cost.measured(), None, "a part that is not known is not nothing");
        let mean = CpuTimes::mean([(&at(10.0), 1), (&at(40.0), 2)].into_iter());
        assert_eq!((mean.service, mean.redis), (Some(30.0), None));
    }
}
