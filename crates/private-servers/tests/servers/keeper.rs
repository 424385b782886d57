//! The command `private-servers`: servers end with its input; and after SIGKILL the next start takes them over.

use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_servers::testing::{DataFolder, eventually};
use private_servers::{PrivateServers, Settings, Sync};

use crate::support::{Keeper, ended, has_kept, is_alive, private_servers, write};

#[tokio::test]
async fn servers_that_outlive_a_killed_process_are_taken_over_with_their_data() {
    let folder = DataFolder::new();
    let mut keeper = Keeper::start(private_servers(&[folder.text()])).await;
    let [redis, postgres] = keeper.servers();
    write(&keeper.text("redis_url"), &keeper.text("database_url")).await;
    keeper.kill();
    assert!(is_alive(redis) && is_alive(postgres));

    let servers = taken_over(&folder).await;
    assert_eq!([servers.process_ids().redis, servers.process_ids().postgres], [redis, postgres]);
    servers.stop().await.expect("both stop");
    ended([redis, postgres]).await;
}

#[tokio::test]
async fn of_a_pair_with_a_dead_server_the_other_is_taken_over() {
    for victim in [0, 1] {
        let folder = DataFolder::new();
        let mut keeper = Keeper::start(private_servers(&[folder.text()])).await;
        let before = keeper.servers();
        write(&keeper.text("redis_url"), &keeper.text("database_url")).await;
        keeper.kill();
        signal(before[victim], Signal::SIGKILL);
        let servers = taken_over(&folder).await;
        let after = [servers.process_ids().redis, servers.process_ids().postgres];
        assert_ne!(after[victim], before[victim]);
        assert_eq!(after[1 - victim], before[1 - victim]);
        servers.stop().await.expect("both stop");
    }
}

#[tokio::test]
async fn a_leftover_with_another_sync_is_started_anew() {
    let folder = DataFolder::new();
    let mut keeper = Keeper::start(private_servers(&[folder.text()])).await;
    let [redis, postgres] = keeper.servers();
    write(&keeper.text("redis_url"), &keeper.text("database_url")).await;
    keeper.kill();
    let servers = PrivateServers::start(folder.path(), &Settings::new(Sync::Off)).await;
    let servers = servers.expect("both start");
    ended([redis, postgres]).await;
    assert!(has_kept(&servers).await);
    servers.stop().await.expect("both stop");
}

#[tokio::test]
async fn throw_away_servers_end_with_their_input_and_leave_nothing() {
    let temporary = DataFolder::made(0o755);
    let mut keeper = Keeper::start(throw_away(&temporary)).await;
    let servers = keeper.servers();
    assert!(servers.into_iter().all(is_alive));
    assert_eq!(temporary.entries(), 1);
    assert_eq!(keeper.close_input().await, Some(0));
    ended(servers).await;
    assert_eq!(temporary.entries(), 0);
}

#[tokio::test]
async fn throw_away_servers_end_with_a_killed_parent() {
    let temporary = DataFolder::made(0o755);
    // The parent holds the writing end of the keeper's input, as a test run does.
    let mut parent = Command::new("sh");
    let script = "mkfifo \"$1/in\" && { \"$0\" --throw-away <\"$1/in\" & exec 3>\"$1/in\"; wait; }";
    parent.args(["-c", script, env!("CARGO_BIN_EXE_private-servers"), temporary.text()]);
    parent.env("TMPDIR", temporary.path());
    let mut parent = Keeper::start(parent).await;
    let servers = parent.servers();
    parent.kill();
    // The pipe alone stays.
    eventually("the keeper clears up", async || temporary.entries() == 1).await;
    ended(servers).await;
}

#[tokio::test]
async fn a_server_inherits_the_named_variable_and_no_secret() {
    if !std::path::Path::new("/proc/self/environ").exists() {
        println!("SKIPPED: this system has no /proc");
        return;
    }
    let temporary = DataFolder::made(0o755);
    let mut command = throw_away(&temporary);
    command.env("PGPASSWORD", "hunter2").env("A_SECRET", "hunter2");
    let mut keeper = Keeper::start(command).await;
    let environment = std::fs::read(format!("/proc/{}/environ", keeper.servers()[0]));
    let environment = environment.expect("Redis runs as this user");
    let environment = String::from_utf8_lossy(&environment).replace('\0', "\n");
    assert!(environment.contains("PATH="), "{environment}");
    assert!(!environment.contains("hunter2"), "{environment}");
    assert_eq!(keeper.close_input().await, Some(0));
}

#[test]
fn wrong_arguments_are_answered_with_the_usage() {
    for arguments in [&[][..], &["--throwaway"], &["a", "b"], &["--throw-away", "a"]] {
        let output = private_servers(arguments).output().expect("the program has been built");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("--throw-away"));
    }
    let help = private_servers(&["--help"]).output().expect("the program has been built");
    assert!(help.status.success() && help.stdout.starts_with(b"Starts a Redis"));
}

/// A pair of the folder with the keeper's settings, and its data.
async fn taken_over(folder: &DataFolder) -> PrivateServers {
    let servers = PrivateServers::start(folder.path(), &Settings::new(Sync::Durable)).await;
    let servers = servers.expect("both start");
    assert!(has_kept(&servers).await);
    servers
}

/// Throw-away servers in this folder.
fn throw_away(temporary: &DataFolder) -> Command {
    let mut command = private_servers(&["--throw-away"]);
    command.env("TMPDIR", temporary.path());
    command
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).expect("a process id");
    kill(Pid::from_raw(pid), signal).expect("the process lives");
}
