//! Facts of a run: what clients were told, what was done to the installation, and what both stores hold at the end.
//!
//! All times are milliseconds from the beginning of the run, by one clock. Facts carry no handles, so a test of the
//! checker makes them up by hand.

// Requests of clients and operators, with their answers.
mod history;

// Damage done on purpose, and the lives of processes.
mod damage;

// Contents of both stores.
mod stores;

// The unit of times.
mod unit;

use crate::plan::Plan;

pub use damage::{Life, Loss, Silence};
pub use history::{Change, Event, Op, Outcome};
pub use stores::{LaneFacts, Letter, Lost, RecoveryRow, RedisSale, Return, Row, SaleFacts};
pub use unit::Ms;

/// All facts of a run.
#[derive(Clone, Debug)]
pub struct Evidence {
    pub plan: Plan,
    /// Requests of clients, in the order of their completion.
    pub history: Vec<Event>,
    /// Requests of the operator.
    pub changes: Vec<Change>,
    /// Answers to `claims/me` after the end: user, coupon, order id; `None` for "not claimed".
    pub told_last: Vec<(i64, i64, Option<i64>)>,
    /// Losses of data that were caused on purpose.
    pub losses: Vec<Loss>,
    /// Lives of the service's processes.
    pub lives: Vec<Life>,
    /// Times in which a process lived and could not hand in what it had promised.
    pub silences: Vec<Silence>,
    pub sales: Vec<SaleFacts>,
    /// Rows of `orders`.
    pub rows: Vec<Row>,
    /// Rows of `stock_returns` that give a unit back.
    pub returns: Vec<Return>,
    /// Rows of `dead_letters`.
    pub letters: Vec<Letter>,
    /// Rows of `recoveries`.
    pub recoveries: Vec<RecoveryRow>,
    pub lanes: Vec<LaneFacts>,
    /// Faults that were seen in the middle of the run by an atomic look at a sale.
    pub seen_on_the_way: Vec<String>,
    /// Disagreements that `flash-sale reconcile` named at the end.
    pub disagreements: Vec<String>,
    /// Events that must not happen: a panic, a hang, a fresh sale that can't be sold.
    pub mishaps: Vec<String>,
}

impl Evidence {
    /// Facts of a run in which nothing has happened.
    pub fn empty(plan: Plan) -> Self {
        Self {
            plan,
            history: Vec::new(),
            changes: Vec::new(),
            told_last: Vec::new(),
            losses: Vec::new(),
            lives: Vec::new(),
            silences: Vec::new(),
            sales: Vec::new(),
            rows: Vec::new(),
            returns: Vec::new(),
            letters: Vec::new(),
            recoveries: Vec::new(),
            lanes: Vec::new(),
            seen_on_the_way: Vec::new(),
            disagreements: Vec::new(),
            mishaps: Vec::new(),
        }
    }
}
