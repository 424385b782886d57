//! `flash-sale log`: the order log, for operators.

use clap::{Args, Subcommand};
use serde_json::json;

use super::stores::{As, OpenStores};
use crate::base::config::StoreConfig;
use crate::sale::audit::{self, Action, Actor, Event};
use crate::sale::ids::Lane;
use crate::sale::log::layout;
use crate::sale::{Failure, Stores, installation};

#[derive(Args)]
pub struct LogArguments {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Subcommand)]
enum LogCommand {
    /// Write the log that only this version reads, although an older process seems to run (docs/operate.md, Upgrade)
    Switch {
        #[command(flatten)]
        stores: StoreConfig,
    },
}

impl LogArguments {
    pub fn stores(&self) -> &StoreConfig {
        let LogCommand::Switch { stores } = &self.command;
        stores
    }
}

/// Begins the log of calls in each lane.
pub async fn run(arguments: &LogArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let switched = switch(&opened.stores).await;
    let closed = opened.close().await;
    let lanes = switched?;
    closed?;
    println!(
        "New claims are written to the log of calls, in {lanes} lanes. Workers of this version write both logs."
    );
    Ok(())
}

async fn switch(stores: &Stores) -> Result<i32, Failure> {
    let Stores { pool, redis, keys } = stores;
    let lanes = installation::read(pool).await?.lanes;
    let begun = layout::begin_calls(redis, keys, Lane::all(lanes)).await?;
    if begun > 0 {
        let event = Event::without_subject(Action::SwitchLog)
            .before(json!({"log": "claims", "lanes": begun}))
            .after(json!({"log": "calls", "lanes": begun}));
        audit::note_alone(pool, &Actor::command_line(), event).await?;
    }
    Ok(lanes)
}
