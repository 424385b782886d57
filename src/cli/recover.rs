//! `flash-sale recover`: closes lanes, so that the running service recovers them.

use anyhow::bail;
use clap::Args;

use super::stores::as_guest;
use crate::base::config::{InvalidConfig, StoreConfig};
use crate::cli::terminal::say;
use crate::coupon::orphans;
use crate::fence::table::{self, Trust};
use crate::recovery::apart;
use crate::recovery::reconcile;
use crate::store::audit::Actor;
use crate::store::ids::Lane;
use crate::store::{Stores, installation};

#[derive(Args)]
pub struct RecoverArguments {
    /// The lane; all of them if not given
    #[arg(long)]
    lane: Option<i32>,
    /// The store that is right about what only Redis has: redis makes orders of such buyers, postgres forgets them and
    /// such sales; redis if not given, but for a Postgres that is behind Redis
    #[arg(long, value_enum)]
    trust: Option<Trust>,
    /// Say what each store has that the other one lacks, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub stores: StoreConfig,
}

/// Closes lanes, on the servers of a running service if there is one; the service recovers them.
pub async fn run(arguments: &RecoverArguments) -> anyhow::Result<()> {
    as_guest(&arguments.stores, async |stores| run_on(arguments, stores).await).await
}

async fn run_on(arguments: &RecoverArguments, stores: &Stores) -> anyhow::Result<()> {
    let lanes = table::all(&stores.pool).await?.into_iter().map(|stored| stored.lane);
    let is_asked_for = |lane: &Lane| arguments.lane.is_none_or(|number| lane.get() == number);
    let chosen: Vec<Lane> = lanes.filter(is_asked_for).collect();
    if chosen.is_empty() {
        bail!(
            "there is no such lane: they are numbered from 0; `flash-sale recover` without --lane closes all"
        );
    }
    if arguments.dry_run {
        for found in reconcile::check(stores).await?.disagreements {
            if chosen.contains(&found.coupon.lane()) {
                say!("{found}");
            }
        }
        for coupon in orphans::find(stores).await? {
            say!("coupon {coupon}: a sale that only Redis has (--trust postgres removes it)");
        }
        return Ok(());
    }
    if installation::apart(&stores.pool).await?.is_some()
        && (arguments.lane.is_some() || arguments.trust.is_none())
    {
        return Err(InvalidConfig::new(
            "Postgres is behind Redis, in all lanes: leave --lane away, and give --trust redis or --trust postgres",
        )
        .into());
    }
    let trust = arguments.trust.unwrap_or(Trust::Redis);
    let is_all = arguments.lane.is_none();
    let by = Actor::command_line();
    let removed = apart::decide(stores, &chosen, is_all, trust, &by).await?;
    for lane in chosen {
        say!("lane {lane} is closed; a running service recovers it (GET /v1/recoveries)");
    }
    if removed > 0 {
        say!("{removed} sales that only Redis had have been removed");
    }
    Ok(())
}
