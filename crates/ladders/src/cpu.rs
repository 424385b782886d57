//! CPU time of processes, from the kernel's books (proc_pid_stat(5)); zero on systems without `/proc`.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

/// CPU time of these processes so far, in microseconds, with that of their living and ended children: Postgres has a
/// process for each connection.
pub fn microseconds(pids: &[u32]) -> f64 {
    let stats: Vec<Stat> = processes().filter_map(stat).collect();
    let counted =
        stats.iter().filter(|stat| pids.contains(&stat.pid) || pids.contains(&stat.parent));
    let ticks: u64 = counted
        .map(
            |stat| if pids.contains(&stat.pid) { stat.own + stat.ended_children } else { stat.own },
        )
        .sum();
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    ticks as f64 * 1e6 / per_second as f64
}

/// Times in clock ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    pid: u32,
    parent: u32,
    own: u64,
    ended_children: u64,
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
fn parse(line: &str) -> Option<Stat> {
    let (pid, rest) = line.split_once(' ')?;
    let fields: Vec<&str> = rest.rsplit_once(')')?.1.split_whitespace().collect();
    // The state is the first of these, and the third in the manual.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        pid: pid.parse().ok()?,
        parent: u32::try_from(number(4)?).ok()?,
        own: number(14)? + number(15)?,
        ended_children: number(16)? + number(17)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_may_hold_spaces_and_parentheses() {
        let line =
            "71 (postgres: io) w (2) S 70 71 71 0 -1 4194560 9 8 7 6 150 50 30 12 20 0 1 0 1000";
        let expected = Stat { pid: 71, parent: 70, own: 200, ended_children: 42 };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("71 (x"), None);
    }
}
