//! The books of the gateway: payments by id, the key under which each was asked for, and callbacks that the shop has not
//! answered yet. They may stand in a file, which is on the disk before the gateway answers: then a killed gateway goes
//! on where it stood.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A payment to be opened, as the shop asks for it.
#[derive(Clone, Debug, Deserialize)]
pub struct Opening {
    /// Names the payment: a repeat opens no second one.
    pub key: String,
    /// The order that it is for.
    pub order_id: String,
    /// Means of payment, by its name.
    pub method: String,
    /// The amount, in minor units.
    pub amount_cents: i64,
    pub currency: String,
}

/// State of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The payer may pay.
    Open,
    /// The money is taken.
    Paid,
    /// The money is on its way back.
    Refunding,
    /// The money is back.
    Refunded,
    /// Nothing was paid, and nothing can be paid any more.
    Closed,
}

impl State {
    /// True for a payment whose money was taken, wherever it is now.
    pub fn was_paid(self) -> bool {
        matches!(self, Self::Paid | Self::Refunding | Self::Refunded)
    }
}

/// A payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub payment_id: String,
    /// The order that it is for.
    pub order_id: String,
    /// Means of payment, by its name.
    pub method: String,
    /// The amount, in minor units.
    pub amount_cents: i64,
    pub currency: String,
    /// State of the payment.
    pub state: State,
    /// Number of refunds that the shop has asked for under different keys.
    pub refunds: u32,
}

/// Differences between the money that a payer pays and the money that the shop asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taking {
    /// Take the money of a second payment for the same order, too.
    pub twice: bool,
    /// Take one minor unit more.
    pub more: bool,
    /// Take another currency.
    pub foreign: bool,
}

#[derive(Default, Serialize, Deserialize)]
pub struct Books {
    entries: BTreeMap<String, Entry>,
    by_key: BTreeMap<String, String>,
    refund_keys: BTreeSet<String>,
    /// Callbacks that the shop has not answered, by number.
    untold: BTreeMap<u64, String>,
    next_number: u64,
    #[serde(skip)]
    file: Option<PathBuf>,
}

/// Id of the payment with this number.
pub fn id(number: usize) -> String {
    format!("sample-{number}")
}

impl Books {
    /// The books in this file; empty ones if there is none.
    ///
    /// # Errors
    ///
    /// When the file can't be read.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let read = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            read => serde_json::from_slice(&read?)?,
        };
        Ok(Self { file: Some(path.to_owned()), ..read })
    }

    /// Puts the books on the disk, if they have a file. The file has the old books or the new ones, whatever happens.
    ///
    /// # Errors
    ///
    /// When the file can't be written.
    pub fn save(&self) -> io::Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&new, path)
    }

    /// Notes a callback that is to be sent. Returns its number.
    pub fn note_untold(&mut self, notice: String) -> u64 {
        self.next_number += 1;
        self.untold.insert(self.next_number, notice);
        self.next_number
    }

    /// The shop has answered this callback.
    pub fn told(&mut self, number: u64) {
        self.untold.remove(&number);
    }

    /// Callbacks that the shop has not answered.
    pub fn untold(&self) -> Vec<(u64, String)> {
        self.untold.iter().map(|(number, notice)| (*number, notice.clone())).collect()
    }

    /// The payment under this key, opened now or before. Returns its id.
    pub fn open(&mut self, opening: &Opening) -> String {
        if let Some(id) = self.by_key.get(&opening.key) {
            return id.clone();
        }
        let id = self.insert(opening);
        self.by_key.insert(opening.key.clone(), id.clone());
        id
    }

    fn insert(&mut self, opening: &Opening) -> String {
        let payment_id = id(self.entries.len() + 1);
        let Opening { order_id, method, amount_cents, currency, .. } = opening.clone();
        let state = State::Open;
        let id = payment_id.clone();
        let entry =
            Entry { payment_id, order_id, method, amount_cents, currency, state, refunds: 0 };
        self.entries.insert(id.clone(), entry);
        id
    }

    /// Takes the money of an open payment. Returns the payments that are paid now.
    pub fn pay(&mut self, payment_id: &str, taking: Taking) -> Vec<Entry> {
        let Some(entry) = self.entries.get_mut(payment_id) else {
            return Vec::new();
        };
        if entry.state != State::Open {
            return Vec::new();
        }
        let Entry { order_id, method, amount_cents, currency, .. } = entry.clone();
        entry.state = State::Paid;
        entry.amount_cents += i64::from(taking.more);
        if taking.foreign {
            entry.currency = if entry.currency == "XTS" { "XXX" } else { "XTS" }.to_owned();
        }
        let first = entry.clone();
        if !taking.twice {
            return vec![first];
        }
        let opening = Opening { key: String::new(), order_id, method, amount_cents, currency };
        let second = self.insert(&opening);
        [vec![first], self.pay(&second, Taking { twice: false, ..taking })].concat()
    }

    /// Begins or ends the refund of a paid payment. `None` for a payment without money.
    pub fn refund(&mut self, key: String, payment_id: &str, later: bool) -> Option<State> {
        let entry = self.entries.get_mut(payment_id)?;
        if !entry.state.was_paid() {
            return None;
        }
        if self.refund_keys.insert(key) {
            entry.refunds += 1;
            if entry.state == State::Paid {
                entry.state = if later { State::Refunding } else { State::Refunded };
            }
        }
        Some(entry.state)
    }

    /// The money is back. True if it was on its way.
    pub fn refunded(&mut self, payment_id: &str) -> bool {
        let entry = self.entries.get_mut(payment_id).filter(|it| it.state == State::Refunding);
        entry.map(|entry| entry.state = State::Refunded).is_some()
    }

    /// The payer's bank takes the money back, which the shop hasn't asked for.
    pub fn charge_back(&mut self, payment_id: &str) -> bool {
        let entry = self.entries.get_mut(payment_id).filter(|it| it.state == State::Paid);
        entry.map(|entry| entry.state = State::Refunded).is_some()
    }

    /// Nothing can be paid any more.
    pub fn close(&mut self, payment_id: &str) {
        let entry = self.entries.get_mut(payment_id).filter(|it| it.state == State::Open);
        entry.into_iter().for_each(|entry| entry.state = State::Closed);
    }

    pub fn find(&self, payment_id: &str) -> Option<&Entry> {
        self.entries.get(payment_id)
    }

    pub fn all(&self) -> Vec<Entry> {
        self.entries.values().cloned().collect()
    }
}
