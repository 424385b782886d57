//! `private-servers`: a Redis and a Postgres for as long as standard input is open.

use std::path::PathBuf;
use std::process::ExitCode;

use private_servers::{Place, PrivateServersError, Settings, Sync, keep};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
Starts a Redis and a Postgres, prints their addresses as a line of JSON, and stops both at the end of standard input, at
Ctrl-C and at SIGTERM.

usage: private-servers DIR            data in DIR, which stays: a later start goes on with it
       private-servers --throw-away   data in a temporary folder, removed at the end; nothing waits for the disk

Exit codes: 0 done; 1 failed; 2 wrong arguments; 3 a program is missing on this machine.";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (place, sync) = match (arguments.next(), arguments.next()) {
        (Some(help), None) if help == "--help" || help == "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        (Some(flag), None) if flag == "--throw-away" => (Place::ThrowAway, Sync::Off),
        (Some(dir), None) if !dir.to_string_lossy().starts_with('-') => {
            (Place::Folder(PathBuf::from(dir)), Sync::Durable)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        eprintln!("private-servers: this process gets no runtime from the system");
        return ExitCode::FAILURE;
    };
    let kept = runtime.block_on(keep_until_signal(&place, &Settings::new(sync)));
    // A thread may still read standard input, and only its input could wake it up.
    runtime.shutdown_background();
    match kept {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("private-servers: {error}");
            let is_missing = matches!(error, PrivateServersError::MissingProgram { .. });
            ExitCode::from(if is_missing { 3 } else { 1 })
        }
    }
}

async fn keep_until_signal(place: &Place, settings: &Settings) -> Result<(), PrivateServersError> {
    let interrupt = signal(SignalKind::interrupt());
    let terminate = signal(SignalKind::terminate());
    let hang_up = signal(SignalKind::hangup());
    keep(place, settings, async {
        let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hang_up)) =
            (interrupt, terminate, hang_up)
        else {
            // Without signals, standard input alone ends the servers.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    })
    .await
}
