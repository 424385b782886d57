//! `flash-sale recover`: has lanes recovered on an operator's word.

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::stores::{As, OpenStores};
use crate::base::config::StoreConfig;
use crate::sale::Stores;
use crate::sale::audit::Actor;
use crate::sale::fence::table;
use crate::sale::ids::Lane;
use crate::sale::recovery::by_hand::{self, SaleDifference};

#[derive(Args)]
pub struct RecoverArguments {
    /// The lane; all of them if not given
    #[arg(long)]
    lane: Option<i32>,
    /// The store that is right about buyers that only Redis has: redis makes them orders, postgres forgets them
    #[arg(long, value_enum, default_value = "redis")]
    trust: Trust,
    /// Say what each store has that the other one lacks, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    stores: StoreConfig,
}

/// A store that is believed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Trust {
    Redis,
    Postgres,
}

impl RecoverArguments {
    pub fn stores(&self) -> &StoreConfig {
        &self.stores
    }
}

/// Closes lanes, on the servers of a running service if there is one; the service recovers them.
pub async fn run(arguments: &RecoverArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let done = run_on(arguments, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

async fn run_on(arguments: &RecoverArguments, stores: &Stores) -> anyhow::Result<()> {
    let lanes = table::all(&stores.pool).await?.into_iter().map(|stored| stored.lane);
    let is_asked_for = |lane: &Lane| arguments.lane.is_none_or(|number| lane.get() == number);
    let chosen: Vec<Lane> = lanes.filter(is_asked_for).collect();
    if chosen.is_empty() {
        bail!(
            "there is no such lane: they are numbered from 0; `flash-sale recover --dry-run` names all"
        );
    }
    for lane in chosen {
        if arguments.dry_run {
            print(lane, &by_hand::differences(stores, lane).await?);
        } else {
            let harvests = arguments.trust == Trust::Redis;
            by_hand::close(stores, lane, harvests, &Actor::command_line()).await?;
            println!("lane {lane} is closed; a running service recovers it (GET /v1/recoveries)");
        }
    }
    Ok(())
}

fn print(lane: Lane, sales: &[SaleDifference]) {
    println!("lane {lane}: {} sales", sales.len());
    for SaleDifference { coupon, is_there, only_redis, only_postgres } in sales {
        let there = if *is_there { "is in Redis" } else { "is not in Redis" };
        println!(
            "  coupon {coupon} {there}; buyers that only Redis has: {only_redis} (with --trust redis they become orders, with --trust postgres their units are on sale again); live orders that Redis has no buyer for: {only_postgres} (each becomes a buyer)"
        );
    }
}
