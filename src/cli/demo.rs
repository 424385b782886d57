//! `flash-sale demo`: the service with a coupon that is on sale, and lines to paste.

use anyhow::Context;
use chrono::TimeDelta;

use super::serve;
use crate::app::App;
use crate::base::clock::Clock;
use crate::base::config::Config;
use crate::kit::jwt::Grants;
use crate::sale::coupon::{Coupon, CouponKind};
use crate::sale::coupon_input::{NewCoupon, NewSale};

/// Serves until it is told to stop.
pub async fn run(config: &Config) -> anyhow::Result<()> {
    let url = format!("http://{}", config.listen);
    serve::run(config, async |app| {
        let coupon = coupon_on_sale(app).await?;
        print_what_to_paste(app, &coupon, &url);
        Ok(())
    })
    .await
}

/// The newest coupon that can be claimed now, or else a new one.
async fn coupon_on_sale(app: &App) -> anyhow::Result<Coupon> {
    let now = Clock::System.now();
    let open = |coupon: &Coupon| {
        coupon.sale.as_ref().is_some_and(|sale| {
            sale.left.is_some_and(|left| left > 0) && sale.opens_at <= now && now < sale.closes_at
        })
    };
    if let Some(coupon) = app.coupons.list(None, 100).await?.into_iter().find(open) {
        return Ok(coupon);
    }
    let new = NewCoupon {
        kind: CouponKind::Flash,
        title: "Dinner for two".into(),
        sub_title: "At half the price, while they last".into(),
        rules: "One to a person.".into(),
        pay_cents: 2_500,
        value_cents: 5_000,
        sale: Some(NewSale { stock: 1_000, opens_at: now, closes_at: now + TimeDelta::days(30) }),
    };
    app.coupons.create(new).await.context("the demo's coupon could not be created")
}

fn print_what_to_paste(app: &App, coupon: &Coupon, url: &str) {
    let now = Clock::System.now();
    // Another user at each start, so that the lines below always claim something.
    let user = now.timestamp();
    let token = |admin| app.tokens.issue(Grants { subject: user, admin }, now + TimeDelta::days(1));
    let (user_token, admin_token, id) = (token(false), token(true), coupon.id);
    let stock = coupon.sale.as_ref().and_then(|sale| sale.left).unwrap_or(0);
    println!(
        "
flash-sale is running. Coupon {id} ({title}) is on sale, {stock} left.

  API      {url}/v1/coupons
  docs     {url}/docs
  metrics  {url}/metrics

Paste into another terminal:

  TOKEN={user_token}

  # claim a coupon; do it twice, and the second answer names the first order
  curl -i -X POST -H \"Authorization: Bearer $TOKEN\" {url}/v1/coupons/{id}/claims

  # what became of the claim
  curl -s -H \"Authorization: Bearer $TOKEN\" {url}/v1/coupons/{id}/claims/me

  # the order itself
  curl -s -H \"Authorization: Bearer $TOKEN\" {url}/v1/orders

An administrator's token, for POST {url}/v1/coupons:

  ADMIN={admin_token}

Ctrl-C stops everything; the data stays, and the next start goes on with it.
",
        title = coupon.title,
    );
}
