//! `flash-sale reconcile`: compares Redis with Postgres.

use anyhow::bail;

use super::Disagree;
use super::stores::as_guest;
use crate::base::config::StoreConfig;
use crate::base::limits;
use crate::cli::terminal::say;
use crate::recovery::reconcile::Report;
use crate::recovery::reconcile::job::{run_and_record, take_turn};
use crate::recovery::reconcile::runs::{self, AskedBy};
use crate::store::Stores;

/// Prints the findings; fails if there are any.
pub async fn run(config: &StoreConfig) -> anyhow::Result<()> {
    let report = as_guest(config, compare).await?;
    if report.agrees() { Ok(()) } else { Err(Disagree(report.disagreements.len()).into()) }
}

async fn compare(stores: &Stores) -> anyhow::Result<Report> {
    let Some(mut turn) = take_turn(&stores.pool, limits::TURN_WAIT_LONG).await? else {
        bail!(
            "another comparison goes on (GET /v1/reconcile/runs): run this again once it has ended"
        );
    };
    let run = runs::begin(&stores.pool, AskedBy::CommandLine).await?;
    let report = run_and_record(stores, &mut turn, run).await?;
    turn.close().await?;
    print(&report);
    Ok(report)
}

fn print(report: &Report) {
    for sale in &report.sales {
        say!(
            "coupon {}: total {} = stock {} + buyers {}; live orders {}, in review {}{}",
            sale.coupon,
            sale.total,
            sale.stock,
            sale.buyers,
            sale.live_orders,
            sale.in_review,
            if sale.identical { "; the buyers are the live orders" } else { "" },
        );
    }
    if report.in_flight > 0 {
        say!("{} entries are on their way to Postgres", report.in_flight);
    }
    for disagreement in &report.disagreements {
        say!("DISAGREE {}: {disagreement}", disagreement.code());
    }
    if report.agrees() {
        say!("Redis and Postgres agree ({} sales).", report.sales.len());
    } else {
        say!("docs/reconcile.md says what each of these means and what to do.");
    }
}
