//! The books of the gateway: payments by id, and the key under which each was asked for.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A payment to be opened, as the shop asks for it.
#[derive(Clone, Debug, Deserialize)]
pub struct Opening {
    pub key: String,
    pub order_id: String,
    pub method: String,
    pub amount_cents: i64,
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
}

/// A payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Id of the payment.
    pub payment_id: String,
    /// The order that it is for.
    pub order_id: String,
    /// Means of payment, by its name.
    pub method: String,
    /// The amount, in minor units.
    pub amount_cents: i64,
    /// State of the payment.
    pub state: State,
}

#[derive(Default)]
pub struct Books {
    entries: BTreeMap<String, Entry>,
    by_key: BTreeMap<String, String>,
    refund_keys: BTreeSet<String>,
}

impl Books {
    /// The payment under this key, opened now or before. Returns its id.
    pub fn open(&mut self, opening: &Opening) -> String {
        if let Some(id) = self.by_key.get(&opening.key) {
            return id.clone();
        }
        let id =
            self.insert(opening.order_id.clone(), opening.method.clone(), opening.amount_cents);
        self.by_key.insert(opening.key.clone(), id.clone());
        id
    }

    fn insert(&mut self, order_id: String, method: String, amount_cents: i64) -> String {
        let payment_id = format!("sample-{}", self.entries.len() + 1);
        let state = State::Open;
        let entry = Entry { payment_id: payment_id.clone(), order_id, method, amount_cents, state };
        self.entries.insert(payment_id.clone(), entry);
        payment_id
    }

    /// Takes the money of an open payment; of a second payment for the same order, too, if `twice`. Returns the payments
    /// that are paid now.
    pub fn pay(&mut self, payment_id: &str, twice: bool) -> Vec<Entry> {
        let Some(entry) = self.entries.get_mut(payment_id) else {
            return Vec::new();
        };
        if entry.state != State::Open {
            return Vec::new();
        }
        entry.state = State::Paid;
        let first = entry.clone();
        if !twice {
            return vec![first];
        }
        let second = self.insert(first.order_id.clone(), first.method.clone(), first.amount_cents);
        [vec![first], self.pay(&second, false)].concat()
    }

    /// Begins or ends the refund of a paid payment. `None` for a payment without money.
    pub fn refund(&mut self, key: String, payment_id: &str, later: bool) -> Option<State> {
        let entry = self.entries.get_mut(payment_id)?;
        if entry.state == State::Open {
            return None;
        }
        if self.refund_keys.insert(key) {
            entry.state = if later { State::Refunding } else { State::Refunded };
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

    pub fn find(&self, payment_id: &str) -> Option<&Entry> {
        self.entries.get(payment_id)
    }

    pub fn all(&self) -> Vec<Entry> {
        self.entries.values().cloned().collect()
    }
}
