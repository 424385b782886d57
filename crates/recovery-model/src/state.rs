//! State of the model: two stores, the processes, and what an onlooker remembers.

use crate::settings::Settings;

/// Highest number of claims.
pub const CLAIMS_MAX: usize = 4;

/// A set of orders, or of sales: one bit for each.
pub type Set = u8;

pub fn one(number: usize) -> Set {
    1 << number
}

/// The orders of a set.
pub fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..CLAIMS_MAX).filter(move |order| set & one(*order) != 0)
}

/// The number of orders in a set.
pub fn count(set: Set) -> i8 {
    set.count_ones() as i8
}

/// Ends a step that isn't possible.
pub fn only_if(is_possible: bool) -> Option<()> {
    is_possible.then_some(())
}

/// The lane's hash in Redis. A lost one has epoch 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lane {
    pub epoch: u8,
    pub open: bool,
    /// `master_replid` of the server in which the lane was closed last.
    pub replid: u8,
    /// Number of the newest acknowledged order; counted from 1, so 0 is none.
    pub last: u8,
    /// Second of the newest id, and ids of that second.
    pub second: u8,
    pub used: u8,
}

/// A sale in Redis. A lost one has load 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sale {
    pub epoch: u8,
    pub load: u8,
    pub loading: bool,
    pub ended: bool,
    pub stock: i8,
    /// None when shards are lost.
    pub buyers: Option<Set>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Redis {
    pub lane: Lane,
    /// Claims that aren't acknowledged; None for a lost log.
    pub log: Option<Set>,
    /// Number of the newest entry, which its position tells.
    pub appended: u8,
    pub sales: [Sale; 2],
    /// Shards that the recovery of each leader fills.
    pub beside: [Option<Set>; 2],
    /// Lists of unpaid orders.
    pub unpaid: Set,
}

impl Redis {
    pub fn buyers(&self) -> Set {
        self.sales.iter().fold(0, |all, sale| all | sale.buyers.unwrap_or(0))
    }
}

/// What an operator has decided after Postgres went back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trust {
    /// There is nothing to decide.
    #[default]
    Both,
    /// The lane waits for a decision.
    Asked,
    Redis,
    Postgres,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Postgres {
    pub epoch: u8,
    pub open: bool,
    pub trust: Trust,
    /// The run of Postgres in which the lane was opened.
    pub run: u8,
    /// Orders.
    pub live: Set,
    pub closed: Set,
    pub paid: Set,
    /// Dead letters.
    pub letters: Set,
    pub discarded: Set,
    /// Units on their way back to Redis, and places on lists of unpaid orders.
    pub returns: Set,
    pub places: Set,
    /// Unwritten claims, and the epoch for which the API process has handed in.
    pub unwritten: Set,
    pub handed_in: u8,
    /// The noted load of each sale; 0 before the first.
    pub loads: [u8; 2],
    /// Sales that are archived, and those that are gone from Redis.
    pub archived: Set,
    pub gone: Set,
}

impl Postgres {
    /// Orders in any status.
    pub fn rows(&self) -> Set {
        self.live | self.closed
    }

    /// Orders and letters, open or closed.
    pub fn known(&self) -> Set {
        self.rows() | self.letters | self.discarded
    }
}

