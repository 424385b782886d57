//! The binary. Everything is in the library; see `cli` for what each sub-command does.

use std::process::ExitCode;

/// Allocation is a measurable part of a claim, and mimalloc is faster at it than the system's malloc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    flash_sale::cli::main()
}
