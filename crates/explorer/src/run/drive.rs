//! A run from beginning to end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::breaker::Breaker;
use super::{collect, heal, watch};
use crate::check::{Verdict, check};
use crate::clients::{Created, Crowd, Http, Operator, ask_all};
use crate::facts::{Change, Event, Evidence};
use crate::plan::{Fault, Plan};
use crate::world::{Installation, Machine, Postgres};

/// Time for which clients go on when all damage has ended and the first claim has been answered.
const CALM: Duration = Duration::from_millis(1_200);
/// Time for faults, clients and operator to come to their end: only a hang exceeds it.
const END_WITHIN: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(20);
/// Units of the sale that is sold from at the end.
const LAST_SALE: i64 = 5;

/// The result of a run.
pub struct Outcome {
    /// Facts.
    pub evidence: Evidence,
    /// Their check.
    pub verdict: Verdict,
    /// Remarks about faults.
    pub notes: Vec<String>,
    /// Lines with an alarm in the logs of the service.
    pub alarms: usize,
    /// Folder of the logs.
    pub folder: PathBuf,
}

/// Runs a plan on an installation of its own.
pub async fn run(
    plan: &Plan,
    folder: &Path,
    binary: &Path,
    machine: &Machine,
    postgres: &Arc<AsyncMutex<Postgres>>,
) -> anyhow::Result<Outcome> {
    let database = format!("run_{}", uuid_like(folder));
    postgres.lock().await.create(&database).await?;
    let folder = folder.to_owned();
    let start = async {
        let postgres = postgres.lock().await;
        Installation::start(plan, folder.clone(), binary, machine, &postgres, &database).await
    };
    let installation = Arc::new(start.await?);
    let breaker = Arc::new(Breaker {
        installation: installation.clone(),
        postgres: postgres.clone(),
        machine: machine.clone(),
        coupons: Mutex::default(),
        losses: Mutex::default(),
        notes: Mutex::default(),
        mishaps: Mutex::default(),
    });
    let mut evidence = Evidence::empty(plan.clone());
    let supervised = tokio::select! {
        driven = drive(plan, &breaker, &mut evidence) => driven,
        () = installation.supervise() => Ok(()),
    };
    supervised?;
    installation.pool.close().await;
    let alarms = installation.services.iter().map(crate::world::Service::alarms).sum();
    let notes = std::mem::take(&mut *breaker.notes.lock().expect("no holder of this lock panics"));
    drop((breaker, installation));
    postgres.lock().await.drop_database(&database).await?;
    let verdict = check(&evidence);
    Ok(Outcome { evidence, verdict, notes, alarms, folder })
}

