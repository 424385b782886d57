//! `flash-sale-bench`: load on a service, its figures, and a verdict on the figures.
//!
//! # The model
//!
//! The service runs in a process of its own, with its own Redis and Postgres, and is spoken to over TCP only. So the
//! figures are those of a client, and the CPU time of each process is known. `service` starts it and judges it; `load`
//! chooses and sends the requests; `measure` watches a slice of them; `commands` put slices together; `report` shows the
//! `results`.
//!
//! # Two kinds of load, never mixed up
//!
//! * **Closed loop**: N connections, each sends its next request as soon as the last one is answered. The figure is
//!   throughput. Its latencies say nothing: a stalled service is not asked, so the stall is hardly counted (coordinated
//!   omission).
//! * **Open loop**: requests are due at a constant rate, whether the service keeps up or not. Each latency counts from
//!   the moment when the request was *due*, and not from its sending over a free connection (`pace`).
//!
//! # What makes a figure believable
//!
//! Slices of different scenarios take turns, and the quoted figure is the ratio to the no-op route in the same round:
//! other work of the machine hits both. CPU time per request stands beside requests per second, because it survives
//! noise. At the end, every claim that was answered 202 has to be a row in Postgres, and `flash-sale reconcile` has to
//! agree. A run where that fails, or where users ran out, is void and ends with exit code 4.

#![warn(clippy::unwrap_used)]

mod commands;

mod report;

mod results;

mod measure;

mod service;

mod arguments;

mod load;

mod cores;

mod figures;

/// The load is made with the allocator of the service.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    commands::main()
}
