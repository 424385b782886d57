//! `flash-sale token`: access tokens for tests and load tools.

use std::io::{BufWriter, Write};

use chrono::TimeDelta;
use clap::Args;

use super::stores::token_secret;
use crate::base::clock::Clock;
use crate::base::config::{InvalidConfig, StoreConfig};
use crate::base::limits;
use crate::kit::jwt::{Grants, Scope, Tokens};
use crate::store::ids::UserId;

#[derive(Args)]
pub struct TokenArguments {
    /// User that the first token is for
    #[arg(long)]
    user: UserId,
    /// Scope beyond that of a user: an integrator reads events and exports, a clerk redeems, an operator keeps the service going, an administrator may do all
    #[arg(long, value_enum)]
    scope: Option<Scope>,
    /// The same as --scope administrator
    #[arg(long, conflicts_with = "scope")]
    admin: bool,
    /// Tokens, one a line, for users N, N+1, ...
    #[arg(long, default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::TOKENS_MAX)))]
    count: u32,
    /// Hours until they expire
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
    hours: u32,
    #[command(flatten)]
    pub stores: StoreConfig,
}

pub fn run(arguments: &TokenArguments) -> anyhow::Result<()> {
    let first = arguments.user.get();
    let last = first.checked_add(i64::from(arguments.count) - 1).ok_or_else(|| {
        InvalidConfig::new("--user + --count passes the largest id, 9223372036854775807")
    })?;
    let tokens = Tokens::configured(&arguments.stores, &token_secret(&arguments.stores)?);
    let expires_at = Clock::System.now() + TimeDelta::hours(arguments.hours.into());
    let mut out = BufWriter::new(std::io::stdout().lock());
    let scope = arguments.scope.or(arguments.admin.then_some(Scope::Administrator));
    for subject in first..=last {
        let grants = Grants { subject, scope };
        writeln!(out, "{}", tokens.issue(grants, expires_at))?;
    }
    Ok(out.flush()?)
}
