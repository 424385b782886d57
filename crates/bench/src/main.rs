//! `flash-sale-bench`: load on a service, its figures, and a verdict on the figures.
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

mod commands;

mod report;

mod results;

mod measure;

mod target;

mod arguments;

mod load;

mod cores;

mod figures;

mod void;

/// The load is made with the allocator of the service.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    commands::main()
}
