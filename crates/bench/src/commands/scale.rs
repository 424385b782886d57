//! `flash-sale-bench scale`: wins over lanes, and over processes that answer.
//!
//! For each number of lanes there are new stores, one process that writes, and as many processes that answer as the
//! largest setting has. Each of these is pinned to a core of its own, as far as there are cores; the stores, the writer
//! and the client find all cores. All processes are up all the time, and a setting uses the first ones. On a machine
//! with few cores the rates say little, because a process more brings no core more; the CPU time of a win says what a
//! lane and a process cost.

use std::path::Path;

use super::binary;
use super::session::with_target;
use crate::arguments::ScaleArguments;
use crate::cores::Pinned;
use crate::load::connection::Address;
use crate::load::pace::Pace;
use crate::load::scenario::Scenario;
use crate::measure::bench::Bench;
use crate::measure::progress::Progress;
use crate::report;
use crate::results::machine::Machine;
use crate::results::scale::{ScaleReport, Setting};
use crate::service::target::Target;
use crate::service::verdict::Verdict;
use flash_sale::base::shutdown::{Shutdown, StopRequests};

/// Measures, prints, and writes what was asked for.
pub async fn run(
    arguments: ScaleArguments,
    stop_requests: &mut StopRequests,
) -> anyhow::Result<()> {
    let binary = binary::of_service(arguments.binary.as_deref())?;
    let shutdown = Shutdown::default();
    let client = &arguments.client;
    let settings = arguments.lanes.len() * arguments.processes.len();
    let slices = settings as f64 * f64::from(arguments.rounds);
    let progress = Progress::new(slices * (client.seconds + client.warm_up_seconds));
    let mut bench = Bench::new(client.clone(), progress, shutdown.clone());
    let mut machine = None;
    let mut settings = Vec::new();
    let mut verdicts = Vec::new();
    for lanes in &arguments.lanes {
        bench.progress.say(format!("starting a service with {lanes} lanes"));
        let roles = format!("--roles worker --admin-listen 127.0.0.1:0 --lanes {lanes}");
        let starting = Target::start("", &binary, &roles, &shutdown);
        let measured = with_target(&mut bench, starting, stop_requests, async |bench, target| {
            machine = Some(Machine::look(target).await?);
            let measured = measure(&arguments, *lanes, &binary, bench, target).await?;
            settings.extend(measured);
            target.judge().await
        });
        verdicts.push(measured.await?);
    }
    drop(bench);
    let Some(machine) = machine else { return Ok(()) };
    let slices = settings.iter().flat_map(|setting| &setting.slices);
    let report = ScaleReport { machine: machine.after(slices), settings, verdicts };
    println!("{}", report::table::of_scale(&report));
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&report)?)?;
    }
    report.verdicts.iter().try_for_each(Verdict::believe)
}

/// All settings with so many lanes, in turns.
async fn measure(
    arguments: &ScaleArguments,
    lanes: u32,
    binary: &Path,
    bench: &mut Bench,
    target: &mut Target,
) -> anyhow::Result<Vec<Setting>> {
    let most = arguments.processes.iter().max().map_or(1, |most| *most as usize);
    let mut doors = Vec::new();
    for core in 0..most {
        let _pinned = Pinned::begin(core);
        doors.push(target.start_door(binary, &[], &bench.shutdown).await?);
    }
    target.sales = lanes as usize;
    open(target, &doors[..1]);
    bench.calibrate(target).await?;
    let mut slices: Vec<Vec<_>> = arguments.processes.iter().map(|_| Vec::new()).collect();
    for round in 0..arguments.rounds {
        let mut turns: Vec<usize> = (0..arguments.processes.len()).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            open(target, &doors[..arguments.processes[turn] as usize]);
            slices[turn].push(bench.slice(target, Scenario::Win, Pace::Closed).await?);
        }
    }
    let settings = arguments.processes.iter().zip(slices);
    Ok(settings
        .map(|(processes, slices)| Setting::of(lanes, *processes as usize, slices))
        .collect())
}

/// Sends the load to these processes.
fn open(target: &mut Target, doors: &[Address]) {
    if let [first, further @ ..] = doors {
        target.address = first.clone();
        target.further = further.to_vec();
    }
}
