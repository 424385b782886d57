//! The sub-commands: each measures, prints, and writes the asked-for files.

mod run;

mod rounds;

mod compare;

mod drain;

mod overload;

mod everysec;

mod session;

use std::process::ExitCode;

use clap::Parser;
use flash_sale::base::config::InvalidConfig;
use flash_sale::base::shutdown::StopRequests;
use private_servers::PrivateServersError;

use crate::arguments::{BenchArguments, BenchCommand};
use crate::figures::Void;
use crate::service::{bare_route, keeper};

/// Measures, and names on standard error the reason of a failure.
pub fn main() -> ExitCode {
    let arguments = BenchArguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
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
    let command = match arguments.command {
        Some(BenchCommand::Keep(keep)) => return keeper::keep(keep).await,
        Some(BenchCommand::BareRoute) => return bare_route::serve().await,
        command => command,
    };
    let mut stop_requests = StopRequests::listen()?;
    match command {
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
