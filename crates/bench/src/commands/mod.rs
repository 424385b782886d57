//! The sub-commands: each measures, prints, and writes the asked-for files.

mod run;

mod rounds;

mod compare;

mod drain;

mod overload;

mod levels;

mod session;

mod binary;

use std::process::ExitCode;

use clap::Parser;
use flash_sale::base::config::InvalidConfig;
use flash_sale::base::shutdown::StopRequests;
use flash_sale::base::telemetry;
use private_servers::PrivateServersError;

use crate::arguments::{BenchArguments, BenchCommand};
use crate::service::{bare_route, keeper};
use crate::void::Void;

/// Measures, and names on standard error the reason of a failure.
pub fn main() -> ExitCode {
    let arguments = BenchArguments::parse();
    let stores = arguments.stores();
    let ready = telemetry::log_to_stderr(stores.log_format, &stores.log_filter)
        .map_err(|error| anyhow::anyhow!(error).context("--log can't be understood"));
    let done = ready.and_then(|()| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let done = runtime.block_on(measure(arguments));
        // A thread may still read standard input, and only its input could wake it up.
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flash-sale-bench: {error:#}");
            exit_code(&error)
        }
    }
}

/// Measures. A signal ends it early; processes and folders that it has started are ended and removed in every case.
async fn measure(arguments: BenchArguments) -> anyhow::Result<()> {
    if let Some(BenchCommand::Keep(keep)) = arguments.command {
        return keeper::keep(keep).await;
    }
    if let Some(BenchCommand::BareRoute) = arguments.command {
        return bare_route::serve().await;
    }
    let mut stop_requests = StopRequests::listen()?;
    match arguments.command {
        Some(BenchCommand::Compare(compare)) => compare::run(*compare, &mut stop_requests).await,
        Some(BenchCommand::Drain(drain)) => drain::run(*drain, &mut stop_requests).await,
        Some(BenchCommand::Run(run)) => run::run(*run, &mut stop_requests).await,
        _ => run::run(arguments.run, &mut stop_requests).await,
    }
}

fn exit_code(error: &anyhow::Error) -> ExitCode {
    let code = if error.is::<InvalidConfig>() {
        2
    } else if let Some(PrivateServersError::MissingProgram { .. }) = error.downcast_ref() {
        3
    } else if error.is::<Void>() {
        4
    } else {
        1
    };
    ExitCode::from(code)
}
