//! `flash-sale audit`: changes that the staff has made.

use std::io::Write;

use chrono::{DateTime, Utc};
use clap::Args;

use crate::base::config::StoreConfig;
use crate::cli::lists::output::print_all;
use crate::cli::stores::{As, OpenStores};
use crate::sale::audit::{Action, Audit, AuditEntry, Filter};
use crate::sale::ids::{AuditId, SubjectId, UserId};

#[derive(Args)]
pub struct AuditArguments {
    /// Only changes by the bearer of a token with this `sub`
    #[arg(long)]
    actor: Option<UserId>,
    /// Only changes of this kind
    #[arg(long, value_enum)]
    action: Option<Action>,
    /// Only changes of the coupon, order, dead letter, payment, postponed item or comparison with this id
    #[arg(long)]
    subject: Option<SubjectId>,
    /// Only changes from this time on, like 2026-11-27T20:00:00Z
    #[arg(long)]
    from: Option<DateTime<Utc>>,
    /// Only changes before this time
    #[arg(long)]
    to: Option<DateTime<Utc>>,
    /// Only what is older than this entry
    #[arg(long)]
    before: Option<AuditId>,
    /// At most this many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub stores: StoreConfig,
}

/// Lists changes, on the servers of a running service if there is one.
pub async fn run(arguments: &AuditArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(&arguments.stores, As::Guest).await?;
    let AuditArguments { actor, action, subject, from, to, .. } = *arguments;
    let filter = Filter { actor, action, subject, from, to };
    let audit = Audit::new(opened.stores.pool.clone());
    let found = audit.list(&filter, arguments.before, arguments.limit).await;
    let closed = opened.close().await;
    print_all(&found?, arguments.json, "Nothing has been changed.", |out, one| print(out, one))?;
    closed
}

fn print(out: &mut impl Write, entry: &AuditEntry) -> std::io::Result<()> {
    let AuditEntry { id, at, scope, action, .. } = entry;
    write!(out, "{id}: {at:.0}: {action}")?;
    if let Some(subject) = entry.subject {
        write!(out, " {subject}")?;
    }
    write!(out, " by {scope}")?;
    match entry.actor {
        Some(actor) => writeln!(out, " {actor}")?,
        None => writeln!(out)?,
    }
    for (word, values) in [("before", &entry.before), ("after", &entry.after)] {
        if let Some(values) = values {
            writeln!(out, "  {word} {values}")?;
        }
    }
    Ok(())
}
