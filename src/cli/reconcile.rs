//! `flash-sale reconcile`: compares Redis with Postgres.

use anyhow::bail;
use clap::Args;

use super::Disagree;
use super::stores::as_guest;
use crate::base::config::StoreConfig;
use crate::base::limits;
use crate::cli::terminal::say;
use crate::recovery::reconcile::Report;
use crate::recovery::reconcile::pass::{run_and_record, take_turn};
use crate::recovery::reconcile::repair::Repair;
use crate::recovery::reconcile::runs::{self, AskedBy};
use crate::store::audit::{self, Action, Actor, Event};
use crate::store::postgres::session_lock::LockSession;
use crate::store::{Failure, Stores};

#[derive(Args)]
pub struct ReconcileArguments {
    /// Repair what can be repaired while the service runs (docs/reconcile.md), and compare again
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    pub stores: StoreConfig,
}

/// Prints the findings; fails if any is left after the repairs.
pub async fn run(arguments: &ReconcileArguments) -> anyhow::Result<()> {
    let report =
        as_guest(&arguments.stores, async |stores| compare(stores, arguments).await).await?;
    if report.agrees() { Ok(()) } else { Err(Disagree(report.disagreements.len()).into()) }
}

async fn compare(stores: &Stores, arguments: &ReconcileArguments) -> anyhow::Result<Report> {
    let Some(mut turn) = take_turn(&stores.pool, limits::TURN_WAIT_LONG).await? else {
        bail!(
            "another comparison goes on (GET /v1/reconcile/runs): run this again once it has ended"
        );
    };
    let report = compare_in(&mut turn, stores, arguments).await?;
    turn.close().await?;
    Ok(report)
}

async fn compare_in(
    turn: &mut LockSession,
    stores: &Stores,
    arguments: &ReconcileArguments,
) -> Result<Report, Failure> {
    let repair = arguments.repair;
    let run = runs::begin(&stores.pool, AskedBy::CommandLine).await?;
    if repair {
        let event = Event::of(Action::RepairStores, run.get());
        audit::note_alone(&stores.pool, &Actor::command_line(), event).await?;
    }
    let (report, repairs) = run_and_record(stores, turn, run, repair).await?;
    print(&report);
    if !repair || report.agrees() {
        return Ok(report);
    }
    for Repair { code, coupon_id, done, detail } in &repairs {
        let word = if *done { "REPAIRED" } else { "NOT REPAIRED" };
        say!("{word} {code}: coupon {coupon_id}: {detail}");
    }
    let run = runs::begin(&stores.pool, AskedBy::CommandLine).await?;
    let (report, _) = run_and_record(stores, turn, run, false).await?;
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
