//! `flash-sale-bench compare`: two services in turns, A-B-B-A, and the ratio of each pair.

use anyhow::{anyhow, bail};
use flash_sale::base::config::InvalidConfig;
use flash_sale::base::shutdown::{Shutdown, StopRequests};

use super::{drain, session};
use crate::arguments::CompareArguments;
use crate::figures::say;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::report;
use crate::results::compare::{CompareReport, Comparison};
use crate::results::machine::Machine;
use crate::service::target::Target;
use crate::service::verdict::Verdict;

/// Measures, prints, and writes what was asked for.
pub async fn run(
    arguments: CompareArguments,
    stop_requests: &mut StopRequests,
) -> anyhow::Result<()> {
    if arguments.scenario.contains(&Scenario::Bare) {
        let reason = "the bare route is the bench's own, and the same for both services: use `flash-sale-bench run`";
        return Err(InvalidConfig::new(reason).into());
    }
    let shutdown = Shutdown::default();
    let mut bench = Bench::new(arguments.client.clone(), shutdown.clone());
    let a = session::existing(arguments.a.clone())?;
    let b = session::existing(arguments.b.clone())?;
    say("starting both services");
    let opened = async {
        tokio::try_join!(
            Target::start("A", &a, &arguments.a_args, &shutdown),
            Target::start("B", &b, &arguments.b_args, &shutdown),
        )
    };
    let (mut a, mut b) = tokio::select! {
        opened = opened => opened?,
        signal = stop_requests.next() => bail!("{signal} before the services had started"),
    };
    let measured = tokio::select! {
        measured = measure(&arguments, &mut bench, &mut a, &mut b) => measured,
        signal = stop_requests.next() => Err(anyhow!("{signal} in the middle of the measurement")),
    };
    say("stopping both services");
    let closed = tokio::join!(a.close(), b.close());
    let mut report = measured?;
    closed.0.and(closed.1)?;
    if arguments.drain_orders > 0 {
        drains(&arguments, &mut report, &shutdown, stop_requests).await?;
    }
    println!("{}", report::table::of_comparison(&report));
    session::write_json(arguments.json.as_ref(), &report)?;
    report.verdicts.iter().try_for_each(Verdict::believe)
}

async fn measure(
    arguments: &CompareArguments,
    bench: &mut Bench,
    a: &mut Target,
    b: &mut Target,
) -> anyhow::Result<CompareReport> {
    let machine = Machine::look(a).await?;
    bench.calibrate(a).await?;
    bench.calibrate(b).await?;
    let mut comparisons = Vec::new();
    for scenario in &arguments.scenario {
        let mut of_a = Vec::new();
        let mut of_b = Vec::new();
        for pair in 0..arguments.pairs {
            if pair % 2 == 0 {
                of_a.push(bench.slice(a, *scenario, Pace::Closed).await?);
                of_b.push(bench.slice(b, *scenario, Pace::Closed).await?);
            } else {
                of_b.push(bench.slice(b, *scenario, Pace::Closed).await?);
                of_a.push(bench.slice(a, *scenario, Pace::Closed).await?);
            }
        }
        comparisons.push(Comparison::of(*scenario, of_a, of_b));
    }
    say("comparing Redis with Postgres");
    let described = |binary: &std::path::Path, arguments: &str| {
        format!("{} {arguments}", binary.display()).trim().to_owned()
    };
    Ok(CompareReport {
        machine,
        a: described(&arguments.a, &arguments.a_args),
        b: described(&arguments.b, &arguments.b_args),
        comparisons,
        drain: None,
        verdicts: vec![a.verdict().await?, b.verdict().await?],
    })
}

/// Backlogs, one after the other, each on a service of its own.
async fn drains(
    arguments: &CompareArguments,
    report: &mut CompareReport,
    shutdown: &Shutdown,
    stop_requests: &mut StopRequests,
) -> anyhow::Result<()> {
    let sides = [(&arguments.a, &arguments.a_args), (&arguments.b, &arguments.b_args)];
    let plans = sides.map(|(binary, service_args)| drain::Plan {
        orders: arguments.drain_orders,
        rounds: 1,
        service_args: service_args.clone(),
        binary: binary.clone(),
        beside_copy: false,
    });
    let mut rates = [Vec::new(), Vec::new()];
    for pair in 0..arguments.pairs {
        let mut order = [0, 1];
        if pair % 2 == 1 {
            order.reverse();
        }
        for side in order {
            let (_, drain) = plans[side].run(shutdown.clone(), stop_requests).await?;
            rates[side].extend(drain.rounds.iter().map(|round| round.rows_per_second));
            report.verdicts.push(drain.verdict);
        }
    }
    report.drain_ratios(&rates[0], &rates[1]);
    Ok(())
}
