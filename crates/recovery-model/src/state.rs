//! State of the model: two stores, the processes, and what an onlooker remembers.

use crate::settings::Settings;

/// Highest epoch; no run may need more.
pub const EPOCH_MAX: u8 = 12;
/// Highest number of claims.
pub const CLAIMS_MAX: usize = 4;
/// Numbers that Postgres grants at a time.
pub const CEILING_STEP: u8 = 2;

/// A set of orders, by their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Orders(pub u8);

impl Orders {
    /// The set of one order.
    pub fn one(order: u8) -> Self {
        Self(1 << order)
    }

    /// The orders with these ids or higher ones.
    pub fn since(order: u8) -> Self {
        Self(u8::MAX.checked_shl(u32::from(order)).unwrap_or(0))
    }

    pub fn has(self, order: u8) -> bool {
        self.0 >> order & 1 == 1
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn count(self) -> i8 {
        self.0.count_ones() as i8
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn less(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn holds(self, other: Self) -> bool {
        other.less(self).is_empty()
    }

    pub fn insert(&mut self, order: u8) {
        *self = self.and(Self::one(order));
    }

    /// The ids, lowest first.
    pub fn ids(self) -> impl Iterator<Item = u8> {
        (0..8).filter(move |order| self.has(*order))
    }
}

/// The lane's hash in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    pub epoch: u8,
    pub open: bool,
    /// None after a loss, until the opening.
    pub beat: Option<u8>,
    /// Id of the first order that was claimed after this beat.
    pub beat_since: u8,
    /// Mark of the last step of a recovery; only where that weak point is repaired.
    pub mark: bool,
}

/// The sale's hash in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sale {
    pub epoch: u8,
    /// Generation of the shards in use.
    pub generation: u8,
    pub stock: i8,
}

/// Redis. The shards of each generation name their buyers by the orders that these hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Redis {
    pub lane: Option<Lane>,
    pub sale: Option<Sale>,
    pub shards: [Orders; EPOCH_MAX as usize + 1],
    /// Generations whose shards have their sentinels.
    pub made: u16,
    /// Orders whose units have come back.
    pub given_back: Orders,
    /// Entries that aren't acknowledged.
    pub log: Orders,
    /// Number of orders up to the last entry that was ever appended.
    pub last: u8,
    /// Numbers that were taken, and the one below which numbers may be taken while Redis's data has this origin.
    pub sequence: u8,
    pub ceiling: u8,
    pub origin: (u8, u8),
}

impl Redis {
    /// The buyers of the sale.
    pub fn buyers(&self) -> Orders {
        self.sale.map_or(Orders::default(), |sale| self.shards[usize::from(sale.generation)])
    }

    pub fn buyers_mut(&mut self) -> Option<&mut Orders> {
        Some(&mut self.shards[usize::from(self.sale?.generation)])
    }

    /// The sale in Redis, unless it or one of its shards is lost: then every script refuses.
    pub fn whole_sale(&self) -> Option<Sale> {
        self.sale.filter(|sale| self.made >> sale.generation & 1 == 1)
    }

    /// True for a lane that is there, recovering, and under this epoch.
    pub fn is_recovered_by(&self, epoch: u8) -> bool {
        self.lane.is_some_and(|lane| lane.epoch == epoch && !lane.open)
    }
}

/// Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Postgres {
    pub epoch: u8,
    pub open: bool,
    /// Epoch of the last recovery that has opened the lane.
    pub opened: u8,
    /// Approved life of Redis.
    pub life: u8,
    /// Approved replication ID of Redis.
    pub replication_id: u8,
    pub beat: u8,
    pub beat_since: u8,
    /// Number below which Redis gives out numbers.
    pub ceiling: u8,
    pub live: Orders,
    /// Cancelled orders.
    pub closed: Orders,
    /// Open dead letters.
    pub letters: Orders,
    /// Dead letters that hold a unit.
    pub holding: Orders,
    /// Units on their way back.
    pub returns: Orders,
    pub returned: Orders,
    pub receipts: Orders,
    /// Epoch up to which the API process has handed in.
    pub handed_in: u8,
    /// Claims that a recovery has reported as superseded.
    pub superseded: Orders,
}

impl Postgres {
    /// Orders in any status.
    pub fn rows(&self) -> Orders {
        self.live.and(self.closed)
    }

    /// Claims that are orders or dead letters.
    pub fn committed(&self) -> Orders {
        self.rows().and(self.letters)
    }
}

/// A claim under way, after the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub order: u8,
    pub epoch: u8,
    pub life: u8,
    pub noted: bool,
    pub answered: bool,
}

/// A look at the order log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogLook {
    pub last: u8,
    pub covers: Orders,
    /// Noted beat when all of them were found to be acknowledged.
    pub committed_at: Option<u8>,
}

/// The API process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Api {
    /// The lane as this process knows it: epoch, whether it is open, approved life.
    pub known: (u8, bool, u8),
    /// Epoch for which it has handed in.
    pub handed_in: u8,
    /// Receipts.
    pub book: Orders,
    /// Numbers below one that this process has had.
    pub had: u8,
    pub call: Option<Call>,
    pub look: Option<LogLook>,
}

/// The worker: writes the log, and returns units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Worker {
    pub batch: Orders,
    /// Epoch in which the batch was read.
    pub epoch: u8,
    pub committed: bool,
    /// An order whose unit has come back in Redis, and the epoch of that.
    pub returned: Option<(u8, u8)>,
}

