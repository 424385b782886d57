//! A payment gateway to try flash-sale with. It speaks the contract of `docs/gateway.md`, keeps its books in memory or in
//! a file, moves no money, and can be told to misbehave ([`Faults`]).
//!
//! A payer "pays" by opening the page of the payment, `/pay/{payment_id}`.

#![warn(clippy::unwrap_used)]

// Requests, and callbacks.
mod server;

// Payments, and the money that has moved.
mod books;

// Signatures of both directions.
mod signature;

pub use books::{Entry, Opening, State};
pub use server::{Sample, Settings};

/// Faults of the gateway; none by default.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize, clap::Args)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Wait so long before each answer, in milliseconds
    #[arg(long, default_value_t = 0)]
    pub slow_ms: u64,
    /// Do what is asked, and answer 500 all the same
    #[arg(long)]
    pub loses_answers: bool,
    /// Do what is asked about the payment with this number (`sample-NUMBER`), and answer 500 all the same
    #[arg(long)]
    pub fails_at: Option<usize>,
    /// Sign answers by another secret than the shop's
    #[arg(long)]
    pub signs_wrongly: bool,
    /// Refuse everything that is asked
    #[arg(long)]
    pub refuses: bool,
    /// Take the payer's money twice, as two payments
    #[arg(long)]
    pub takes_twice: bool,
    /// Take one minor unit more than the shop asked for
    #[arg(long)]
    pub takes_more: bool,
    /// Take the money in another currency
    #[arg(long)]
    pub takes_foreign: bool,
    /// Take money for orders without a payment that the shop has opened, by `POST /unopened`: such an order may not be
    /// written yet
    #[arg(long)]
    pub takes_unopened: bool,
    /// Take the money at once and confirm it, before the request to open the payment is answered
    #[arg(long)]
    pub confirms_early: bool,
    /// Confirm everything twice
    #[arg(long)]
    pub confirms_twice: bool,
    /// Never confirm anything
    #[arg(long)]
    pub confirms_nothing: bool,
    /// Confirm refunds later, by callback
    #[arg(long)]
    pub refunds_later: bool,
}
