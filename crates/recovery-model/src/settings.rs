//! Size of a model, its guards, and the weak points of the code.

/// A guard of the protocol. A model without one has a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// `lua/claim.lua` compares its caller's epoch with that of lane and sale.
    ClaimReadsEpoch,
    /// `lua/claim.lua` refuses while the lane is recovering.
    ClaimReadsState,
    /// Each transaction that writes orders holds the epoch in which its claims were read.
    WriterHoldsEpoch,
    /// A recovery raises the epoch in Redis too.
    EpochRaisedInRedis,
    /// A receipt is noted before the answer, and the epoch is looked at again in between.
    ReceiptBeforeAnswer,
    /// A process hands its receipts in when a lane has a new epoch.
    ReceiptsHandedIn,
    /// A claim whose user has a newer order doesn't become an order in a recovery.
    SupersededLeftOut,
    /// The snapshot of Postgres begins after the fence.
    SnapshotAfterFence,
    /// The names of built shards carry the epoch of the recovery.
    EpochInShardNames,
    /// `lua/switch_sale.lua` compares the epoch.
    SwitchComparesEpoch,
    /// The opening compares the epoch, in Postgres and in `lua/open_lane.lua`.
    OpeningComparesEpoch,
    /// `lua/beat.lua` compares the beat with the noted one.
    BeatCompared,
    /// Processes compare the life of Redis with the approved one.
    LifeCompared,
    /// The keeper compares the replication ID of Redis with the approved one.
    ReplicationIdCompared,
    /// The order log is written before a sale is built.
    LogDrained,
    /// `lua/give_back.lua` compares the order by which a user is a buyer.
    GiveBackComparesOrder,
    /// Under another origin of Redis's data, `lua/id_block.lua` goes on above the ceiling that Postgres has noted.
    SequenceAboveCeiling,
    /// `lua/id_block.lua` believes no sequence below a number that its caller has had.
    NumbersRemembered,
    /// A recovery takes no order that Postgres has for an unknown one, whatever its status.
    HarvestKnowsClosed,
    /// Dead letters hold units only while live orders leave room.
    LettersWithinRoom,
    /// A dead letter that is retried takes its unit in Redis before it is written (`lua/admit.lua`).
    RetryAdmitted,
}

impl Guard {
    /// All guards.
    pub const ALL: [Self; 21] = [
        Self::ClaimReadsEpoch,
        Self::ClaimReadsState,
        Self::WriterHoldsEpoch,
        Self::EpochRaisedInRedis,
        Self::ReceiptBeforeAnswer,
        Self::ReceiptsHandedIn,
        Self::SupersededLeftOut,
        Self::SnapshotAfterFence,
        Self::EpochInShardNames,
        Self::SwitchComparesEpoch,
        Self::OpeningComparesEpoch,
        Self::BeatCompared,
        Self::LifeCompared,
        Self::ReplicationIdCompared,
        Self::LogDrained,
        Self::GiveBackComparesOrder,
        Self::SequenceAboveCeiling,
        Self::NumbersRemembered,
        Self::HarvestKnowsClosed,
        Self::LettersWithinRoom,
        Self::RetryAdmitted,
    ];
}

