//! Faults: each with the thing that it breaks.

use std::fmt;

use clap::ValueEnum;

/// A way in which a part of the installation is broken for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// SIGKILL of a process that answers requests; started again at the end.
    ApiKill,
    /// SIGKILL of a worker; started again at the end.
    WorkerKill,
    /// SIGKILL of both workers; started again at the end.
    WorkersKill,
    /// SIGSTOP of a process that answers requests, SIGCONT at the end.
    ApiPause,
    /// SIGSTOP of a worker, SIGCONT at the end; often for longer than leases last.
    WorkerPause,
    /// SIGTERM and a new start of each process in turn.
    RollingRestart,
    /// SIGKILL of Redis; started again at the end, with its file as it is.
    RedisKill,
    /// SIGSTOP of Redis, SIGCONT at the end.
    RedisPause,
    /// Each third reply of Redis to a process is dropped, and its connection cut.
    RepliesDropped,
    /// Each piece of data between a process and Redis is late.
    Latency,
    /// The data between a process and Redis arrive in pieces of one byte.
    OneByteSlices,
    /// No data job between a process and Redis, and the connections stay open.
    BlackHole,
    /// The connections between a process and Redis are reset, again and again.
    Resets,
    /// Redis is killed at the end, and its append-only file is cut back to its length at the beginning.
    AofCutBack,
    /// Redis is killed at the end, and starts with the files that it had at the beginning.
    OlderFile,
    /// FLUSHALL.
    FlushAll,
    /// The hash of a sale is deleted.
    SaleDeleted,
    /// A shard of the buyers of a sale is deleted.
    ShardDeleted,
    /// The replica follows no more from the beginning on; at the end Redis is killed, and the replica is promoted.
    Promotion,
    /// Redis loads the data that its replica had at the beginning, and is a master again: the same life, older data.
    Resync,
    /// The memory of Redis goes back to the beginning, with its life, its replication ID and its connections: a snapshot
    /// of a running machine.
    MemorySnapshot,
    /// Redis may take no more memory.
    MemoryFull,
    /// The disk below Redis is full.
    DiskFull,
    /// Each sync of Redis's file fails.
    SyncFails,
    /// Each sync of Redis's file takes 200 ms longer.
    SyncSlow,
    /// Redis's clock is an hour off.
    RedisClock,
    /// The clock of a process is an hour off.
    ServiceClock,
    /// Entries that can't become orders are appended to the log.
    Poison,
    /// The consumer group of the log is destroyed.
    GroupDestroyed,
    /// The order log is deleted.
    LogDeleted,
    /// SCRIPT FLUSH.
    ScriptsFlushed,
    /// SIGKILL of Postgres; started again at the end.
    PostgresKill,
    /// No data job between a process and Postgres, and the connections stay open.
    PostgresBlackHole,
    /// Postgres is dumped at the beginning. At the end all processes are killed, and the dump takes the place of what
    /// Postgres has; then they start, and an operator says which store is right.
    PostgresRestored,
    /// A service with another database is started on this Redis.
    ForeignInstallation,
}

/// A thing that at most one fault has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// The process and the files of Redis.
    RedisServer,
    /// A process of the service, by its place.
    Process(usize),
    /// The way from a process to Redis.
    WayToRedis(usize),
    /// The way from a process to Postgres.
    WayToPostgres(usize),
    PostgresServer,
    /// All processes of the service.
    AllProcesses,
    /// Both workers.
    Workers,
    /// Nothing that another fault would disturb.
    Free,
}

/// Things that a machine must permit for a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A small file system of our own, in a mount name space of our own.
    Mount,
    /// `strace`, and the right to attach it.
    Strace,
    /// A C compiler, for the library that shifts clocks.
    Compiler,
}

/// Places of the processes that answer requests; the workers' places follow.
pub const APIS: usize = 2;
/// Processes of the service.
pub const PROCESSES: usize = 4;