/// A name for the run's database, from its folder's.
fn uuid_like(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

async fn drive(plan: &Plan, breaker: &Arc<Breaker>, evidence: &mut Evidence) -> anyhow::Result<()> {
    let installation = &breaker.installation;
    let http = Http::new()?;
    let operator = Operator::new(installation, &http);
    let mut sales = Vec::new();
    for total in &plan.sales {
        sales.push(operator.create(*total).await?);
    }
    let coupons = sales.iter().map(|sale| sale.coupon).collect();
    *breaker.coupons.lock().expect("no holder of this lock panics") = coupons;
    let last = operator.create(LAST_SALE).await?;
    let used = use_and_break(plan, breaker, &http, operator, &sales, evidence).await?;
    (evidence.history, evidence.changes) = used;
    sales.push(last);
    if let Err(why) = heal::sells(installation, &http, last).await {
        evidence.mishaps.push(why);
    }
    if let Err(why) = heal::rest(installation).await {
        evidence.mishaps.push(why);
    }
    if plan.acts.iter().any(|act| act.fault == Fault::MemorySnapshot) {
        // Nothing else tells that a memory went back. The lanes that differ are closed, and recovered.
        heal::reconcile(installation).await?;
        if let Err(why) = heal::rest(installation).await {
            evidence.mishaps.push(why);
        }
    }
    if collect::letters(installation).await?.iter().any(|letter| letter.is_open) {
        // An operator's part, too: each letter becomes its order, or stays for a reason.
        Operator::new(installation, &http).retry_letters().await?;
        if let Err(why) = heal::rest(installation).await {
            evidence.mishaps.push(why);
        }
    }
    evidence.disagreements = heal::reconcile(installation).await?;
    gather(breaker, &http, &sales, evidence).await
}

/// Clients, operator and faults at one time; then the end of all damage.
async fn use_and_break(
    plan: &Plan,
    breaker: &Arc<Breaker>,
    http: &Http,
    operator: Operator,
    sales: &[Created],
    evidence: &mut Evidence,
) -> anyhow::Result<(Vec<Event>, Vec<Change>)> {
    let installation = &breaker.installation;
    let coupons: Vec<i64> = sales.iter().map(|sale| sale.coupon).collect();
    let crowd = Crowd::start(plan, installation, http, &coupons);
    let seen = Mutex::default();
    let used = async {
        let mut acting: JoinSet<()> = JoinSet::new();
        for act in &plan.acts {
            acting.spawn(breaker.clone().act(*act));
        }
        let deeds = operator.work(plan.clone(), sales.to_vec());
        let acts = async {
            while acting.join_next().await.is_some() {}
            installation.time.reaches(plan.duration_ms).await;
            breaker.heal().await
        };
        // A deed that waits for the end of the damage ends behind it.
        let (healed, changes) = tokio::join!(acts, deeds);
        healed?;
        let healed = installation.time.now();
        while !crowd.was_told_since(healed) {
            sleep(POLL).await;
        }
        sleep(CALM).await;
        changes
    };
    let used = tokio::select! {
        used = timeout(END_WITHIN, used) => used,
        never = watch::watch(installation, sales, &seen) => match never {},
    };
    let changes = match used {
        Ok(Ok(changes)) => changes,
        Ok(Err(error)) => {
            evidence.mishaps.push(format!("{error:#}"));
            Vec::new()
        }
        Err(_) => {
            evidence.mishaps.push(
                "no claim was answered after the last fault, or a fault or a deed did not end"
                    .to_owned(),
            );
            Vec::new()
        }
    };
    let history = match timeout(END_WITHIN, crowd.finish()).await {
        Ok(history) => history,
        Err(_) => anyhow::bail!("the clients did not come to an end"),
    };
    evidence.seen_on_the_way = seen.into_inner().expect("no holder of this lock panics");
    Ok((history, changes))
}

async fn gather(
    breaker: &Breaker,
    http: &Http,
    sales: &[Created],
    evidence: &mut Evidence,
) -> anyhow::Result<()> {
    let installation = &breaker.installation;
    evidence.sales = collect::sales(installation, sales).await?;
    evidence.rows = collect::rows(installation).await?;
    evidence.returns = collect::returns(installation).await?;
    evidence.letters = collect::letters(installation).await?;
    evidence.recoveries = collect::recoveries(installation).await?;
    evidence.lanes = collect::lanes(installation).await?;
    // The order of the last sale is of no client.
    let last = sales.last().map(|sale| sale.coupon);
    evidence.rows.retain(|row| Some(row.coupon) != last);
    evidence.sales.retain(|sale| Some(sale.coupon) != last);
    // A user without a row has nothing to be told.
    let mut pairs: Vec<(i64, i64)> =
        evidence.rows.iter().map(|row| (row.user, row.coupon)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    evidence.told_last = ask_all(installation, http, &pairs).await;
    evidence.losses =
        std::mem::take(&mut *breaker.losses.lock().expect("no holder of this lock panics"));
    evidence.mishaps.append(&mut breaker.mishaps.lock().expect("no holder of this lock panics"));
    for service in &installation.services {
        let (lives, silences, mishaps) = service.facts();
        evidence.lives.extend(lives);
        evidence.silences.extend(silences);
        evidence.mishaps.extend(mishaps);
    }
    Ok(())
}
