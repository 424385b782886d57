//! What `serve` logs at its start and `doctor` prints on request, with one wording for each finding.

use std::fmt;

use crate::base::durability::Level;
use crate::payment::gateway::Checkout;
use crate::store::durability::NOT_REPLAYED;
use crate::store::redis::facts::{Replay, ServerFacts};

/// A finding with its level. The text names the cost and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub enum Finding {
    Good(String),
    Warning(String),
    Failure(String),
}
use Finding::{Failure, Good, Warning};

impl Finding {
    pub fn log(&self) {
        match self {
            Good(text) => tracing::info!("{text}"),
            Warning(text) | Failure(text) => tracing::warn!("{text}"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Good(text) => write!(f, "ok    {text}"),
            Warning(text) => write!(f, "warn  {text}"),
            Failure(text) => write!(f, "FAIL  {text}"),
        }
    }
}

/// What a 202 is worth, given how Redis persists its data: good if accepted claims survive a kill of Redis and a power
/// cut, a failure if a restart of Redis alone can lose all claims that are not in Postgres yet.
pub fn persistence(facts: &ServerFacts, level: Option<Level>) -> Finding {
    let is_declared = level == Some(Level::Declared);
    let settings = facts.settings.as_ref();
    let sync = settings.map(|settings| settings.appendfsync.as_str());
    let never_saves = settings.is_some_and(|settings| settings.save.is_empty());
    let (finding, words): (fn(String) -> Finding, _) = match (facts.appendonly, facts.replay, sync)
    {
        (_, _, None) | (true, Replay::Unknown, Some("always")) if is_declared => (
            Good,
            "a 202 survives the death of any process and a power cut, as --durability fsync:declared says; that is declared, not proven, because CONFIG or ACL GETUSER is forbidden here",
        ),
        (false, ..) if never_saves => (
            Failure,
            "a 202 is in Redis's memory only (appendonly no, and no snapshots): a restart of Redis loses every claim that hasn't been written to Postgres; set appendonly yes and appendfsync always to lose none",
        ),
        (false, ..) => (
            Failure,
            "a 202 is in Redis's memory, and in its next snapshot at best (appendonly no): when Redis is killed, every claim since the last snapshot that isn't in Postgres is lost, and the units are offered again; set appendonly yes and appendfsync always to lose none",
        ),
        (true, Replay::WithoutScripts, _) => (Failure, NOT_REPLAYED),
        (true, Replay::Unknown, Some("always")) => (
            Warning,
            "a 202 is on disk (appendfsync always), and whether it comes back at Redis's next start can't be told, because ACL GETUSER is forbidden here: unless the user `default` has all rights, all claims are dropped; allow +acl|getuser",
        ),
        (true, _, Some("always")) => (
            Good,
            "a 202 is on disk (appendfsync always): it survives the death of any process and a power cut",
        ),
        (true, _, Some("everysec")) => (
            Warning,
            "a 202 is in Redis's memory, and on disk about a second later (appendfsync everysec): a kill or a power cut can lose the confirmed claims of the last second or two; set appendfsync always to lose none",
        ),
        (true, _, Some(_)) => (
            Warning,
            "a 202 is in Redis's memory, and on disk when the operating system pleases (appendfsync no): a power cut loses what has not been written by then; set appendfsync always to lose none",
        ),
        (true, _, None) => (
            Warning,
            "a 202 is in Redis's append-only file, and how soon that is on disk can't be told, because CONFIG is forbidden here: unless appendfsync is always, a kill or a power cut can lose the last confirmed claims; ask its operator",
        ),
    };
    finding(format!("Redis persistence: {words}"))
}

/// Message about a master that sentinels may replace without its noticing.
pub const KEEPS_ACCEPTING: &str = "Redis min-replicas-to-write is 0: a master that the sentinels replace while it is paused or cut off goes on accepting claims, until it is told that it is a replica, and then loses all of them. Set min-replicas-to-write 1 and min-replicas-max-lag 2, on each server that may become the master";

/// A warning if `--durability` waits for every replica that is connected: without one of them, no claim is confirmed.
pub fn without_spare(level: Option<Level>, facts: &ServerFacts) -> Option<Finding> {
    let needed = level.map_or(0, Level::replicas);
    (needed > 0 && facts.replicas <= needed).then(|| {
        Warning(format!(
            "Redis replicas: --durability replica:{needed} waits for {needed}, and {} are connected: once one more is lost, no claim is confirmed. Add a replica, or ask for fewer",
            facts.replicas
        ))
    })
}

/// What the settings mean for payments.
pub fn payments(checkout: Checkout) -> Finding {
    match checkout {
        Checkout::Opened => Good(
            "Payments: they are opened and refunded at the gateway of --gateway-url, which confirms them by callback".into(),
        ),
        Checkout::Elsewhere => Warning(
            "Payments: a gateway elsewhere takes the money and confirms it by callback, and is asked for no refund: each waits until the gateway confirms it, or a person has given the money back; set --gateway-url to have it asked".into(),
        ),
        Checkout::Nowhere => Warning(
            "Payments: there is no gateway, so no order can be paid, and each expires; set --payment-callback-secret for a gateway, or --in-process-gateway to try it without one".into(),
        ),
        Checkout::InProcess => Failure(
            "Payments: --in-process-gateway says yes to every user who wants to pay, and no money moves: whatever is on sale is given away. It is for trying only; leave it away, and set --payment-callback-secret for a gateway".into(),
        ),
    }
}