/// A dead letter that an operator retries until there is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Retry {
    pub letter: u8,
    /// Epoch in which Redis has given a unit.
    pub admitted: Option<u8>,
}

/// Last step of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    #[default]
    Idle,
    Raised,
    Fenced,
    Receipts,
    Damaged,
    Harvested,
    Snapped,
    Filled,
    Noted,
    Ready,
    OpenInPostgres,
}

/// A process that keeps lanes: a look's note that is to come, and a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keeper {
    /// Beat that Redis has confirmed and Postgres hasn't noted, and the first order after it.
    pub note: Option<(u8, u8)>,
    pub stage: Stage,
    pub epoch: u8,
    pub life: u8,
    pub replication_id: u8,
    pub beat: u8,
    pub beat_since: u8,
    pub receipts: Orders,
    pub buyers: Orders,
    pub holding: Orders,
}

/// An older state of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Saved {
    pub redis: Redis,
    /// Looks of a keeper since, up to two, between which lies at least a second.
    pub age: u8,
}

/// Broken promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// Live orders and dead letters with a unit are more than there are units.
    Oversold,
    /// A buyer has two live orders.
    TwoLiveOrders,
    /// A step under an older epoch had an effect.
    OlderEpoch,
    /// A lane that is recovering sold a unit.
    SoldWhileClosed,
    /// The lane was opened, and stock and buyers aren't the total, or the buyers aren't those of Postgres.
    OpenedWrong,
    /// An acknowledged entry isn't committed.
    AcknowledgedUnwritten,
    /// An order returned a second unit.
    ReturnedTwice,
    /// A receipt was dropped whose claim isn't committed.
    ReceiptDropped,
    /// A claim became an order although its user has a newer one, or it was closed before.
    CameBack,
    /// An order id was given out twice.
    IdRepeated,
    /// A promise is neither order nor dead letter, nor reported as superseded.
    PromiseLost,
    /// At rest, the lane is closed.
    StaysClosed,
    /// At rest, the stores differ.
    StoresDiffer,
    /// Recoveries go on for ever.
    Unbounded,
}

/// State of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub life: u8,
    pub replication_id: u8,
    pub redis: Redis,
    pub saved: Option<Saved>,
    pub postgres: Postgres,
    pub api: Api,
    pub worker: Worker,
    pub retry: Option<Retry>,
    pub keepers: [Keeper; 2],
    /// Number of the process that keeps the lanes.
    pub keeper: u8,
    /// True until a beat is noted after another process began to keep the lanes.
    pub gap: bool,
    /// User of each order.
    pub users: [u8; CLAIMS_MAX],
    pub next_order: u8,
    pub cancels_left: u8,
    pub retries_left: u8,
    pub beats_left: u8,
    pub faults_left: u8,
    /// Orders that users were told.
    pub answered: Orders,
    /// Promises of API processes that died before the commit.
    pub orphans: Orders,
    /// Orphans that Redis has lost, too.
    pub excused: Orders,
    pub broken: Option<Broken>,
}

impl State {
    /// A lane that is open, with one sale.
    pub fn begin(settings: &Settings) -> Self {
        let lane = Lane { epoch: 1, open: true, beat: Some(0), beat_since: 0, mark: false };
        let sale = Sale { epoch: 1, generation: 0, stock: settings.units as i8 };
        let none = Orders::default();
        Self {
            life: 0,
            replication_id: 0,
            redis: Redis {
                lane: Some(lane),
                sale: Some(sale),
                shards: [none; EPOCH_MAX as usize + 1],
                made: 1,
                given_back: none,
                log: none,
                last: 0,
                sequence: 0,
                ceiling: CEILING_STEP,
                origin: (0, 0),
            },
            saved: None,
            postgres: Postgres {
                epoch: 1,
                open: true,
                opened: 1,
                life: 0,
                replication_id: 0,
                beat: 0,
                beat_since: 0,
                ceiling: CEILING_STEP,
                live: none,
                closed: none,
                letters: none,
                holding: none,
                returns: none,
                returned: none,
                receipts: none,
                handed_in: 1,
                superseded: none,
            },
            api: Api {
                known: (1, true, 0),
                handed_in: 1,
                book: none,
                had: 0,
                call: None,
                look: None,
            },
            worker: Worker::default(),
            retry: None,
            keepers: [Keeper::default(); 2],
            keeper: 0,
            gap: false,
            users: [0; CLAIMS_MAX],
            next_order: 0,
            cancels_left: settings.cancels,
            retries_left: settings.retries,
            beats_left: settings.beats,
            faults_left: settings.faults,
            answered: none,
            orphans: none,
            excused: none,
            broken: None,
        }
    }

    /// The orders of a user among these.
    pub fn of_user(&self, orders: Orders, user: u8) -> Orders {
        let ids = orders.ids().filter(|order| self.users[usize::from(*order)] == user);
        Orders(ids.fold(0, |set, order| set | 1 << order))
    }

    pub fn user(&self, order: u8) -> u8 {
        self.users[usize::from(order)]
    }

    /// Notes the first broken promise.
    pub fn break_promise(&mut self, broken: Broken) {
        self.broken = self.broken.or(Some(broken));
    }
}
