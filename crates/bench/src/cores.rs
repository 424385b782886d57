//! Cores of its own for the client (Linux only; elsewhere it shares them). A flood must not take its CPU time from the
//! service, or the machine's limit would be measured in place of the service's.

use std::fs;

use nix::unistd::Pid;

/// Two parts of the cores that this process may use: some at the end for the client, the others for what is measured.
pub struct Apart {
    /// Number of cores of the client.
    pub client_cores: usize,
    all: affinity::Cores,
    client: affinity::Cores,
}

impl Apart {
    /// Gives processes that start from here on the cores of the service, as if the machine had no others. None where there
    /// are too few.
    pub fn begin(client_cores: usize) -> Option<Self> {
        let all = affinity::Cores::of_this_process()?;
        let (measured, client) = all.split(client_cores)?;
        move_to(&measured);
        Some(Self { client_cores, all, client })
    }

    /// Now that it has been started, this process goes to the client's cores.
    pub fn leave_it_alone(&self) {
        move_to(&self.client);
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        move_to(&self.all);
    }
}

/// All threads of this process; those that are started later follow who starts them.
fn move_to(cores: &affinity::Cores) {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ids = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    ids.map(Pid::from_raw).for_each(|thread| cores.take(thread));
}

#[cfg(target_os = "linux")]
mod affinity {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    pub struct Cores(CpuSet);

    impl Cores {
        pub fn of_this_process() -> Option<Self> {
            sched_getaffinity(Pid::from_raw(0)).ok().map(Self)
        }

        /// All but the last `count`, and these.
        pub fn split(&self, count: usize) -> Option<(Self, Self)> {
            let cores = self.numbers();
            let (rest, last) = cores.split_at_checked(cores.len().checked_sub(count)?)?;
            (!rest.is_empty()).then_some((Self::only(rest)?, Self::only(last)?))
        }

        /// A thread that has ended meanwhile needs none.
        pub fn take(&self, thread: Pid) {
            let _ = sched_setaffinity(thread, &self.0);
        }

        pub fn numbers(&self) -> Vec<usize> {
            (0..CpuSet::count()).filter(|core| self.0.is_set(*core).unwrap_or(false)).collect()
        }

        fn only(cores: &[usize]) -> Option<Self> {
            let mut set = CpuSet::new();
            cores.iter().try_for_each(|core| set.set(*core)).ok()?;
            Some(Self(set))
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod affinity {
    use nix::unistd::Pid;

    pub enum Cores {}

    impl Cores {
        pub fn of_this_process() -> Option<Self> {
            None
        }

        pub fn split(&self, _count: usize) -> Option<(Self, Self)> {
            match *self {}
        }

        pub fn one(&self, _index: usize) -> Option<Self> {
            match *self {}
        }

        pub fn take(&self, _thread: Pid) {
            match *self {}
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::affinity::Cores;
    use super::*;

    #[test]
    fn who_is_measured_and_who_measures_share_no_core() {
        let all = Cores::of_this_process().unwrap().numbers();
        assert!(Apart::begin(all.len()).is_none(), "a process would be left without a core");
        let Some(apart) = Apart::begin(1) else { return };
        let measured = Cores::of_this_process().unwrap().numbers();
        apart.leave_it_alone();
        let client = Cores::of_this_process().unwrap().numbers();
        assert_eq!([measured, client].concat(), all);
        drop(apart);
        assert_eq!(Cores::of_this_process().unwrap().numbers(), all);
    }
}
