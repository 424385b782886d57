//! `flash-sale demo`: the service with a coupon that is on sale, and commands to paste.

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use chrono::TimeDelta;
use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;

use super::serve::{self, Addresses};
use super::stores::token_secret;
use crate::app::App;
use crate::base::clock::Clock;
use crate::base::config::{Config, Demo, InvalidConfig, Page, Role};
use crate::cli::terminal::say;
use crate::coupon::create::Creation;
use crate::coupon::input::{NewCoupon, NewSale};
use crate::coupon::model::{Coupon, CouponFilter, CouponKind};
use crate::kit::jwt::{Grants, Tokens};
use crate::store::audit::Actor;

/// Serves until a signal stops it.
///
/// # Errors
///
/// Without the role `api`: the pasted commands would get no answer.
pub async fn run(config: &Config) -> anyhow::Result<()> {
    if !config.has_role(Role::Api) {
        let message = "--roles leaves out api, so nothing would answer the demo's lines; leave --roles away, or use `serve`";
        return Err(InvalidConfig::new(message).into());
    }
    let pages =
        if config.pages.is_empty() { vec![Page::Shop, Page::Board] } else { config.pages.clone() };
    let [board_code, storm_code] = [code(), code()];
    let codes = vec![board_code.clone(), storm_code.clone()];
    // Tokens are given away on this machine alone.
    let demo = config.listen.ip().is_loopback().then_some(Demo { codes });
    // No money moves in a demo, and yet its orders can be paid.
    let config = Config { in_process_gateway: true, pages, demo, ..config.clone() };
    serve::run(&config, async |app, addresses| {
        let coupon = coupon_on_sale(app).await?;
        let tokens = Tokens::configured(&config.stores, &token_secret(&config.stores)?);
        let links = links(&config, addresses, [&board_code, &storm_code]);
        print_what_to_paste(&tokens, &coupon, addresses, &links);
        Ok(())
    })
    .await
}

/// A new code for a link: 122 random bits.
fn code() -> SecretString {
    Uuid::new_v4().simple().to_string().into()
}

/// The newest coupon that can be claimed now, or a new one.
async fn coupon_on_sale(app: &App) -> anyhow::Result<Coupon> {
    let now = Clock::System.now();
    let open = |coupon: &Coupon| {
        coupon.sale.as_ref().is_some_and(|sale| {
            sale.left.is_some_and(|left| left > 0) && sale.opens_at <= now && now < sale.closes_at
        })
    };
    if let Some(coupon) =
        app.coupons.list(CouponFilter::default(), None, 100).await?.into_iter().find(open)
    {
        return Ok(coupon);
    }
    let new = NewCoupon {
        kind: CouponKind::Flash,
        title: "Dinner for two".into(),
        sub_title: "At half the price, while they last".into(),
        rules: "Book a table ahead. Drinks are not part of it.".into(),
        pay_cents: 2_500,
        currency: "CNY".into(),
        value_cents: 5_000,
        sale: Some(NewSale { total: 1_000, opens_at: now, closes_at: now + TimeDelta::days(30) }),
    };
    match app
        .coupons
        .create(new, None, &Actor::command_line())
        .await
        .context("the demo's coupon could not be created")?
    {
        Creation::Created(coupon) => Ok(*coupon),
        refused => Err(refused.into()),
    }
}

/// Lines with the links to the board and the storm. Each link lets one browser tab in as the administrator, once. Empty
/// if other machines could use them.
fn links(config: &Config, addresses: Addresses, [board, storm]: [&SecretString; 2]) -> String {
    let administration = url(addresses.operations.or(addresses.api));
    let line = |name, url: &str, code: &SecretString| {
        format!("  {name:<8} {url}/{name}#code={}\n", code.expose_secret())
    };
    if config.demo.is_none() {
        return String::new();
    }
    let board = if config.has_page(Page::Board) {
        line("board", &administration, board)
    } else {
        String::new()
    };
    board + &line("storm", &url(addresses.api), storm)
}

/// Prints the commands. They have no comments and quote their URLs: an interactive zsh takes `#` for a command, and
/// the brackets of an IPv6 address for a pattern.
fn print_what_to_paste(tokens: &Tokens, coupon: &Coupon, addresses: Addresses, links: &str) {
    let now = Clock::System.now();
    // Each start uses another user, so that the commands below always claim a unit.
    let user = now.timestamp();
    let token = |grants| tokens.issue(grants, now + TimeDelta::days(1));
    let user_token = token(Grants::user(user));
    let admin_token = token(Grants::administrator(user));
    let id = coupon.id;
    let (url, operations_url) = (url(addresses.api), url(addresses.operations));
    let gives_tokens = addresses.api.is_some_and(|address| address.ip().is_loopback());
    let only =
        if gives_tokens { "" } else { "  (to look only: it gives tokens away on loopback alone)" };
    let left = coupon.sale.as_ref().and_then(|sale| sale.left).unwrap_or(0);
    say!(
        "
flash-sale is running. Coupon {id} ({title}) is on sale, {left} left.

  shop     {url}/sale/{id}{only}
{links}  API      {url}/v1/coupons
  docs     {url}/docs
  metrics  {operations_url}/metrics

Paste these lines into another terminal. They claim the coupon twice (the second answer names the order of the
first), ask what became of the claim, and list the orders:

  TOKEN={user_token}
  curl -i -X POST -w '\\n' -H \"Authorization: Bearer $TOKEN\" \"{url}/v1/coupons/{id}/claims\"
  curl -i -X POST -w '\\n' -H \"Authorization: Bearer $TOKEN\" \"{url}/v1/coupons/{id}/claims\"
  curl -s -w '\\n' -H \"Authorization: Bearer $TOKEN\" \"{url}/v1/coupons/{id}/claims/me\"
  curl -s -w '\\n' -H \"Authorization: Bearer $TOKEN\" \"{url}/v1/orders\"

An administrator's token, for POST {url}/v1/coupons:

  ADMIN={admin_token}

Ctrl-C stops everything; the data stays, and the next start goes on with it.
",
        title = coupon.row.title,
    );
}

/// URL by which a client on this machine reaches a listener. A listener on every address is reached by loopback.
fn url(address: Option<SocketAddr>) -> String {
    let Some(address) = address else {
        return String::new();
    };
    let port = address.port();
    match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => format!("http://127.0.0.1:{port}"),
        // This listener may or may not take IPv4 as well; clients try both addresses of the name.
        IpAddr::V6(ip) if ip.is_unspecified() => format!("http://localhost:{port}"),
        _ => format!("http://{address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_connect_to_is_printed() {
        for (bound, printed) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("192.0.2.7:80", "http://192.0.2.7:80"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080"),
            ("[::]:8080", "http://localhost:8080"),
            ("[::ffff:0.0.0.0]:8080", "http://127.0.0.1:8080"),
            ("[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(url(Some(bound.parse().expect("an address"))), printed);
        }
    }
}
