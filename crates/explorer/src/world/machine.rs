//! Permissions of this machine, found out once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::plan::{Fault, Need};

/// Source of the library that shifts clocks.
const CLOCK_SOURCE: &str = include_str!("../../../private-servers/src/testing/clock.c");

/// Permissions of this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// File systems may be mounted, seen by this process and its children only.
    pub mounts: bool,
    /// `strace` can be attached to a child.
    pub traces: bool,
    /// The library that shifts clocks.
    pub clock: Option<PathBuf>,
}

impl Machine {
    /// Looks what is permitted. Call it before any thread is started: a mount name space is that of a thread.
    pub fn look(folder: &Path) -> anyhow::Result<Self> {
        let mounts = own_mounts();
        let traces = is_traced();
        Ok(Self { mounts, traces, clock: clock_library(folder)? })
    }

    /// True for a need that is met.
    pub fn permits(&self, need: Need) -> bool {
        match need {
            Need::Mount => self.mounts,
            Need::Strace => self.traces,
            Need::Compiler => self.clock.is_some(),
        }
    }

    /// The faults that can be caused here.
    pub fn faults(&self) -> Vec<Fault> {
        let can = |fault: &Fault| fault.need().is_none_or(|need| self.permits(need));
        Fault::all().into_iter().filter(can).collect()
    }
}

/// Mounts of this process are its own from now on. Needs root.
fn own_mounts() -> bool {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).is_ok()
        && mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).is_ok()
}

/// Attaches `strace` to a sleeping child.
fn is_traced() -> bool {
    let quiet = |command: &mut Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let Ok(mut child) = quiet(Command::new("sleep").arg("10")) else { return false };
    let pid = child.id().to_string();
    let traced =
        quiet(Command::new("timeout").args(["0.3", "strace", "-o", "/dev/null", "-p", &pid]));
    // 124: the time is over, and strace was attached all the time.
    let attached = traced.and_then(|mut strace| strace.wait()).is_ok_and(|s| s.code() == Some(124));
    let _ = child.kill();
    let _ = child.wait();
    attached
}

/// Compiles the library; `None` without a compiler.
fn clock_library(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, CLOCK_SOURCE).context("the folder can't be written")?;
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O2", "-o"]).args([&library, &source]);
    let compiled = compile.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    Ok(compiled.then_some(library))
}