impl Fault {
    /// Faults that a plan has only if they are asked for by name: stores that don't belong together.
    const APART: [Self; 2] = [Self::PostgresRestored, Self::ForeignInstallation];

    /// Each fault that a plan has by itself.
    pub fn all() -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|fault| !Self::APART.contains(fault)).collect()
    }

    /// Name of the fault, as on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The thing that the fault has for itself while it lasts, at a place among the processes.
    pub fn ground(self, place: usize) -> Ground {
        match self {
            Self::ApiKill | Self::WorkerKill | Self::ApiPause | Self::WorkerPause => {
                Ground::Process(place)
            }
            Self::RollingRestart | Self::PostgresRestored => Ground::AllProcesses,
            Self::WorkersKill => Ground::Workers,
            Self::RepliesDropped
            | Self::Latency
            | Self::OneByteSlices
            | Self::BlackHole
            | Self::Resets => Ground::WayToRedis(place),
            Self::RedisKill
            | Self::RedisPause
            | Self::AofCutBack
            | Self::OlderFile
            | Self::Promotion
            | Self::Resync
            | Self::MemorySnapshot
            | Self::DiskFull
            | Self::SyncFails
            | Self::SyncSlow => Ground::RedisServer,
            Self::PostgresKill => Ground::PostgresServer,
            Self::PostgresBlackHole => Ground::WayToPostgres(place),
            Self::FlushAll
            | Self::SaleDeleted
            | Self::ShardDeleted
            | Self::MemoryFull
            | Self::RedisClock
            | Self::ServiceClock
            | Self::Poison
            | Self::GroupDestroyed
            | Self::LogDeleted
            | Self::ScriptsFlushed
            | Self::ForeignInstallation => Ground::Free,
        }
    }

    /// Places of the processes that the fault may be about.
    pub fn places(self) -> std::ops::Range<usize> {
        match self {
            Self::ApiKill | Self::ApiPause => 0..APIS,
            Self::WorkerKill | Self::WorkerPause => APIS..PROCESSES,
            _ => 0..PROCESSES,
        }
    }

    /// True for a fault that is done at once, so that its end means nothing.
    pub fn is_instant(self) -> bool {
        matches!(
            self,
            Self::FlushAll
                | Self::SaleDeleted
                | Self::ShardDeleted
                | Self::Poison
                | Self::GroupDestroyed
                | Self::LogDeleted
                | Self::ScriptsFlushed
                | Self::RollingRestart
                | Self::ForeignInstallation
        )
    }

    /// Permission that the fault needs; `None` where it works on every Linux.
    pub fn need(self) -> Option<Need> {
        match self {
            Self::DiskFull => Some(Need::Mount),
            Self::SyncFails | Self::SyncSlow => Some(Need::Strace),
            Self::RedisClock | Self::ServiceClock => Some(Need::Compiler),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl Ground {
    /// True for things that two faults must not have at one time.
    pub fn clashes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Free, _) | (_, Self::Free) => false,
            (Self::AllProcesses, Self::Process(_) | Self::Workers)
            | (Self::Process(_) | Self::Workers, Self::AllProcesses) => true,
            (Self::Workers, Self::Process(place)) | (Self::Process(place), Self::Workers) => {
                place >= APIS
            }
            (one, two) => one == two,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_faults_never_have_the_same_process() {
        let kill = Fault::ApiKill.ground(1);
        assert!(kill.clashes(Fault::ApiPause.ground(1)));
        assert!(!kill.clashes(Fault::ApiPause.ground(0)));
        assert!(kill.clashes(Fault::RollingRestart.ground(0)));
        assert!(!kill.clashes(Fault::WorkersKill.ground(2)));
        assert!(Fault::WorkerPause.ground(3).clashes(Fault::WorkersKill.ground(2)));
        assert!(!Fault::FlushAll.ground(0).clashes(Fault::FlushAll.ground(0)));
    }
}
