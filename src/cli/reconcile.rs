//! `flash-sale reconcile`: do Redis and Postgres agree?

use super::Disagree;
use super::stores::{As, OpenStores};
use crate::base::config::StoreConfig;
use crate::sale::reconcile::{Report, check};

/// Prints what was found; fails when something doesn't agree.
pub async fn run(config: &StoreConfig) -> anyhow::Result<()> {
    let opened = OpenStores::open(config, As::Guest).await?;
    let stores = &opened.stores;
    let report = check(&stores.pool, &stores.redis, &stores.keys).await;
    let closed = opened.close().await;
    let report = report?;
    closed?;
    print(&report);
    if report.agrees() { Ok(()) } else { Err(Disagree(report.disagreements.len()).into()) }
}

fn print(report: &Report) {
    for sale in &report.sales {
        println!(
            "coupon {}: total {} = stock {} + buyers {}; live orders {}, in review {}{}",
            sale.coupon,
            sale.total,
            sale.stock,
            sale.buyers,
            sale.live_orders,
            sale.in_review,
            if sale.identical { "; buyers and live orders have the same digest" } else { "" },
        );
    }
    if report.in_flight > 0 {
        println!("{} entries are on their way to Postgres", report.in_flight);
    }
    for disagreement in &report.disagreements {
        println!("DISAGREE {}: {disagreement}", disagreement.code());
    }
    if report.agrees() {
        println!("Redis and Postgres agree ({} sales).", report.sales.len());
    } else {
        println!("docs/reconcile.md says what each of these means and what to do.");
    }
}
