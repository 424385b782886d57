//! `flash-sale bench`: load on a service, its figures, and whether they may be believed.
//!
//! # The model
//!
//! The service runs in a process of its own, with its own Redis and Postgres, and is spoken to over TCP only: what is
//! measured is what a client gets, and the CPU time of each process can be told apart. `target` starts it or is told
//! where it is; `scenario` prepares a coupon and says which request comes next; `load` sends the requests;
//! `verdict` judges afterwards.
//!
//! # Two kinds of load, never mixed up
//!
//! * **Closed loop**: N connections, each sends its next request as soon as the last one is answered. Finds out how much
//!   goes through. Its latencies say nothing: a stalled service is not asked, so the stall is hardly counted
//!   (coordinated omission).
//! * **Open loop**: requests are due at a constant rate, whether the service keeps up or not, and each latency counts from
//!   the moment the request was *due*, not from when a connection was free to send it (`pace`).
//!
//! # What makes a figure believable
//!
//! Slices of different scenarios are interleaved, and what is quoted is the ratio to the no-op route in the same round:
//! the machine's mood hits both. CPU time per request is quoted beside requests per second, because it survives
//! noise. And every claim that was answered 202 has to be a row in Postgres at the end, by `sale::reconcile::check` among
//! others; a run where that fails, or where users ran out, is void and ends with exit code 4.

mod arguments;
mod ceiling;
mod compare;
mod connection;
mod cores;
mod cpu;
mod crowd;
mod drain;
mod durable;
mod figures;
mod keeper;
mod load;
mod machine;
mod measure;
mod overload;
mod pace;
mod probe;
mod progress;
mod record;
mod report;
mod run;
mod scenario;
mod script;
mod target;
mod verdict;

pub use arguments::BenchArguments;

use arguments::BenchCommand;

use crate::base::shutdown::StopRequests;

/// The run says nothing about the service: it broke its own rules, or the service broke its promises.
#[derive(Debug, thiserror::Error)]
#[error("this run is void: {0}")]
pub struct Void(String);

/// Measures. A signal ends it early; what it has started is ended and removed in every case.
pub async fn run(arguments: BenchArguments) -> anyhow::Result<()> {
    if let Some(BenchCommand::Keep(keep)) = arguments.command {
        return keeper::keep(keep).await;
    }
    let mut stop_requests = StopRequests::listen()?;
    match arguments.command {
        Some(BenchCommand::Compare(compare)) => compare::run(*compare, &mut stop_requests).await,
        Some(BenchCommand::Drain(drain)) => drain::run(*drain, &mut stop_requests).await,
        Some(BenchCommand::Run(run)) => run::run(*run, &mut stop_requests).await,
        _ => run::run(arguments.run, &mut stop_requests).await,
    }
}
