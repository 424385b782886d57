//! Processor time and memory that this process has used.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Processor time of this process since its start, over all processors.
pub fn cpu_time() -> Option<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    u64::try_from(micros).ok().map(Duration::from_micros)
}

/// Resident memory of this process, in bytes; `None` on a system without `/proc`.
pub fn memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_something() {
        assert!(cpu_time().is_some());
        assert!(memory_bytes().is_none_or(|bytes| bytes > 1_000_000));
    }
}
