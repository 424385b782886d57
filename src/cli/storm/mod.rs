//! `flash-sale storm`: a crowd of shoppers, from a process of its own and through the front door, on this machine. Prints
//! what it was told; the verdict is the service's (`sale/storm`).

// Shoppers, and the tally of their answers.
mod crowd;

// Requests of the crowd.
mod client;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use axum::http::Uri;
use axum::http::uri::Authority;
use chrono::TimeDelta;
use clap::Args;
use clap::value_parser;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use self::client::Client;
use self::crowd::{Crowd, Habits};
use super::stores::token_secret;
use crate::base::clock::Clock;
use crate::base::config::{InvalidConfig, StoreConfig};
use crate::base::limits;
use crate::kit::jwt::{Grants, Tokens};
use crate::sale::storm::lines::Line;

#[derive(Args)]
pub struct StormArguments {
    /// Where the service answers on this machine, as http://127.0.0.1:8080
    #[arg(long)]
    url: Uri,
    /// Shoppers, each a user of their own
    #[arg(long, default_value_t = 10_000,
        value_parser = value_parser!(u32).range(1..=i64::from(limits::STORM_SHOPPERS_MAX)))]
    shoppers: u32,
    /// Units on sale
    #[arg(long, default_value_t = 1_000,
        value_parser = value_parser!(u32).range(1..=i64::from(limits::STORM_SHOPPERS_MAX)))]
    stock: u32,
    /// Seconds in which the shoppers arrive, evenly; 0: all at once
    #[arg(long, default_value_t = 3,
        value_parser = value_parser!(u32).range(..=i64::from(limits::STORM_SECONDS_MAX)))]
    over: u32,
    /// Shoppers of a hundred that ask once more after their answer
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u32).range(..=100))]
    twice: u32,
    /// Connections to the service, at most
    #[arg(long, default_value_t = limits::STORM_CONNECTIONS_MAX,
        value_parser = value_parser!(u16).range(1..=i64::from(limits::STORM_CONNECTIONS_MAX)))]
    connections: u16,
    #[command(flatten)]
    pub stores: StoreConfig,
}

/// Makes a sale, sends the crowd, and prints its answers, one JSON object a line.
pub async fn run(arguments: &StormArguments) -> anyhow::Result<()> {
    let authority = on_this_machine(&arguments.url)?;
    let tokens = Tokens::configured(&arguments.stores, &token_secret(&arguments.stores)?);
    let client = Client::new(&authority, arguments.connections);
    let now = Clock::System.now();
    let until = now + TimeDelta::hours(1);
    // Longer than any crowd has patience, and short, so that a sale whose demo was killed is offered to no shopper for long.
    let closes_at = now + TimeDelta::minutes(5);
    let sale = json!({"total": arguments.stock, "opens_at": now, "closes_at": closes_at});
    let coupon = json!({
        "kind": "flash", "title": "A storm", "pay_cents": 100, "value_cents": 200, "sale": sale,
    });
    let admin = tokens.issue(Grants::administrator(1), until);
    let coupon_id = client.create(&admin, &coupon).await?;
    print(&Line::Sale { coupon_id }).await?;
    // Users that no other crowd and no shopper of a demo has been.
    let first = now.timestamp_millis() * i64::from(limits::STORM_SHOPPERS_MAX);
    let token = |number: u32| {
        let subject = first + i64::from(number);
        tokens.issue(Grants::user(subject), until)
    };
    let habits = Habits {
        shoppers: arguments.shoppers,
        over: Duration::from_secs(arguments.over.into()),
        twice: arguments.twice,
    };
    let crowd = Crowd::new(&client, coupon_id, (first, &token), habits);
    tokio::select! {
        () = crowd.shop() => {}
        failed = report(&crowd) => return failed,
    }
    print(&Line::Answers(crowd.take())).await?;
    print(&Line::End(crowd.end())).await
}

/// Prints the answers of the last moment, for ever. Fails when the reader has gone.
async fn report(crowd: &Crowd<'_>) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(limits::STORM_LINE_PERIOD).await;
        print(&Line::Answers(crowd.take())).await?;
    }
}

async fn print(line: &Line) -> anyhow::Result<()> {
    let mut out = tokio::io::stdout();
    out.write_all(format!("{}\n", serde_json::to_string(line)?).as_bytes()).await?;
    Ok(out.flush().await?)
}

/// Host and port of a service on this machine: a crowd is no way to attack others.
fn on_this_machine(url: &Uri) -> Result<Authority, InvalidConfig> {
    let is_loopback = |host: &str| {
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || ip.parse::<IpAddr>().is_ok_and(|ip| {
                [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].contains(&ip)
            })
    };
    match (url.scheme_str(), url.authority(), url.path()) {
        (Some("http"), Some(authority), "/") if is_loopback(authority.host()) => {
            Ok(authority.clone())
        }
        _ => {
            let message = "--url: a crowd is sent to this machine alone; give http://localhost, http://127.0.0.1 or http://[::1], with the port of the service and without a path";
            Err(InvalidConfig::new(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_sent_to_this_machine_alone() {
        for url in [
            "http://localhost:8080",
            "http://127.0.0.1:1/",
            "http://[::1]:8080",
            "http://localhost",
        ] {
            assert!(on_this_machine(&url.parse().unwrap()).is_ok(), "{url}");
        }
        for url in [
            "http://example.org:8080",
            "http://localhost.example.org",
            "http://192.0.2.1:8080",
            "http://0.0.0.0:8080",
            "https://localhost:8080",
            "http://localhost:8080/v1",
            "localhost:8080",
            "/",
        ] {
            assert!(on_this_machine(&url.parse().unwrap()).is_err(), "{url}");
        }
    }
}