/// A weak point of the code as it is, each with a repair that the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hole {
    /// A memory that goes back during a recovery isn't noticed. Repair: the switch counts the buyers and leaves a
    /// mark, without which the lane isn't opened.
    RolledBackWhileClosed,
    /// A lane that Postgres calls open and Redis calls recovering is opened, although Redis may have gone back into
    /// the recovery. Repair: it is closed once more.
    OpenedUnseen,
    /// A recovery that another one has overtaken still notes which dead letters hold a unit. Repair: it holds the
    /// epoch.
    UnitsNotedLate,
    /// A new keeper believes the beat although none was noted for seconds, and a memory that went back meanwhile may
    /// have it. Repair: it closes the lane, and looks.
    BeatAfterGap,
    /// The return of a unit is closed after a recovery, for a script that ran before it. Repair: the closing holds the
    /// epoch of the script.
    ReturnClosedLate,
    /// A dead letter that became an order after all stays open, and gets a unit when that order is closed. Repair: a
    /// recovery leaves letters with a row out.
    LetterOfOrder,
    /// Entries that are read between the raising of the epoch and the fence are written under the new epoch, although
    /// Redis may lose them before it is looked at. Repair: the epoch of a batch is that of the lane in Redis.
    ReadBeforeFence,
    /// An opening sets the beat back to the noted one, so a number that wasn't noted is used a second time. Repair: the
    /// opening raises the noted beat by two.
    BeatUsedTwice,
    /// A Redis that is synchronised anew between a recovery's last look at its replication ID and `lua/open_lane.lua`
    /// is opened as it is, with the new beat. Repair: the script compares the replication ID. Without
    /// [`RolledBackWhileClosed`](Self::RolledBackWhileClosed) the missing mark stops it, too.
    OriginComparedEarly,
    /// A sale that a recovery has built before it was broken off is kept by the next one, although a memory that went back
    /// has entries again whose claims were no buyers when the sale was built. Repair: it is built once more.
    BuiltByUnfinished,
    /// A recovery notes which dead letters hold a unit, and is broken off before the switch; the next one keeps the sale as
    /// it is. Repair: letters of a sale that is kept hold a unit where Redis says so.
    UnitsOfKeptSale,
}

impl Hole {
    /// All weak points.
    pub const ALL: [Self; 11] = [
        Self::RolledBackWhileClosed,
        Self::OpenedUnseen,
        Self::UnitsNotedLate,
        Self::BeatAfterGap,
        Self::ReturnClosedLate,
        Self::LetterOfOrder,
        Self::ReadBeforeFence,
        Self::BeatUsedTwice,
        Self::OriginComparedEarly,
        Self::BuiltByUnfinished,
        Self::UnitsOfKeptSale,
    ];
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The API process dies, and another begins.
    ApiDies,
    /// The worker dies, and another begins.
    WorkerDies,
    /// The keeper dies, and another process keeps the lanes.
    KeeperDies,
    /// The keeper is paused for longer than its lease, and another process keeps the lanes.
    KeeperPaused,
    /// Recoveries no longer wait for the API process, which is paused.
    ApiPaused,
    /// Redis starts anew, and has all it had.
    Restart,
    /// Redis starts anew with an older state.
    RestartedOlder,
    /// Redis goes back to an older state as a replica, and keeps its life and its connections.
    Resynchronised,
    /// The memory of Redis goes back by more than a beat, with its life and its replication ID: a snapshot of a machine.
    MemoryWentBack,
    /// FLUSHALL.
    Flushed,
    /// A sale and its buyers are gone.
    SaleLost,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::ApiDies,
        Self::WorkerDies,
        Self::KeeperDies,
        Self::KeeperPaused,
        Self::ApiPaused,
        Self::Restart,
        Self::RestartedOlder,
        Self::Resynchronised,
        Self::MemoryWentBack,
        Self::Flushed,
        Self::SaleLost,
    ];
}

/// Size of a model, and the guards that it has.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Users.
    pub users: u8,
    /// Units on sale.
    pub units: u8,
    /// Claims that are accepted, at most.
    pub claims: u8,
    /// Cancellations, at most.
    pub cancels: u8,
    /// Dead letters that an operator retries, at most.
    pub retries: u8,
    /// Beats, at most.
    pub beats: u8,
    /// Faults in one run, at most.
    pub faults: u8,
    /// Kinds of faults.
    pub kinds: Vec<Fault>,
    /// Receipts are dropped when the order log has been written.
    pub receipts_dropped: bool,
    /// Guards that are left out.
    pub without: Vec<Guard>,
    /// Weak points that the model shares with the code; the others are repaired.
    pub holes: Vec<Hole>,
}

impl Settings {
    /// True for a guard that the model has.
    pub fn has(&self, guard: Guard) -> bool {
        !self.without.contains(&guard)
    }

    /// True for a weak point that is repaired.
    pub fn repairs(&self, hole: Hole) -> bool {
        !self.holes.contains(&hole)
    }
}
