//! `flash-sale storm`: sends a crowd of shoppers to a service on this machine, and judges what the service told them.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::bail;
use axum::http::Uri;
use axum::http::uri::Authority;
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::stores::{as_guest, token_secret};
use super::terminal::say;
use crate::base::clock::Clock;
use crate::base::config::{InvalidConfig, StoreConfig};
use crate::base::shutdown::Shutdown;
use crate::demo::storm::{Frame, Plan, Storm, Word};
use crate::kit::jwt::Tokens;
use crate::log::backlog::Backlog;
use crate::store::{Stores, installation};

#[derive(Args)]
pub struct StormArguments {
    /// Where the service answers on this machine, as http://127.0.0.1:8080
    #[arg(long)]
    url: Uri,
    #[command(flatten)]
    plan: Plan,
    #[command(flatten)]
    pub stores: StoreConfig,
}

/// Prints the states of a storm, one JSON object per line. Fails unless the verdict is [`Word::Kept`].
pub async fn run(arguments: &StormArguments) -> anyhow::Result<()> {
    let service = on_this_machine(&arguments.url)?;
    let tokens = Tokens::configured(&arguments.stores, &token_secret(&arguments.stores)?);
    let plan = arguments.plan;
    let storm = async |stores: &Stores| storm(&service, tokens, plan, stores.clone()).await;
    let Frame { verdict, no_verdict, .. } = as_guest(&arguments.stores, storm).await?;
    match (verdict.map(|verdict| verdict.word), no_verdict) {
        (Some(Word::Kept), _) => Ok(()),
        (Some(word), _) => {
            bail!("the verdict on the storm is {word:?}; the last line has the numbers")
        }
        (None, why) => bail!("the storm has no verdict: {why:?}"),
    }
}

async fn storm(
    service: &Authority,
    tokens: Tokens,
    plan: Plan,
    stores: Stores,
) -> anyhow::Result<Frame> {
    let lanes = installation::read(&stores.pool).await?.lanes;
    let backlog = Backlog::new(stores.fleet.clone(), stores.keys.clone(), lanes, u64::MAX);
    let issue = Arc::new(move |grants, until| tokens.issue(grants, until));
    let show = |frame: &Frame| {
        say!("{}", serde_json::to_string(frame).expect("a state can be written as JSON"));
    };
    let read = (stores, Arc::new(backlog));
    let storm = Storm::new(service, issue, plan, Clock::System.now(), read, show);
    Ok(storm.run(&CancellationToken::new(), &Shutdown::default()).await)
}

/// Host and port of a service on this machine. Refuses others, so that a crowd can't be used to attack them.
fn on_this_machine(url: &Uri) -> Result<Authority, InvalidConfig> {
    let is_loopback = |host: &str| {
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    };
    match (url.scheme_str(), url.authority(), url.path()) {
        (Some("http"), Some(authority), "/") if is_loopback(authority.host()) => {
            Ok(authority.clone())
        }
        _ => Err(InvalidConfig::new(
            "--url has to name a service on this machine alone: http://127.0.0.1:8080, or another port",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_sent_to_this_machine_alone() {
        for (url, is_here) in [
            ("http://localhost:8080", true),
            ("http://127.0.0.1:1/", true),
            ("http://[::1]:8080", true),
            ("http://localhost.example.org", false),
            ("http://192.0.2.1:8080", false),
            ("http://0.0.0.0:8080", false),
            ("https://localhost:8080", false),
            ("http://localhost:8080/v1", false),
            ("localhost:8080", false),
        ] {
            assert_eq!(on_this_machine(&url.parse().unwrap()).is_ok(), is_here, "{url}");
        }
    }
}
