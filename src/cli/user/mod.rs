//! `flash-sale user`: all data of a user, or the end of it.

use anyhow::bail;
use clap::{Args, Subcommand};

use crate::base::config::StoreConfig;
use crate::cli::stores::{As, OpenStores};
use crate::sale::Stores;
use crate::sale::audit::Actor;
use crate::sale::ids::UserId;
use crate::sale::person::erase::{Erasure, erase};
use crate::sale::person::export::export;

#[derive(Args)]
pub struct UserArguments {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Subcommand)]
enum UserCommand {
    /// Print all that the stores hold of a user, as one JSON object
    Export(OneUser),
    /// Take the user out of all stores; orders stay for the books, without their user
    Erase(OneUser),
}

#[derive(Args)]
struct OneUser {
    /// The user: `sub` of the user's tokens
    #[arg(long)]
    user: UserId,
    #[command(flatten)]
    stores: StoreConfig,
}

impl UserArguments {
    pub fn stores(&self) -> &StoreConfig {
        self.command.stores()
    }
}

impl UserCommand {
    fn stores(&self) -> &StoreConfig {
        match self {
            Self::Export(one) | Self::Erase(one) => &one.stores,
        }
    }
}

/// Hands out or erases, on the servers of a running service if there is one.
pub async fn run(arguments: &UserArguments) -> anyhow::Result<()> {
    let opened = OpenStores::open(arguments.stores(), As::Guest).await?;
    let done = run_on(&arguments.command, &opened.stores).await;
    let closed = opened.close().await;
    done.and(closed)
}

async fn run_on(command: &UserCommand, stores: &Stores) -> anyhow::Result<()> {
    match command {
        UserCommand::Export(OneUser { user, .. }) => {
            let data = export(stores, *user).await?;
            println!("{}", serde_json::to_string(&data)?);
        }
        UserCommand::Erase(OneUser { user, .. }) => {
            match erase(stores, *user, &Actor::command_line()).await? {
                Erasure::Done(erased) => println!(
                    "The user is erased: {} orders stay for the books, without their user.",
                    erased.orders
                ),
                Erasure::Nothing => println!("The stores have nothing of this user."),
                Erasure::Refused(refusals) => {
                    bail!(
                        "nothing was erased, because something is under way:\n{}",
                        refusals.join("\n")
                    )
                }
            }
        }
    }
    Ok(())
}