/// A claim under way, after the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub order: usize,
    pub epoch: u8,
    pub noted: bool,
    pub answered: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Api {
    /// The lane as this process knows it.
    pub epoch: u8,
    pub open: bool,
    /// Unwritten claims, and those whose entries were seen acknowledged.
    pub book: Set,
    pub seen: Set,
    pub call: Option<Call>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Worker {
    pub batch: Set,
    /// Epoch and newest acknowledged order of the lane when the batch was read.
    pub epoch: u8,
    pub last: u8,
    pub committed: bool,
    /// An order that has come back in Redis: whether its unit or else its place, and the epoch.
    pub returned: Option<(usize, bool, u8)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Recovery {
    /// The next step, a place in `recovery::STEPS`.
    pub step: usize,
    pub epoch: u8,
    /// True when it no longer waits for the API process.
    pub impatient: bool,
    /// True once the log is written and promises are harvested.
    pub drained: bool,
    pub unwritten: Set,
    /// True unless a store went back unseen since the fence.
    pub is_fresh: bool,
    /// Where its shards are filled.
    pub place: usize,
    /// Sales that have to be built, and what was read for them.
    pub damaged: Set,
    pub snapshot: Set,
}

/// State of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// `master_replid` of Redis: changes at each start, and whenever a replica is promoted.
    pub replid: u8,
    pub redis: Redis,
    /// An older file, or what a lagging replica has.
    pub saved: Option<Redis>,
    /// The clock of Redis, less that of Postgres.
    pub clock: i8,
    pub pg: Postgres,
    pub dump: Option<Postgres>,
    /// System identifier, timeline and database of Postgres.
    pub run: u8,
    pub api: Api,
    pub worker: Worker,
    /// A letter that is retried, and the epoch in which Redis has given it a unit.
    pub retry: Option<(usize, Option<u8>)>,
    pub recoveries: [Recovery; 2],
    pub leader: usize,
    /// Processes that load the sale: epoch, and the load id that the script has told.
    pub loaders: [Option<(u8, Option<u8>)>; 2],
    /// User, sale and id of each order.
    pub users: [u8; CLAIMS_MAX],
    pub of: [u8; CLAIMS_MAX],
    pub ids: [u8; CLAIMS_MAX],
    pub granted: u8,
    pub last_load: u8,
    /// Cancellations, decisions about letters, and faults that are still possible.
    pub cancels: u8,
    pub decisions: u8,
    pub faults: u8,
    /// Claims that were answered; of those, that no living process remembers; and whose loss is excused.
    pub answered: Set,
    pub orphans: Set,
    pub excused: Set,
    /// Claims that a recovery has reported as superseded.
    pub superseded: Set,
    /// Orders that were closed, and letters that were discarded.
    pub ended: Set,
    /// A store went back and the lane was not opened since; and Postgres has ever gone back.
    pub unseen: bool,
    pub went_back: bool,
    /// What Postgres knew before it went back.
    pub lost: Set,
    pub broken: Option<&'static str>,
}

impl State {
    /// The state in which each run begins: an open lane, and nothing sold.
    pub fn begin(rules: &Settings) -> Self {
        let mut s = Self::default();
        (s.cancels, s.decisions, s.faults) = (rules.cancels, rules.decisions, rules.faults);
        (s.redis.lane.epoch, s.redis.lane.open, s.redis.log) = (1, true, Some(0));
        (s.pg.epoch, s.pg.open, s.pg.handed_in) = (1, true, 1);
        (s.api.epoch, s.api.open) = (1, true);
        if !rules.loads {
            s.last_load = 1;
            for sale in 0..rules.sales {
                s.pg.loads[sale] = 1;
                s.redis.sales[sale] = Sale::new(1, 1, rules.units, 0);
            }
        }
        s
    }

    fn those(&self, is_one: impl Fn(usize) -> bool) -> Set {
        (0..usize::from(self.granted))
            .filter(|order| is_one(*order))
            .fold(0, |all, order| all | one(order))
    }

    pub fn of_sale(&self, sale: usize) -> Set {
        self.those(|order| usize::from(self.of[order]) == sale)
    }

    /// All claims of a user on a sale.
    pub fn of_user(&self, user: u8, sale: usize) -> Set {
        self.of_sale(sale) & self.those(|order| self.users[order] == user)
    }

    pub fn sale_of(&self, order: usize) -> usize {
        usize::from(self.of[order])
    }

    /// All claims of the same user on the same sale.
    pub fn rivals(&self, order: usize) -> Set {
        self.of_user(self.users[order], self.sale_of(order))
    }

    /// Orders of archived sales.
    pub fn archived(&self) -> Set {
        self.those(|order| self.pg.archived & one(self.sale_of(order)) != 0)
    }

    /// The orders of a set, lowest id first.
    pub fn by_id(&self, set: Set) -> Vec<usize> {
        let mut orders: Vec<usize> = members(set).collect();
        orders.sort_by_key(|order| self.ids[*order]);
        orders
    }

    /// Those of these claims whose user has a row of the sale with a higher id.
    pub fn superseded_among(&self, claims: Set) -> Set {
        let is_higher = |order, rival: usize| self.ids[rival] > self.ids[order];
        claims & self.those(|o| members(self.rivals(o) & self.pg.rows()).any(|r| is_higher(o, r)))
    }

    /// Promises that a store has, and that a recovery believes.
    pub fn remembered(&self) -> Set {
        let believes = self.pg.trust != Trust::Postgres;
        let buyers = if believes { self.redis.buyers() } else { 0 };
        buyers | self.redis.log.unwrap_or(0) | self.pg.unwritten | self.pg.known()
    }

    /// Notes the first broken promise.
    pub fn require(&mut self, holds: bool, promise: &'static str) {
        self.broken = self.broken.or((!holds).then_some(promise));
    }
}

impl Sale {
    /// A sale with these buyers.
    pub fn new(epoch: u8, load: u8, units: i8, buyers: Set) -> Self {
        let stock = units - count(buyers);
        Self { epoch, load, stock, buyers: Some(buyers), ..Self::default() }
    }
}
