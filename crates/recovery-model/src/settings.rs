//! Size of a model, its faults, and its guards.

/// An enum that knows all of its values.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$value_doc])* $value,)* }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$value,)*];
        }
    };
}

listed! {
/// A guard of the protocol. A model without one breaks a promise.
Guard {
    /// Rule 2: the claim script compares its caller's epoch with that of lane and sale.
    ClaimReadsEpoch,
    /// Rule 2: the claim script refuses while the lane is closed.
    ClaimReadsState,
    /// Rule 2: the scripts compare the replication ID of the lane's hash with the server's.
    ScriptsCompareReplid,
    /// Rule 2: a claim needs the log.
    ClaimNeedsLog,
    /// Rule 2: a load leaves a sale that is there as it is.
    LoadRefusesExisting,
    /// Rule 7: each transaction that writes orders requires the epoch in which its claims were read.
    WriterHoldsEpoch,
    /// Rule 7: ... and an open lane.
    WriterRequiresOpen,
    /// Rule 7: closing a stock return requires the epoch in which the unit came back.
    ReturnClosedUnderEpoch,
    /// Rule 8: an unwritten claim is noted before the answer, and the lane is looked at once more.
    NotedBeforeAnswer,
    /// Rule 9: unwritten claims are handed in at each new epoch.
    HandedIn,
    /// Rule 9: before an unwritten claim is dropped, the server is asked whether it is the approved one.
    ServerAskedLast,
    /// Rule 5: a late unwritten claim that is in no store closes the lane.
    LateClaimCloses,
    /// Rule 10: a recovery closes the lane in Redis, under its epoch.
    FenceInRedis,
    /// Rule 10: a recovery writes the log before it builds a sale.
    RecoveryDrains,
    /// Rule 11: a buyer or unwritten claim whose user has a newer row is superseded.
    Superseded,
    /// Rules 11 and 16: a promise whose order is closed is known.
    ClosedKnown,
    /// Rules 11 and 17: a claim on an archived sale never becomes an order.
    ArchivedStays,
    /// Rule 12: the load id of a sale is compared.
    LoadIdCompared,
    /// Rule 12: unwritten claims have to be buyers.
    UnwrittenCompared,
    /// Rule 12: a closed order may be a buyer only while its return is open.
    ReturnOpenAsked,
    /// Rule 13: the snapshot of Postgres is taken after the log was drained.
    SnapshotAfterDrain,
    /// Rule 13: shards are named by the epoch of the recovery.
    EpochInShardNames,
    /// Rule 13: dead letters hold units only while live orders leave room.
    LettersWithinRoom,
    /// Rule 13: lists of unpaid orders are always built.
    ListsBuilt,
    /// Rule 14: a dead letter takes its unit in Redis before it becomes an order.
    RetryAdmitted,
    /// Rule 15: the switch compares the epoch.
    SwitchComparesEpoch,
    /// Rule 15: the opening compares the epoch, in Postgres and in Redis.
    OpeningComparesEpoch,
    /// Rule 16: a unit comes back only from the order that was closed.
    ReleaseComparesOrder,
    /// Rule 17: rows are deleted only of sales that are archived and gone from Redis.
    DeletedWhenGone,
    /// Rule 19: a comparison that finds a difference closes the lane.
    ComparisonCloses,
    /// Postgres that went back: each look asks it for the newest acknowledged order.
    LookAsksLast,
    /// ... so does each recovery, which leaves a Postgres without it to the operator.
    RecoveryAsksLast,
    /// ... and each transaction that writes orders.
    WriterAsksLast,
    /// ... and the fence refuses a lane whose epoch isn't lower, which is left to the operator.
    EpochAheadAsked,
    /// Ids carry the epoch.
    EpochInIds,
    /// An opening sets the lane's second above all that was seen.
    OpeningRaisesSecond,
}
}

listed! {
/// A kind of fault.
Fault {
    /// The API process dies, and another begins.
    ApiDies,
    /// A recovery no longer waits for the API process, which is paused.
    ApiPaused,
    /// The worker dies, and another begins.
    WorkerDies,
    /// The leader dies, and another begins.
    LeaderDies,
    /// Another process becomes the leader, while this one's recovery goes on.
    SecondLeader,
    /// An operator closes the lane.
    Closed,
    /// Redis starts anew, and has all it had.
    Restart,
    /// Redis starts anew with an older state; or goes back to one as a replica, and keeps its run and connections.
    RestartedOlder,
    /// FLUSHALL.
    Flushed,
    /// A sale is gone.
    SaleLost,
    /// The buyers of a sale are gone.
    ShardLost,
    /// The order log is gone.
    LogLost,
    /// The memory of Redis goes back with all of its ids: a snapshot of a running machine.
    MemoryWentBack,
    /// A dump of Postgres is restored in place: system identifier, timeline and database stay.
    PostgresWentBack,
    /// A dump of Postgres is restored elsewhere: another system identifier, timeline or database.
    PostgresReplaced,
    /// The clock of Redis is set ahead.
    ClockAhead,
    /// The clock of Redis is set back.
    ClockBehind,
}
}

/// Size of a model, and the guards that it has.
#[derive(Clone, Debug)]
pub struct Settings {
    pub users: u8,
    /// Sales in the lane: 1 or 2.
    pub sales: usize,
    /// Units of each sale.
    pub units: i8,
    /// Claims that are granted, at most.
    pub claims: u8,
    /// Cancellations, at most.
    pub cancels: u8,
    /// Retries and discards of dead letters, at most.
    pub decisions: u8,
    /// Faults in one run, at most.
    pub faults: u8,
    pub kinds: Vec<Fault>,
    /// Unwritten claims are dropped.
    pub drops: bool,
    /// Orders are paid, and users have lists of unpaid orders.
    pub lists: bool,
    /// The sale isn't loaded at first.
    pub loads: bool,
    /// The sale may be archived, and its orders deleted.
    pub archives: bool,
    /// Ids are made of second, epoch and count; without this they are the numbers of the claims.
    pub ids: bool,
    /// Guards that are left out.
    pub without: Vec<Guard>,
}

impl Settings {
    /// True for a guard that the model has.
    pub fn has(&self, guard: Guard) -> bool {
        !self.without.contains(&guard)
    }

    /// These settings with all guards, and without faults.
    pub(crate) fn with_all_guards(&self) -> Self {
        Self { kinds: Vec::new(), without: Vec::new(), ..*self }
    }

    /// True for a kind of fault that may happen.
    pub fn knows(&self, kinds: &[Fault]) -> bool {
        self.faults > 0 && kinds.iter().any(|kind| self.kinds.contains(kind))
    }
}
